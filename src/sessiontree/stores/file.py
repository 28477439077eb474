"""Session store in a file.

An append compares the size and the last line, and writes with a single `write` and O_APPEND, under an exclusive flock
on the file itself. Agents append to the same files without taking our lock. With O_APPEND and one `write` per append,
their lines and ours stay intact, even though the writers do not exclude each other.

Only appends may change an open file. But an editor, or a program that rewrites its whole session, can change it in
place: same inode, any size. So the store remembers the last line before the end that it has read or written. Each read
that reaches this line compares it, and so does each append. Appends in quick succession compare only the size.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from fcntl import LOCK_EX, LOCK_NB
from os import SEEK_CUR, lseek, pread, preadv
from stat import S_ISDIR, S_ISREG
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

from sessiontree.errors import ConflictError, NotFoundError, ReplacedError, StoreError, WriteError
from sessiontree.stores.atomic_files import create_file, link_or_copy, sync_folder, write_temporary
from sessiontree.stores.contract import SessionRef, StoredIndex, read_bytes
from sessiontree.stores.file_lock import lock_descriptor, unlock_descriptor
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

if TYPE_CHECKING:
    from sessiontree.stores.file_index import FileStamp

_TAKE = LOCK_EX | LOCK_NB
_UNCHANGED = "the file is unchanged"
_TRUSTED_SECONDS = 0.001
"""For this long after our own append, the last line is not compared: reading it would make a series of appends a tenth
slower. No check can exclude a program that takes no lock, and a rewrite this soon is very unlikely."""
_LONGEST_TAIL = 1024
"""Bytes of the last line that are compared. Enough for the ids and times at the end of a line in every format."""
_fork_count = 0
"""Number of forks between the first process and this one. Comparing it at each write is cheaper than `os.getpid`."""


def _count_fork() -> None:
    global _fork_count
    _fork_count += 1


os.register_at_fork(after_in_child=_count_fork)


class FileStore:
    """The bytes of one session in a file."""

    def __init__(self, path: str | os.PathLike[str], *, os_calls: OsCalls = OS_CALLS) -> None:
        self._reader = -1
        self._writer = -1
        self.location = os.path.abspath(os.fspath(path))
        if "\x00" in self.location:
            raise NotFoundError("a path cannot hold a NUL byte")
        self._os_calls = os_calls
        self._flock = os_calls.flock
        self._end = 0
        """End of the bytes that were read or appended."""
        self._last_bytes = b""
        """Bytes before that end; `_tail` is the last line in them."""
        self._appended = 0.0
        """Time of the last append."""
        self._writer_fork_count = 0
        self._identity = (0, 0)
        self._is_exclusive = False
        self._size_before = 0
        """Size of the file before the last append."""
        self._failure: WriteError | None = None
        self._stamp: FileStamp | None = None
        """The state of the file when its index was requested."""

    @property
    def ref(self) -> SessionRef:
        return SessionRef(self.location)

    def exists(self) -> bool:
        return os.path.exists(self.location)

    def size(self) -> int:
        return os.fstat(self._open_reader()).st_size

    def readinto(self, offset: int, buffer: memoryview) -> int:
        tail = self._tail()
        try:
            if offset == self._end and tail:  # a read that continues: it reads the known last line once more
                before = bytearray(len(tail))
                got = preadv(self._open_reader(), [before, buffer], offset - len(tail)) - len(tail)
                if before != tail:
                    raise self._rewritten()
            else:
                got = preadv(self._open_reader(), [buffer], offset)
                if offset < self._end < offset + got + len(tail):
                    self._compare(offset, buffer[:got])
        except OSError as error:
            raise StoreError(f"{self.location} byte {offset}: cannot be read: {error.strerror}") from error
        if offset + got > self._end >= offset:
            self._remember(offset + got, bytes(buffer[max(got - _LONGEST_TAIL, 0) : got]))
        return got

    def create(self, data: Iterable[bytes]) -> None:
        create_file(self.location, data, self._os_calls)
        fd = self._open_reader()  # remember the inode and the last line before another program can change the file
        size = os.fstat(fd).st_size
        self._end, self._last_bytes = 0, b""
        self._remember(size, pread(fd, _LONGEST_TAIL, max(size - _LONGEST_TAIL, 0)))

    def append(self, data: bytes, *, expected_size: int) -> int | None:
        fd = self._writer if self._is_exclusive else self._lock()
        try:
            if self._checked_size() != expected_size:
                return None
            if not data:  # a write of nothing does not move the position to the end
                return expected_size
            if expected_size == self._end and monotonic() - self._appended > _TRUSTED_SECONDS:
                self._check_tail()
            self._size_before = expected_size
            # One write call, never a loop: a second call could land after another program's line and split ours in two.
            written = self._os_calls.write(fd, data)
            if written != len(data):
                self._fail_append(f"only {written} of {len(data)} bytes were written", written)
            # With O_APPEND the position is now the end of our bytes, wherever they landed.
            end = lseek(fd, 0, SEEK_CUR)
            # Otherwise a program that takes no lock appended first; its line is unread, so our end stays.
            if end == expected_size + written:
                self._end, self._last_bytes, self._appended = end, data, monotonic()
            return end
        except OSError as error:
            self._fail_append(error.strerror or str(error), 0, error)
        finally:
            if not self._is_exclusive:
                self._unlock(fd)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[int]:
        if self._is_exclusive:  # `replace` inside the block
            yield self._checked_size()
            return
        fd = self._lock()
        self._is_exclusive = True
        try:
            yield self._checked_size()
        finally:
            self._is_exclusive = False
            self._unlock(fd)

    def overwrite(self, offset: int, data: bytes, expected: bytes) -> None:
        if len(data) != len(expected) or read_bytes(self, offset, len(data)) != expected:
            raise ConflictError(f"{self.location} byte {offset}: the bytes there have changed; nothing was written")
        from sessiontree.stores.file_index import drop_indexes  # slow to import, and few formats overwrite

        drop_indexes(self.location, os.environ)
        # A descriptor without O_APPEND: with it, Linux ignores the offset of pwrite and appends.
        fd = self._open_for_writing(os.O_WRONLY)
        try:
            self._overwrite(fd, offset, data, expected)
        finally:
            size = len(self._tail())
            self._last_bytes = pread(self._open_reader(), size, self._end - size)
            os.close(fd)

    def replace(self, data: Iterable[bytes], *, expected_size: int) -> str:
        # The order matters: a crash at any point leaves the old or the new file, both complete.
        # 1. Write and fsync the new content under a temporary name. This is slow, so it happens without the lock.
        # 2. Take the lock and check that nothing was appended in the meantime.
        # 3. Keep the old file under the backup's name, as a hard link (no copy) where the file system has those.
        # 4. Rename the new file over the path, and fsync the folder.
        # All of that at the target of a symbolic link: a rename over the link would leave the target as it is.
        path = os.path.realpath(self.location)
        backup = f"{path}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.urandom(2).hex()}.bak"
        try:
            permissions = os.stat(path).st_mode & 0o7777
            temporary = write_temporary(path, data, self._os_calls, permissions)
        except OSError as error:
            raise WriteError(f"{self.location}: cannot rewrite: {error.strerror}; nothing was changed") from error
        try:
            with self.exclusive() as size:
                if size != expected_size or os.path.realpath(self.location) != path:
                    raise ConflictError(f"{self.location}: changed during the rewrite; nothing was written")
                link_or_copy(path, backup, self._os_calls)
                self._os_calls.rename(temporary, path)
        except OSError as error:
            raise WriteError(f"{self.location}: cannot rewrite: {error.strerror}; nothing was changed") from error
        finally:
            with contextlib.suppress(OSError):  # after the rename this name no longer exists
                self._os_calls.unlink(temporary)
        sync_folder(os.path.dirname(path), self._os_calls)
        self.close()  # our descriptors still refer to the old file; the next use opens the new one
        self._end, self._last_bytes = 0, b""
        return backup

    # The index in the cache folder; the module is imported for large sessions only

    def read_index(self, name: str) -> StoredIndex | None:
        from sessiontree.stores import file_index

        fd = self._open_reader()
        self._stamp = file_index.FileStamp.of(fd)
        found = file_index.read_index(self.location, name, fd, os.environ)
        if found is not None and found.size > self._end:
            # As if its bytes had been read: later reads and writes compare the last line.
            start = max(found.size - _LONGEST_TAIL, 0)
            self._end, self._last_bytes = found.size, pread(fd, found.size - start, start)
        return found

    def write_index(self, name: str, pieces: Iterable[bytes], size: int) -> None:
        from sessiontree.stores import file_index

        if self._stamp is not None and self._stamp.size == size:
            file_index.write_index(self.location, name, self._open_reader(), self._stamp, pieces, os.environ)

    def start_sync(self) -> None:
        if self._writer >= 0:  # the appended bytes start at the size before the append
            self._os_calls.start_writeback(self._writer, self._size_before)

    def sync(self) -> None:
        if self._writer < 0:
            return
        try:
            self._os_calls.fsync(self._writer, data_only=True)
        except OSError as error:
            # After a failed fsync Linux marks the pages clean: a second fsync would succeed without having written
            # anything, so this failure must not be retried silently.
            self._failure = WriteError(
                f"{self.location}: fsync failed: {error.strerror}; data since the last sync may be lost"
            )
            raise self._failure from error

    def resolve(self) -> None:
        """Clear a failed write, if the file can be locked again."""
        if self._failure is not None:
            self._failure = None
            with self.exclusive():
                pass

    def close(self) -> None:
        for fd in (self._reader, self._writer):
            if fd >= 0:
                os.close(fd)
        self._reader = self._writer = -1

    def __del__(self) -> None:
        self.close()

    def _open_reader(self) -> int:
        if self._reader < 0:
            try:
                # Without O_NONBLOCK, opening a pipe that no process writes to would never return.
                self._reader = self._os_calls.open(self.location, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            except FileNotFoundError:
                raise NotFoundError(f"{self.location}: no such file") from None
            except OSError as error:
                raise StoreError(f"{self.location}: cannot be read: {error.strerror}") from error
            stat = os.fstat(self._reader)
            if not S_ISREG(stat.st_mode):
                os.close(self._reader)
                self._reader = -1
                kind = "a folder, not a session" if S_ISDIR(stat.st_mode) else "not a regular file"
                raise StoreError(f"{self.location}: {kind}")
            self._identity = (stat.st_dev, stat.st_ino)
        return self._reader

    def _open_writer(self) -> int:
        """Open the descriptor for appends and locks."""
        # After a fork a new descriptor is opened: an inherited one refers to the parent's open file and shares its
        # flock, so parent and child would not exclude each other.
        self._open_reader()
        fd = self._open_for_writing(os.O_WRONLY | os.O_APPEND)
        if self._writer >= 0:
            os.close(self._writer)
        self._writer, self._writer_fork_count = fd, _fork_count
        return fd

    def _open_for_writing(self, flags: int) -> int:
        """Open the file for writing; `ReplacedError` if the path is no longer the file that was opened for reading."""
        try:
            fd = self._os_calls.open(self.location, flags)
        except FileNotFoundError:
            raise ReplacedError(
                f"{self.location}: was deleted while it was open; nothing was written. Open it again."
            ) from None
        except OSError as error:
            raise WriteError(f"{self.location}: cannot write: {error.strerror}; nothing was changed") from error
        stat = os.fstat(fd)
        if (stat.st_dev, stat.st_ino) != self._identity:
            os.close(fd)
            raise ReplacedError(
                f"{self.location}: was replaced by another file while it was open; nothing was written. Open it again."
            )
        return fd

    def _lock(self) -> int:
        """Take the lock, and return the descriptor that holds it."""
        if self._failure is not None:
            raise WriteError(
                f"{self._failure} (an earlier write failed; fix the cause, then reopen the session or call resolve())"
            )
        fd = self._writer
        if fd < 0 or self._writer_fork_count != _fork_count:
            fd = self._open_writer()
        # The descriptor is already open and the lock nearly always free, so call flock directly; only a lock that is
        # held goes through `file_lock`. A context manager here makes an append a third slower (5.6 to 7.4 us).
        try:
            self._flock(fd, _TAKE)
        except OSError:  # held by another writer, or not supported
            lock_descriptor(fd, self.location, os_calls=self._os_calls)
        return fd

    def _unlock(self, fd: int) -> None:
        """Release the lock; never raises, because what was written stays written."""
        if fd == self._writer:  # closing a descriptor has released its lock, and the number may have been reused
            unlock_descriptor(fd, self._flock)

    def _compare(self, offset: int, data: memoryview) -> None:
        """Compare the part of the known last line that a read has reached."""
        tail = self._tail()
        start = self._end - len(tail)
        first, last = max(offset, start), min(offset + len(data), self._end)
        if data[first - offset : last - offset] != tail[first - start : last - start]:
            raise self._rewritten()

    def _check_tail(self) -> None:
        tail = self._tail()
        if pread(self._reader, len(tail), self._end - len(tail)) != tail:
            raise self._rewritten()

    def _tail(self) -> bytes:
        """The last line before the known end, or its last bytes."""
        data = self._last_bytes
        if len(data) > _LONGEST_TAIL or data.find(b"\n", 0, -1) >= 0:
            data = self._last_bytes = data[data.rfind(b"\n", 0, -1) + 1 :][-_LONGEST_TAIL:]
        return data

    def _remember(self, end: int, data: bytes) -> None:
        """Remember the last line before a new end; `data` are the last bytes of a read that ends there."""
        if end - len(data) == self._end:
            data = self._tail() + data  # a short read may be only a part of a line
        self._end, self._last_bytes = end, data

    def _rewritten(self) -> ReplacedError:
        return ReplacedError(
            f"{self.location}: was rewritten by another program while it was open; nothing was written. Open it again."
        )

    def _checked_size(self) -> int:
        """The size of the file; `ReplacedError` if the path is no longer the file that was opened."""
        # With the lock held: `replace` (or another program, such as an editor) renames a new file over the path, and a
        # line appended to the old inode would be lost.
        try:
            stat = os.stat(self.location)
        except OSError:
            stat = None
        if stat is None or (stat.st_dev, stat.st_ino) != self._identity:
            change = "was deleted" if stat is None else "was replaced by another file"
            raise ReplacedError(f"{self.location}: {change} while it was open; nothing was written. Open it again.")
        return stat.st_size

    def _fail_append(self, cause: str, written: int, error: OSError | None = None) -> NoReturn:
        # Store the failure: until the caller resolves it, no later append may succeed and hide the missing lines.
        self._failure = WriteError(f"{self.location}: cannot write: {cause}; {self._roll_back(written)}")
        raise self._failure from error

    def _overwrite(self, fd: int, offset: int, data: bytes, expected: bytes) -> None:
        try:
            written = self._os_calls.pwrite(fd, data, offset)
            if written == len(data):
                return
            cause = f"only {written} of {len(data)} bytes were written"
            error: OSError | None = None
        except OSError as failed:
            written, cause, error = 0, failed.strerror or str(failed), failed
        state = _UNCHANGED
        if written:  # restore the old bytes, so that no mixture of old and new is left
            try:
                if self._os_calls.pwrite(fd, expected[:written], offset) != written:
                    state = f"bytes {offset} to {offset + written} are new, the rest is old"
            except OSError:
                state = f"bytes {offset} to {offset + written} are new, the rest is old"
        self._failure = WriteError(f"{self.location}: cannot write: {cause}; {state}")
        raise self._failure from error

    def _roll_back(self, written: int) -> str:
        """Truncate the file to its size before a failed append. Returns the state of the file, for the message."""
        if written == 0:
            return _UNCHANGED
        try:
            # Only if our bytes are the last ones: a program that does not take the lock may have appended after them.
            if os.fstat(self._writer).st_size == self._size_before + written:
                self._os_calls.truncate(self._writer, self._size_before)
                return _UNCHANGED
        except OSError as error:
            return f"an incomplete line is left at its end ({error.strerror})"
        return "an incomplete line is left in it, because another program has appended since"
