"""File access that follows no symbolic links: for paths that come from a model or from a session file.

Between checking a resolved path and opening it by name, another process can replace a component with a link. So the
folder is opened component by component with O_NOFOLLOW, and the file relative to that descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from msgspec import Struct

from sessiontree.errors import PathError
from sessiontree.stores.atomic_files import write_all
from sessiontree.stores.os_calls import OS_CALLS
from sessiontree.stores.temporary_files import mark_as_written, new_temporary_name, sweep_open_once

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class FileContent(Struct, frozen=True):
    """The bytes of a file with its `stat` result."""

    data: bytes
    stat: os.stat_result

    @property
    def permissions(self) -> int:
        return self.stat.st_mode & 0o7777


@contextlib.contextmanager
def open_parent(path: str, *, created: list[str] | None = None) -> Iterator[tuple[int, str]]:
    """Open the folder of a resolved path without following links; yields its descriptor and the last component.

    If `created` is a list, missing folders are created and their paths appended to it.
    """
    parts = [part for part in path.split(os.sep) if part]
    if not os.path.isabs(path) or not parts or any(part in (".", "..") for part in parts):
        raise PathError(f"{path!r} is not the absolute path of a file")
    fd = _open_at_once(os.path.dirname(path))
    if fd is not None:
        try:
            yield fd, parts[-1]
        finally:
            os.close(fd)
        return
    fd = os.open(os.sep, _FOLDER)
    try:
        reached = os.sep
        for part in parts[:-1]:
            reached = os.path.join(reached, part)
            inner = _open_component(fd, part, reached, created)
            os.close(fd)
            fd = inner
        yield fd, parts[-1]
    finally:
        os.close(fd)


def _open_at_once(path: str) -> int | None:
    """Open a folder in one call; None if that fails, or if a link was (or may have been) followed."""
    try:
        fd = os.open(path, _FOLDER)
    except OSError:
        return None
    # The kernel reports the real path of a descriptor: if it equals the requested path, no component was a link.
    with contextlib.suppress(OSError):
        if os.readlink(f"/proc/self/fd/{fd}") == path:
            return fd
    os.close(fd)
    return None


def _open_component(fd: int, name: str, path: str, created: list[str] | None) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=fd)
    except FileNotFoundError:
        if created is None:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path) from None
        with contextlib.suppress(FileExistsError):  # another process created it just now
            os.mkdir(name, dir_fd=fd)
            created.append(path)
        return _open_component(fd, name, path, None)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            is_link = stat.S_ISLNK(os.lstat(name, dir_fd=fd).st_mode)
            why = "has become a symbolic link, which is not followed" if is_link else "is not a folder"
            raise PathError(f"{path}: {why}") from None
        raise


def open_folder(path: str) -> int:
    """Open a folder for listing, without following links."""
    with open_parent(path) as (folder, name):
        try:
            return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise PathError(f"{path}: is not a folder") from None
            raise


def open_file(path: str) -> int:
    """Open a regular file for reading, without following links."""
    with open_parent(path) as (folder, name):
        try:
            # O_NONBLOCK: opening a named pipe must not wait for a writer at its other end.
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise PathError(f"{path}: has become a symbolic link, which is not followed") from None
            if error.errno == errno.ENXIO:  # a socket, or a device without a driver
                raise PathError(f"{path}: is not a regular file") from None
            raise
    try:
        check_regular(os.fstat(fd), path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_regular(found: os.stat_result, path: str) -> None:
    """Raise `PathError` unless this is a regular file: pipes and devices can block, or have no end."""
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise PathError(f"{path}: is {kind}, not a regular file")


def read_file(path: str, limit: int | None = None) -> FileContent:
    """Read a regular file, or its first `limit` bytes."""
    with os.fdopen(open_file(path), "rb") as file:
        found = os.fstat(file.fileno())
        return FileContent(file.read() if limit is None else file.read(limit), found)


def find_file(path: str, limit: int | None = None) -> FileContent | None:
    """Read a regular file like `read_file`; None if it does not exist."""
    try:
        return read_file(path, limit)
    except FileNotFoundError:
        return None


def read_regular(path: str, limit: int) -> bytes:
    """Read up to `limit` bytes of a regular file; links are followed. Raises OSError or `PathError`.

    For small files that another person may have put in place: opening a named pipe would wait for a writer.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        check_regular(os.fstat(file.fileno()), path)
        return file.read(limit)


def read_small(path: str, size: int = 1 << 22) -> bytes | None:
    """The content of a regular file like `read_regular`; None if it cannot be read."""
    try:
        return read_regular(path, size)
    except (OSError, PathError):
        return None


def read_path(path: str) -> FileContent | None:
    """Read a regular file, or the target of a symbolic link; None if nothing is there.

    Folders, pipes and devices have empty content; use `stat` to distinguish them.
    """
    try:
        with open_parent(path) as (folder, name):
            found = _lstat(folder, name)
            if found is None:
                return None
            if stat.S_ISLNK(found.st_mode):
                return FileContent(os.fsencode(os.readlink(name, dir_fd=folder)), found)
            if not stat.S_ISREG(found.st_mode):
                return FileContent(b"", found)
    except (FileNotFoundError, PathError):
        return None
    return read_file(path)


def write_file(path: str, data: bytes, permissions: int | None = None) -> list[str]:
    """Write a file at a resolved path, atomically; returns the folders that were created for it.

    Without `permissions` the file keeps those of the file it replaces, which must be a regular file.
    """
    created: list[str] = []
    with open_parent(path, created=created) as (folder, name):
        old = _lstat(folder, name)
        if old is not None:
            check_regular(old, path)
        sweep_open_once(folder)
        temporary = new_temporary_name()
        fd = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder
        )
        mark_as_written(fd)
        try:
            write_all(fd, data, OS_CALLS)
            if old is not None and (old.st_uid, old.st_gid) != (os.fstat(fd).st_uid, os.fstat(fd).st_gid):
                with contextlib.suppress(PermissionError):  # like an editor that saves another user's file
                    os.fchown(fd, old.st_uid, old.st_gid)
            wanted = permissions if permissions is not None else None if old is None else old.st_mode & 0o7777
            if wanted is not None:
                os.fchmod(fd, wanted)
            os.fsync(fd)  # before the rename: otherwise a power failure could leave an empty file under the name
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(fd)
    return created


def write_link(path: str, target: str) -> list[str]:
    """Create or replace a symbolic link, atomically; returns the folders that were created for it."""
    created: list[str] = []
    with open_parent(path, created=created) as (folder, name):
        temporary = new_temporary_name()
        os.symlink(target, temporary, dir_fd=folder)
        try:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
    return created


def change_permissions(path: str, permissions: int) -> None:
    """Set the permissions of a regular file; never those of a link's target."""
    fd = open_file(path)
    try:
        os.fchmod(fd, permissions)
    finally:
        os.close(fd)


def remove_file(path: str) -> None:
    """Remove a file or a link."""
    with open_parent(path) as (folder, name):
        os.unlink(name, dir_fd=folder)


def remove_empty_folder(path: str) -> bool:
    """Remove a folder if it is empty; returns whether it was removed."""
    try:
        with open_parent(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)
    except (OSError, PathError):
        return False
    return True


def _lstat(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def read_umask() -> int:
    """The process's umask."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            return next(int(line.split()[1], 8) for line in file if line.startswith("Umask:"))
    except (OSError, StopIteration):
        mask = os.umask(0o077)  # without /proc, the only way to read it is to set it
        os.umask(mask)
        return mask
