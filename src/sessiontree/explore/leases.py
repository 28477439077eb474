"""Who works on a lane, and whether they still do.

A lease is an entry of its lane. It counts when it hangs behind the last entry that was written under the lease before
it: of two that want the same lane at the same time the one whose line comes first has it, and both see that alike,
without any lock. What the loser wrote stays a twig that nobody goes on with.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import datetime

from sessiontree.explore.records import Lease

GOOD_FOR = 120.0
"""Seconds. A process that died on this machine is known to have at once; this is for all others."""

_held: set[str] = set()
"""The leases that this process works under."""


def take(good_for: float = GOOD_FOR) -> Lease:
    """A new lease of this process."""
    lease = Lease(os.urandom(8).hex(), _host(), os.getpid(), _started(os.getpid()), good_for)
    _held.add(lease.token)
    return lease


def release(lease: Lease) -> Lease:
    """What says that nobody works under a lease any more, to be written behind it."""
    _held.discard(lease.token)
    return Lease(lease.token, lease.host, lease.pid, lease.started, 0)


def forget(lease: Lease) -> None:
    """This process works no longer under a lease; the file says so already."""
    _held.discard(lease.token)


def is_free(lease: Lease | None, last_sign: str) -> bool:
    """Whether a lane under this lease may be taken over; `last_sign` is the time of its last entry."""
    if lease is None or lease.good_for <= 0:
        return True
    if lease.host == _host():
        if lease.pid == os.getpid() and lease.started == _started(lease.pid):
            return lease.token not in _held
        if _started(lease.pid) != lease.started:
            return True
    return time.time() - seconds_of(last_sign) > lease.good_for


def seconds_of(timestamp: str) -> float:
    """A time of an entry in seconds since 1970; of what is no time, 0."""
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _host() -> str:
    """This machine, as far as numbers of processes mean the same on it: each container counts on its own."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """When a process began, in whatever way the system tells it; empty when there is none that runs."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return "" if os.path.exists("/proc/self/stat") else _started_elsewhere(pid)
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def _started_elsewhere(pid: int) -> str:
    """Where the system has no such files: only whether there is a process with this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "there"
