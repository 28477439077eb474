"""Where tools may go: the project and the folders added to it, and files that are opened without being led astray.

A path from a model is text that nobody checked. `Workspace.place` resolves `..`, `~` and every symbolic
link are resolved first, and only then it is asked whether that is inside. What is opened afterwards is opened component
by component from the root of the file system, following no link: whoever puts a link into the way between the question
and the deed gets an error, not a file. Paths are never handed to a program as arguments, so `-rf` is only a name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence

from msgspec import Struct

from sessiontree.errors import UsageError
from sessiontree.git.snapshot import is_secret
from sessiontree.stores.atomic_files import write_all
from sessiontree.stores.os_calls import SYSTEM

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_GUARDED = frozenset({".git", "git~1", ".hg", ".svn", ".ssh", ".gnupg"})
"""Folders in which a changed file can make programs run, or open doors."""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class PathError(UsageError):
    """A path that leads to nothing a tool could use; the message is fit for the model that asked."""


class ResolvedPath(Struct, frozen=True):
    """Where a path leads."""

    path: str
    """Absolute, with every link resolved."""
    shown: str
    """For people and models: from the project, where it is inside."""
    is_inside: bool
    """Whether it is in the project or an added folder."""
    is_readable: bool = False
    """Whether it is inside, or in a folder that may be read without asking."""
    is_guarded: bool = False
    """Whether a change there could make programs run later: git's own files, keys, our own home folder."""
    is_secret: bool = False
    """Whether its name says that it holds secrets."""


class Workspace:
    """The project and the folders added to it."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        added: Sequence[str | os.PathLike[str]] = (),
        guarded: Sequence[str] = (),
        readable: Sequence[str] = (),
        unguarded: Sequence[str] = (),
    ) -> None:
        """`guarded` names more folders in which nothing is changed without asking, as the home folder of sessions.

        `readable` names folders outside that may be read without asking, as the one with the outputs of commands.
        `unguarded` names folders inside guarded ones that are as free as any other, as working copies in our home.
        """
        self.root = _real(os.fspath(root))
        self.added = tuple(_real(os.fspath(folder)) for folder in added)
        self._readable = tuple(_real(folder) for folder in readable)
        self._guarded = tuple(_real(folder) for folder in guarded)
        self._unguarded = tuple(_real(folder) for folder in unguarded)

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.root, *self.added)

    def place(self, text: str) -> ResolvedPath:
        """Where a path leads, whether or not something is there."""
        if not text:
            raise PathError("the path is empty")
        if "\0" in text:
            raise PathError("the path has a NUL character in it, which no path can have")
        expanded = os.path.expanduser(text) if text == "~" or text.startswith("~/") else text
        try:
            path = os.path.realpath(os.path.join(self.root, expanded))
            os.fsencode(path)
        except (OSError, ValueError) as error:  # ValueError: a character that no file name can have
            raise PathError(f"{text!r} is no path that can be used: {error}") from None
        return self.place_of(path)

    def place_of(self, path: str) -> ResolvedPath:
        """What is to be said of a path whose links are resolved."""
        is_inside = any(is_within(path, folder) for folder in self.folders)
        shown = os.path.relpath(path, self.root) if is_within(path, self.root) else path
        is_guarded = any(part.lower() in _GUARDED for part in path.split(os.sep)) or (
            any(is_within(path, folder) for folder in self._guarded)
            and not any(is_within(path, folder) for folder in self._unguarded)
        )
        is_readable = is_inside or any(is_within(path, folder) for folder in self._readable)
        return ResolvedPath(path, shown, is_inside, is_readable, is_guarded, is_secret(path))


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it; both absolute and resolved."""
    return path == folder or path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _real(folder: str) -> str:
    return os.path.realpath(os.path.expanduser(folder))


# Opening


class FileContent(Struct, frozen=True):
    """What stands at a path."""

    data: bytes
    about: os.stat_result

    @property
    def permissions(self) -> int:
        return self.about.st_mode & 0o7777


@contextlib.contextmanager
def folder_of(path: str, *, made: list[str] | None = None) -> Iterator[tuple[int, str]]:
    """The folder of a resolved path, opened without following any link, and the name in it.

    With a list for `made`, missing folders are made, and each is put on the list.
    """
    parts = [part for part in path.split(os.sep) if part]
    if not os.path.isabs(path) or not parts or any(part in (".", "..") for part in parts):
        raise PathError(f"{path!r} names no file")
    fd = _open_at_once(os.path.dirname(path))
    if fd is not None:
        try:
            yield fd, parts[-1]
        finally:
            os.close(fd)
        return
    fd = os.open(os.sep, _FOLDER)
    try:
        at = os.sep
        for part in parts[:-1]:
            at = os.path.join(at, part)
            inner = _open_folder(fd, part, at, made)
            os.close(fd)
            fd = inner
        yield fd, parts[-1]
    finally:
        os.close(fd)


def _open_at_once(path: str) -> int | None:
    """A folder, opened in one step, if the system then says that it is this one and no link has led to another.

    None when it is not, or nobody can say: then it is looked for step by step.
    """
    try:
        fd = os.open(path, _FOLDER)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        if os.readlink(f"/proc/self/fd/{fd}") == path:
            return fd
    os.close(fd)
    return None


def _open_folder(fd: int, name: str, at: str, made: list[str] | None) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=fd)
    except FileNotFoundError:
        if made is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", at) from None
        with contextlib.suppress(FileExistsError):  # someone else made it just now
            os.mkdir(name, dir_fd=fd)
            made.append(at)
        return _open_folder(fd, name, at, None)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            is_link = stat.S_ISLNK(os.lstat(name, dir_fd=fd).st_mode)
            what = "has become a symbolic link, and nothing is done through it" if is_link else "is no folder"
            raise PathError(f"{at}: {what}") from None
        raise


def open_folder(path: str) -> int:
    """A folder, opened to be listed. No link is followed."""
    with folder_of(path) as (folder, name):
        try:
            return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise PathError(f"{path}: is no folder") from None
            raise


def open_file(path: str) -> int:
    """An ordinary file, opened for reading. No link is followed, and nothing waits for the other end of a pipe."""
    with folder_of(path) as (folder, name):
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise PathError(f"{path}: has become a symbolic link, and nothing is read through it") from None
            if error.errno == errno.ENXIO:  # a socket, or a device without anything behind it
                raise PathError(f"{path}: is no ordinary file") from None
            raise
    try:
        check_ordinary(os.fstat(fd), path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_ordinary(about: os.stat_result, path: str) -> None:
    """Raise unless this is a file with content: pipes and devices can hang, or give without end."""
    if not stat.S_ISREG(about.st_mode):
        kind = _KINDS.get(stat.S_IFMT(about.st_mode), "something else")
        raise PathError(f"{path}: is {kind}, no ordinary file")


def read_file(path: str, limit: int | None = None) -> FileContent:
    """A whole file, or its beginning."""
    with os.fdopen(open_file(path), "rb") as file:
        about = os.fstat(file.fileno())
        return FileContent(file.read() if limit is None else file.read(limit), about)


def find_file(path: str, limit: int | None = None) -> FileContent | None:
    """A whole file, or None when there is none."""
    try:
        return read_file(path, limit)
    except FileNotFoundError:
        return None


# Changing


def write_file(path: str, data: bytes, permissions: int | None = None) -> list[str]:
    """Put a whole file at a resolved path, at once: nobody sees half of it. The folders that were made for it.

    Without `permissions` it has those of the file it replaces, or of a new file. What is replaced must be a file.
    """
    made: list[str] = []
    with folder_of(path, made=made) as (folder, name):
        old = _lstat(folder, name)
        if old is not None:
            check_ordinary(old, path)
        temporary = f".{os.urandom(8).hex()}.tmp"
        fd = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder
        )
        try:
            write_all(fd, data, SYSTEM)
            if old is not None and (old.st_uid, old.st_gid) != (os.fstat(fd).st_uid, os.fstat(fd).st_gid):
                with contextlib.suppress(PermissionError):  # as it is when any editor saves a file of someone else
                    os.fchown(fd, old.st_uid, old.st_gid)
            wanted = permissions if permissions is not None else None if old is None else old.st_mode & 0o7777
            if wanted is not None:
                os.fchmod(fd, wanted)
            os.fsync(fd)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(fd)
    return made


def write_link(path: str, target: str) -> list[str]:
    """Put a symbolic link at a path, at once. The folders that were made for it."""
    made: list[str] = []
    with folder_of(path, made=made) as (folder, name):
        temporary = f".{os.urandom(8).hex()}.tmp"
        os.symlink(target, temporary, dir_fd=folder)
        try:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
    return made


def change_permissions(path: str, permissions: int) -> None:
    """Set the permissions of a file, and of nothing that a link in its place leads to."""
    fd = open_file(path)
    try:
        os.fchmod(fd, permissions)
    finally:
        os.close(fd)


def remove_file(path: str) -> None:
    """Take a file or a link away."""
    with folder_of(path) as (folder, name):
        os.unlink(name, dir_fd=folder)


def remove_empty_folder(path: str) -> bool:
    """Take a folder away, if nothing is in it."""
    try:
        with folder_of(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)
    except (OSError, PathError):
        return False
    return True


def look_at(path: str) -> tuple[os.stat_result, bytes] | None:
    """What stands at a path, itself and not what it leads to, with its content; of a link, where it leads.

    None when nothing is there; a folder, a pipe or a device has no content.
    """
    try:
        with folder_of(path) as (folder, name):
            about = _lstat(folder, name)
            if about is None:
                return None
            if stat.S_ISLNK(about.st_mode):
                return about, os.fsencode(os.readlink(name, dir_fd=folder))
            if not stat.S_ISREG(about.st_mode):
                return about, b""
    except (FileNotFoundError, PathError):
        return None
    found = read_file(path)
    return found.about, found.data


def _lstat(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def umask() -> int:
    """The permissions that new files do not get."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            return next(int(line.split()[1], 8) for line in file if line.startswith("Umask:"))
    except (OSError, StopIteration):
        mask = os.umask(0o077)  # elsewhere it can only be asked for by setting it
        os.umask(mask)
        return mask
