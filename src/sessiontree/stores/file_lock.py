"""Exclusive advisory file locks, shared by stores, caches, indexes and the archive."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

# flock, not lockf (POSIX record locks): a record lock belongs to the process, so two threads do not exclude each other,
# and closing *any* descriptor of the file drops it. A flock belongs to the open file, and the kernel releases it when
# its holder dies, so there are no stale locks to clean up.
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock

from sessiontree.errors import StoreError
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

LOCK_SECONDS = 30.0
"""Default timeout. Writers hold a lock for microseconds, so waiting this long means a stopped process."""

_LONGEST_PAUSE = 0.005


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
        yield lock_descriptor(fd, path, blocking=blocking, timeout=timeout)
    finally:
        release_descriptor(fd)


def lock_descriptor(fd: int, location: str, *, blocking: bool = True, timeout: float | None = LOCK_SECONDS) -> bool:
    """Lock an open file. False if it is locked and `blocking` is off; `StoreError` when `timeout` seconds pass.

    Pass `timeout=None` where the holder may legitimately take minutes, such as a process that builds an index.
    """
    if blocking and timeout is None:
        flock(fd, LOCK_EX)
        return True
    # flock has no timeout of its own, so poll: a few short pauses first, because locks are usually held very briefly.
    deadline = time.monotonic() + (timeout or 0.0)
    pause = 0.0001
    while True:
        try:
            flock(fd, LOCK_EX | LOCK_NB)
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


def release_descriptor(fd: int) -> None:
    """Unlock and close a descriptor; never raises, so that a release cannot hide an earlier error."""
    # Unlock first: a child process that was forked meanwhile has a copy of the descriptor, and closing only ours
    # would leave the lock with that copy.
    with contextlib.suppress(OSError):
        flock(fd, LOCK_UN)
    with contextlib.suppress(OSError):
        os.close(fd)
