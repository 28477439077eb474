"""Exclusive advisory file locks, shared by stores, caches, indexes and the archive.

Some network and user-space file systems have no locks. There, the lock is taken on a file in the temporary folder that
is named after the device and inode of the original: it excludes the same writers, as long as they are on one machine.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator

# flock, not lockf (POSIX record locks): a record lock belongs to the process, so two threads do not exclude each other,
# and closing *any* descriptor of the file drops it. A flock belongs to the open file, and the kernel releases it when
# its holder dies, so there are no stale locks to clean up.
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN

from sessiontree.errors import StoreError
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

LOCK_SECONDS = 30.0
"""Default timeout. Writers hold a lock for microseconds, so waiting this long means a stopped process."""

_LONGEST_PAUSE = 0.005
_UNSUPPORTED = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK})
_substitutes: dict[int, int] = {}
"""Locked descriptor -> that of the lock file in the temporary folder, if its own file system has no locks."""


@contextlib.contextmanager
def file_lock(
    path: str, *, blocking: bool = True, timeout: float | None = LOCK_SECONDS, os_calls: OsCalls = OS_CALLS
) -> Iterator[bool]:
    """Hold an exclusive lock on a file, which is created with mode 0600 if it is missing.

    The value is False only with `blocking=False`, when another holder has the lock.
    """
    # O_NOFOLLOW: a link planted under the name of a lock file must not make us create a file elsewhere.
    fd = os_calls.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        yield lock_descriptor(fd, path, blocking=blocking, timeout=timeout, os_calls=os_calls)
    finally:
        release_descriptor(fd, os_calls)


def lock_descriptor(
    fd: int,
    location: str,
    *,
    blocking: bool = True,
    timeout: float | None = LOCK_SECONDS,
    os_calls: OsCalls = OS_CALLS,
) -> bool:
    """Lock an open file. False if it is locked and `blocking` is off; `StoreError` when `timeout` seconds pass.

    Pass `timeout=None` where the holder may legitimately take minutes, such as a process that builds an index.
    """
    try:
        return _take(fd, location, os_calls, blocking=blocking, timeout=timeout)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    substitute = _open_substitute(fd, location)
    is_taken = False
    try:
        is_taken = _take(substitute, location, os_calls, blocking=blocking, timeout=timeout)
    except OSError as error:
        raise StoreError(
            f"{location}: its file system has no locks ({error.strerror}); nothing was changed. Use another folder."
        ) from None
    finally:
        if is_taken:
            _substitutes[fd] = substitute
        else:
            os.close(substitute)
    return is_taken


def has_record_locks(folder: str) -> bool:
    """Whether a folder's file system has POSIX record locks, as SQLite uses them; True if that cannot be tested."""
    import tempfile

    # A file of its own: closing any descriptor of a file drops all record locks that the process has on it.
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            fcntl.lockf(probe, LOCK_EX | LOCK_NB)
    except OSError as error:
        return error.errno not in _UNSUPPORTED
    return True


def _take(fd: int, location: str, os_calls: OsCalls, *, blocking: bool, timeout: float | None) -> bool:
    if blocking and timeout is None:
        os_calls.flock(fd, LOCK_EX)
        return True
    # flock has no timeout, so poll: a few short pauses first, because locks are usually held very briefly.
    deadline = time.monotonic() + (timeout or 0.0)
    pause = 0.0001
    while True:
        try:
            os_calls.flock(fd, LOCK_EX | LOCK_NB)
            return True
        except BlockingIOError:
            if not blocking:
                return False
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{location}: locked by another process for {timeout:.0f} s; nothing was changed"
                ) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _open_substitute(fd: int, location: str) -> int:
    """Open the lock file in the temporary folder that substitutes for a file."""
    import tempfile  # slow to import, and nearly every file system has locks

    folder = os.path.join(tempfile.gettempdir(), f"sessiontree-locks-{os.getuid()}")
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "belongs to another user", folder)
        file = os.fstat(fd)
        path = os.path.join(folder, f"{file.st_dev:x}-{file.st_ino:x}")
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"{location}: its file system has no locks, and {folder} cannot be used instead: {error.strerror}; "
            "nothing was changed"
        ) from None


def unlock_descriptor(fd: int, flock: Callable[[int, int], None]) -> None:
    """Unlock a descriptor without closing it; never raises."""
    if _substitutes:
        substitute = _substitutes.pop(fd, None)
        if substitute is not None:
            os.close(substitute)
    try:  # noqa: SIM105 - contextlib.suppress is slower
        flock(fd, LOCK_UN)
    except OSError:
        pass


def release_descriptor(fd: int, os_calls: OsCalls = OS_CALLS) -> None:
    """Unlock and close a descriptor; never raises, so that a release cannot hide an earlier error."""
    # Unlock first: a child process forked in the meantime has a copy of the descriptor, and closing only ours
    # would leave the lock with that copy.
    unlock_descriptor(fd, os_calls.flock)
    with contextlib.suppress(OSError):
        os.close(fd)
