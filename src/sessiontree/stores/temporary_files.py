"""Temporary files next to the files they become, and the removal of those that a killed process has left.

A name is `.<name>.<12 hex digits>.tmp`. A process holds a lock on a temporary file while it writes it. So a leftover is
a file, of this user, that has not changed for an hour and is not locked. The age is that of the inode's last change
(ctime), which cannot be forged. The hour covers the gap between the end of writing and the rename, when the file is
complete but no longer locked.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from fcntl import LOCK_EX, LOCK_NB

from sessiontree.stores.os_calls import OS_CALLS, OsCalls

LEFTOVER_SECONDS = 3600.0
_LEFTOVER_NAME = r"(?s)\..+\.[0-9a-f]{12}\.tmp"
_OWN_LEFTOVER_NAME = r"\.sessiontree\.[0-9a-f]{12}\.tmp"
_swept: set[str] = set()
"""Folders that this process has already swept."""
_swept_open: set[tuple[int, int]] = set()
"""The same for folders that were swept through a descriptor, by device and inode."""


def temporary_path(path: str) -> str:
    """A new hidden name in the folder of a path."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{os.urandom(6).hex()}.tmp")


def mark_as_written(fd: int, os_calls: OsCalls = OS_CALLS) -> None:
    """Lock a temporary file while it is written. Without lock support, only its age protects it."""
    with contextlib.suppress(OSError):
        os_calls.flock(fd, LOCK_EX | LOCK_NB)


def sweep_once(folder: str, os_calls: OsCalls = OS_CALLS) -> None:
    """Remove the leftovers in a folder that this process writes to for the first time. Never raises."""
    if folder in _swept:
        return
    _swept.add(folder)
    for path in iter_leftovers(folder):
        with contextlib.suppress(OSError):
            remove_leftover(path, os_calls)


def new_temporary_name() -> str:
    """A new hidden name that does not depend on the name of the file to write, which may be as long as is possible."""
    return f".sessiontree.{os.urandom(6).hex()}.tmp"


def sweep_open_once(folder: int) -> None:
    """Like `sweep_once`, for an open folder of a project: only files with our own name, without following a link."""
    with contextlib.suppress(OSError):
        found = os.fstat(folder)
        if (found.st_dev, found.st_ino) in _swept_open:
            return
        _swept_open.add((found.st_dev, found.st_ino))
        for name in _names_in(folder):
            if re.fullmatch(_OWN_LEFTOVER_NAME, name):
                with contextlib.suppress(OSError):
                    if _is_leftover(name, folder):
                        os.unlink(name, dir_fd=folder)


def _names_in(folder: int) -> list[str]:
    """The names in a folder whose descriptor may be only a location (O_PATH)."""
    fd = os.open(os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def find_leftovers(folders: Iterable[str]) -> list[str]:
    """The leftovers in some folders and all folders below them; links are not followed."""
    found: dict[str, None] = {}
    for top in folders:
        for folder, inner, _ in os.walk(top, followlinks=False):
            inner[:] = [name for name in inner if not re.fullmatch(_LEFTOVER_NAME, name)]
            found.update(dict.fromkeys(iter_leftovers(folder)))
    return list(found)


def iter_leftovers(folder: str) -> Iterator[str]:
    """The leftovers in one folder. A copied folder can also be one."""
    try:
        names = [
            name for name in os.listdir(folder or ".") if name.endswith(".tmp") and re.fullmatch(_LEFTOVER_NAME, name)
        ]
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if _is_leftover(path):
                yield path


def remove_leftover(path: str, os_calls: OsCalls = OS_CALLS) -> None:
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os_calls.unlink(path)
        return
    import shutil  # slow to import, and rarely needed

    shutil.rmtree(path)


def _is_leftover(path: str, folder: int | None = None) -> bool:
    """Whether a path is a leftover; with `folder`, the name of a file in that open folder."""
    found = os.stat(path, dir_fd=folder, follow_symlinks=False)
    if found.st_uid != os.geteuid():
        return False
    if stat.S_ISDIR(found.st_mode) and folder is None:
        return _is_old(max((os.lstat(inner).st_ctime for inner in _everything_in(path)), default=found.st_ctime))
    return stat.S_ISREG(found.st_mode) and _is_old(found.st_ctime) and not _is_locked(path, folder)


def _everything_in(folder: str) -> Iterator[str]:
    yield folder
    for parent, folders, names in os.walk(folder, followlinks=False):
        yield from (os.path.join(parent, name) for name in (*folders, *names))


def _is_old(changed: float) -> bool:
    return time.time() - changed > LEFTOVER_SECONDS


def _is_locked(path: str, folder: int | None) -> bool:
    """Whether a process is writing the file; unknown counts as no, because the file is old."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        OS_CALLS.flock(fd, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)  # which also releases the lock
    return False
