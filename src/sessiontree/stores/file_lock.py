"""Waiting for each other: an advisory lock on a file, which the death of its holder ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from sessiontree.errors import StoreError
from sessiontree.stores.file import LOCK_SECONDS
from sessiontree.stores.os_calls import SYSTEM, System


@contextlib.contextmanager
def locked_file(path: str, system: System = SYSTEM) -> Iterator[None]:
    """Hold the lock on a file that is made if need be."""
    fd = system.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        wait_for_lock(fd, path)
        yield
    finally:
        os.close(fd)


def wait_for_lock(fd: int, location: str) -> None:
    """Take the lock on an open file, after whoever has it."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{location}: another process has kept it locked for {LOCK_SECONDS:.0f} s; nothing was done"
                ) from None
            time.sleep(0.002)
