"""Making a file appear whole or not at all, and folders that survive a power cut."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from sessiontree.errors import ExistsError, WriteError
from sessiontree.stores.os_calls import OS_CALLS, OsCalls


def make_folder(path: str, os_calls: OsCalls = OS_CALLS) -> None:
    """Make a folder and those above it, 0700, each durably; one that exists is left as it is."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        make_folder(parent, os_calls)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        sync_folder(parent or ".", os_calls)


def sync_folder(path: str, os_calls: OsCalls = OS_CALLS) -> None:
    """Make the names in a folder survive a power cut."""
    fd = os_calls.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os_calls.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes, os_calls: OsCalls) -> None:
    """Write every byte, however many calls that takes."""
    written = os_calls.write(fd, data)
    while written < len(data):
        written += os_calls.write(fd, data[written:])


def write_temporary(path: str, chunks: Iterable[bytes], os_calls: OsCalls = OS_CALLS) -> str:
    """Write a file next to `path` under a name nobody looks at, fsynced, 0600. Its name is given back."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.urandom(6).hex()}.tmp")
    fd = os_calls.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        for chunk in chunks:
            write_all(fd, chunk, os_calls)
        os_calls.fsync(fd)
    except BaseException:
        os.close(fd)
        with contextlib.suppress(OSError):
            os_calls.unlink(temporary)
        raise
    os.close(fd)
    return temporary


def publish_new(temporary: str, path: str, os_calls: OsCalls = OS_CALLS) -> None:
    """Give a file written beside its final name, unless that name is taken."""
    try:
        os_calls.link(temporary, path)
    except FileExistsError:
        raise ExistsError(f"{path}: there is a file already; it was not touched") from None
    finally:
        with contextlib.suppress(OSError):
            os_calls.unlink(temporary)
    sync_folder(os.path.dirname(path), os_calls)


class StagedFile:
    """A whole file, synced, that no name leads to yet: the death of the process leaves nothing behind.

    On file systems that cannot have files without a name, it has one that nobody looks at.
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
        """Where it can be read until it is published."""
        return self._temporary or f"/proc/self/fd/{self._fd}"

    def publish(self) -> None:
        """Give it its name, durably; `ExistsError` when that is taken."""
        try:
            if self._temporary is not None:
                publish_new(self._temporary, self._path, self._os_calls)
                return
            folder = self._os_calls.open(os.path.dirname(self._path) or ".", os.O_RDONLY | os.O_DIRECTORY)
            try:
                # With a folder given, Python asks for the link to be followed; without, it links the link itself.
                os.link(self.location, self._path, src_dir_fd=folder, follow_symlinks=True)
                self._os_calls.fsync(folder)
            except FileExistsError:
                raise ExistsError(f"{self._path}: there is a file already; it was not touched") from None
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
    """A file without a name in a folder, 0600; -1 where that cannot be had."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return -1
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1


def create_file(path: str, chunks: Iterable[bytes], os_calls: OsCalls = OS_CALLS) -> None:
    """Make a new file durably, whole or not at all; `ExistsError` when the name is taken."""
    try:
        make_folder(os.path.dirname(path), os_calls)
        publish_new(write_temporary(path, chunks, os_calls), path, os_calls)
    except OSError as error:
        raise WriteError(f"{path}: could not be created: {error.strerror or error}; nothing was left behind") from error
