"""A session in a file.

Appending is one write of whole bytes with O_APPEND, under an advisory lock on the file itself, after a look at the
file's name: if that name now means another file, or none, nothing is written. A write that fails is undone by cutting
the file back to where it was, unless someone else has written behind it meanwhile. Overwriting is one write at an
offset, which takes a descriptor of its own: with O_APPEND, Linux appends whatever the offset.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock

from sessiontree.errors import ConflictError, NotFoundError, ReplacedError, StoreError, WriteError
from sessiontree.stores.atomic_files import create_file, sync_folder, write_temporary
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.file_lock import lock_descriptor
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

_TAKE = LOCK_EX | LOCK_NB
_forks = 0
"""How often this process came out of a fork: cheaper to compare at each write than to ask the system for its number."""


def _came_out_of_a_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_came_out_of_a_fork)


class FileStore:
    """The bytes of one session in a file."""

    def __init__(self, path: str | os.PathLike[str], *, os_calls: OsCalls = OS_CALLS) -> None:
        self._reader = -1
        self._writer = -1
        self.location = os.path.abspath(os.fspath(path))
        if "\x00" in self.location:
            raise NotFoundError("a path cannot hold a NUL byte")
        self._os_calls = os_calls
        self._writer_forks = 0
        self._identity = (0, 0)
        self._locked_size = 0
        self._failure: WriteError | None = None

    def exists(self) -> bool:
        return os.path.exists(self.location)

    def size(self) -> int:
        return os.fstat(self._open_reader()).st_size

    def readinto(self, offset: int, buffer: memoryview) -> int:
        try:
            return os.preadv(self._open_reader(), [buffer], offset)
        except OSError as error:
            raise StoreError(f"{self.location} byte {offset}: cannot be read: {error.strerror}") from error

    def create(self, data: Iterable[bytes]) -> None:
        create_file(self.location, data, self._os_calls)
        self._open_reader()  # from now on this file is meant, whatever its name may come to mean

    def lock(self) -> int:
        if self._failure is not None:
            raise WriteError(
                f"{self._failure} (an earlier write failed; when the cause is gone, open the session again, or call "
                "resolve())"
            )
        fd = self._writer
        if fd < 0 or self._writer_forks != _forks:
            fd = self._open_writer()
        # The descriptor is open already and nearly always free: one bare flock here, and only a lock that is taken
        # goes through `file_lock`. A context manager on this path makes an append a third slower (5.6 to 7.4 us).
        try:
            flock(fd, _TAKE)
        except BlockingIOError:
            lock_descriptor(fd, self.location)
        try:
            found = os.stat(self.location)
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._identity:
            flock(fd, LOCK_UN)
            what = "was deleted" if found is None else "was replaced by another file"
            raise ReplacedError(f"{self.location}: {what} while it was open; nothing was written. Open it again.")
        self._locked_size = found.st_size
        return found.st_size

    def append(self, data: bytes) -> None:
        try:
            written = self._os_calls.write(self._writer, data)
            if written == len(data):
                return
            cause = f"only {written} of {len(data)} bytes were written"
            error: OSError | None = None
        except OSError as failed:
            written, cause, error = 0, failed.strerror or str(failed), failed
        self._failure = WriteError(f"{self.location}: could not be written: {cause}; {self._roll_back(written)}")
        raise self._failure from error

    def overwrite(self, offset: int, data: bytes, expected: bytes) -> None:
        if len(data) != len(expected) or read_bytes(self, offset, len(data)) != expected:
            raise ConflictError(f"{self.location} byte {offset}: not the bytes that were expected; nothing was written")
        fd = self._open_for_writing(os.O_WRONLY)
        try:
            self._put_over(fd, offset, data, expected)
        finally:
            os.close(fd)

    def unlock(self) -> None:
        flock(self._writer, LOCK_UN)

    def replace(self, data: Iterable[bytes], expected_size: int) -> str:
        backup = f"{self.location}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.urandom(2).hex()}.bak"
        try:
            temporary = write_temporary(self.location, data, self._os_calls)
        except OSError as error:
            raise WriteError(f"{self.location}: could not be rewritten: {error.strerror}; it is as it was") from error
        try:
            if self.lock() != expected_size:
                self.unlock()
                raise ConflictError(f"{self.location}: changed while it was being rewritten; it is as it was")
            try:
                self._os_calls.link(self.location, backup)
                self._os_calls.rename(temporary, self.location)
            finally:
                self.unlock()
        except OSError as error:
            raise WriteError(f"{self.location}: could not be rewritten: {error.strerror}; it is as it was") from error
        finally:
            with contextlib.suppress(OSError):
                self._os_calls.unlink(temporary)
        sync_folder(os.path.dirname(self.location), self._os_calls)
        self.close()
        return backup

    def start_sync(self) -> None:
        if self._writer >= 0:
            self._os_calls.start_writeback(self._writer, self._locked_size)

    def sync(self) -> None:
        if self._writer < 0:
            return
        try:
            self._os_calls.fsync(self._writer, data_only=True)
        except OSError as error:
            self._failure = WriteError(
                f"{self.location}: fsync failed: {error.strerror}; what was written since the last sync may be lost"
            )
            raise self._failure from error

    def resolve(self) -> None:
        """Forget a failed write, if the file can be written again."""
        self._failure = None
        self.lock()
        self.unlock()

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
                self._reader = self._os_calls.open(self.location, os.O_RDONLY)
            except FileNotFoundError:
                raise NotFoundError(f"{self.location}: no such file") from None
            except OSError as error:
                raise StoreError(f"{self.location}: cannot be read: {error.strerror}") from error
            found = os.fstat(self._reader)
            self._identity = (found.st_dev, found.st_ino)
        return self._reader

    def _open_writer(self) -> int:
        """A descriptor of our own: one that came through a fork would share its lock with the parent process."""
        self._open_reader()
        fd = self._open_for_writing(os.O_WRONLY | os.O_APPEND)
        if self._writer >= 0:
            os.close(self._writer)
        self._writer, self._writer_forks = fd, _forks
        return fd

    def _open_for_writing(self, flags: int) -> int:
        """A descriptor of the file that is meant, unless its name means another one by now."""
        try:
            fd = self._os_calls.open(self.location, flags)
        except FileNotFoundError:
            raise ReplacedError(
                f"{self.location}: was deleted while it was open; nothing was written. Open it again."
            ) from None
        except OSError as error:
            raise WriteError(f"{self.location}: cannot be written: {error.strerror}; it is as it was") from error
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != self._identity:
            os.close(fd)
            raise ReplacedError(
                f"{self.location}: was replaced by another file while it was open; nothing was written. Open it again."
            )
        return fd

    def _put_over(self, fd: int, offset: int, data: bytes, expected: bytes) -> None:
        try:
            written = self._os_calls.pwrite(fd, data, offset)
            if written == len(data):
                return
            cause = f"only {written} of {len(data)} bytes were written"
            error: OSError | None = None
        except OSError as failed:
            written, cause, error = 0, failed.strerror or str(failed), failed
        state = "the file is as it was"
        if written:
            try:
                if self._os_calls.pwrite(fd, expected[:written], offset) != written:
                    state = f"bytes {offset} to {offset + written} are new, the rest is old"
            except OSError:
                state = f"bytes {offset} to {offset + written} are new, the rest is old"
        self._failure = WriteError(f"{self.location}: could not be written: {cause}; {state}")
        raise self._failure from error

    def _roll_back(self, written: int) -> str:
        """Cut away what a failed write left, if nobody has written behind it. Says what the file is like now."""
        if written == 0:
            return "the file is as it was"
        try:
            if os.fstat(self._writer).st_size == self._locked_size + written:
                self._os_calls.truncate(self._writer, self._locked_size)
                return "the file is as it was"
        except OSError as error:
            return f"a torn line stays at its end ({error.strerror})"
        return "a torn line stays in it, because someone else wrote behind it"
