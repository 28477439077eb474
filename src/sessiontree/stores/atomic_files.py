"""Durable, atomic creation of files and folders.

A file gets its name only after its content is synced: a crash leaves the complete file or none. Then its folder is
synced as well, because on ext4 and other file systems an fsync of the file does not make its name durable.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable

from sessiontree.errors import ExistsError, WriteError
from sessiontree.stores.os_calls import OS_CALLS, OsCalls
from sessiontree.stores.temporary_files import mark_as_written, sweep_once, temporary_path

_NO_LINKS = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL, errno.EXDEV}
)
"""Errors of `link` on file systems without hard links."""
_CHUNK = 1 << 20


def make_folder(path: str, os_calls: OsCalls = OS_CALLS) -> None:
    """Create a folder and its missing parents with mode 0700, durably; existing ones are left alone."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        make_folder(parent, os_calls)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        sync_folder(parent or ".", os_calls)


def sync_folder(path: str, os_calls: OsCalls = OS_CALLS) -> None:
    """Fsync a folder, so that names added to it survive a power failure."""
    fd = os_calls.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os_calls.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes, os_calls: OsCalls) -> None:
    """Write all bytes; a single `write` may write fewer."""
    written = os_calls.write(fd, data)
    while written < len(data):
        written += os_calls.write(fd, data[written:])


def write_temporary(
    path: str, chunks: Iterable[bytes], os_calls: OsCalls = OS_CALLS, permissions: int | None = None
) -> str:
    """Write and fsync a hidden temporary file in the folder of `path`, and return its path.

    Its mode is 0600, or `permissions` once it is complete.
    """
    # In the same folder, because link and rename do not work across file systems. O_EXCL and O_NOFOLLOW prevent
    # writing to a file or link that another user planted under this name.
    temporary = temporary_path(path)
    sweep_once(os.path.dirname(path), os_calls)
    fd = os_calls.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    mark_as_written(fd, os_calls)
    try:
        for chunk in chunks:
            write_all(fd, chunk, os_calls)
        if permissions is not None:
            os.fchmod(fd, permissions)
        os_calls.fsync(fd)
    except BaseException:
        os.close(fd)
        with contextlib.suppress(OSError):
            os_calls.unlink(temporary)
        raise
    os.close(fd)
    return temporary


def publish_new(temporary: str, path: str, os_calls: OsCalls = OS_CALLS) -> None:
    """Give a temporary file its final name, and raise `ExistsError` if that is taken."""
    # link, not rename: a rename would replace a file that another process created meanwhile.
    try:
        link_or_rename(temporary, path, os_calls)
    except FileExistsError:
        raise ExistsError(f"{path}: the file exists already; it was not touched") from None
    finally:
        with contextlib.suppress(OSError):
            os_calls.unlink(temporary)
    sync_folder(os.path.dirname(path), os_calls)


def link_or_rename(temporary: str, path: str, os_calls: OsCalls = OS_CALLS) -> None:
    """Give a temporary file another name, `FileExistsError` if that is taken. Its old name may be gone afterwards."""
    try:
        os_calls.link(temporary, path)
        return
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    # Without hard links, an empty file reserves the name, and the rename atomically replaces it.
    os.close(os_calls.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    try:
        os_calls.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os_calls.unlink(path)
        raise


def link_or_copy(source: str, target: str, os_calls: OsCalls = OS_CALLS) -> None:
    """Keep the content of a file under a second name, which must be free: as a hard link, or else a synced copy."""
    try:
        os_calls.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with open(source, "rb") as file:
            chunks = iter(lambda: file.read(_CHUNK), b"")
            link_or_rename(write_temporary(target, chunks, os_calls), target, os_calls)


class StagedFile:
    """A complete, synced file that has no name yet: if the process dies, the kernel discards it.

    Where the file system does not support unnamed files (O_TMPFILE), it is a hidden temporary file.
    """

    def __init__(self, path: str, chunks: Iterable[bytes], os_calls: OsCalls = OS_CALLS) -> None:
        self._path, self._os_calls = path, os_calls
        self._temporary: str | None = None
        make_folder(os.path.dirname(path), os_calls)
        self._fd = _open_unnamed(os.path.dirname(path) or ".")
        if self._fd < 0:
            self._temporary = write_temporary(path, chunks, os_calls)
            return
        try:
            for chunk in chunks:
                write_all(self._fd, chunk, os_calls)
            os_calls.fsync(self._fd)
        except BaseException:
            self.discard()
            raise

    @property
    def location(self) -> str:
        """Path for reading the file before it is published."""
        return self._temporary or f"/proc/self/fd/{self._fd}"

    def publish(self) -> None:
        """Give the file its name, durably; `ExistsError` if that is taken."""
        try:
            if self._temporary is not None:
                publish_new(self._temporary, self._path, self._os_calls)
                return
            folder = self._os_calls.open(os.path.dirname(self._path) or ".", os.O_RDONLY | os.O_DIRECTORY)
            try:
                self._os_calls.link_open_file(self._fd, self._path, folder)
                self._os_calls.fsync(folder)
            except FileExistsError:
                raise ExistsError(f"{self._path}: the file exists already; it was not touched") from None
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                with open(self.location, "rb") as file:
                    chunks = iter(lambda: file.read(_CHUNK), b"")
                    self._temporary = write_temporary(self._path, chunks, self._os_calls)
                publish_new(self._temporary, self._path, self._os_calls)
            finally:
                os.close(folder)
        finally:
            self.discard()

    def discard(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._os_calls.unlink(self._temporary)


def _open_unnamed(folder: str) -> int:
    """Open an unnamed file in a folder, mode 0600; -1 where that is not supported."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return -1
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1


def create_file(path: str, chunks: Iterable[bytes], os_calls: OsCalls = OS_CALLS) -> None:
    """Create a file durably, complete or not at all; `ExistsError` if the name is taken."""
    try:
        make_folder(os.path.dirname(path), os_calls)
        publish_new(write_temporary(path, chunks, os_calls), path, os_calls)
    except OSError as error:
        raise WriteError(f"{path}: cannot create: {error.strerror or error}; nothing was written") from error
