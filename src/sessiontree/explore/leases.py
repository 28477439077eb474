"""Which process runs a lane, and whether it is still alive.

A lease is an entry of its lane. It is valid if its parent is the last entry written under the lease before it. If two
processes take the same lane at once, the one whose line comes first in the file wins: both conclude that from the file
alone, without a lock. The loser's entry becomes a dead branch.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING

from sessiontree.agent.async_bridge import in_thread, uncancelled
from sessiontree.core.ids import unix_seconds
from sessiontree.errors import SessionTreeError
from sessiontree.explore.records import Heartbeat, Lease, write
from sessiontree.session.session import Branch

if TYPE_CHECKING:
    from sessiontree.explore.exploration import Exploration
    from sessiontree.explore.lane import Lane

LEASE_SECONDS = 120.0
"""Matters only for processes on other machines: one that died on this machine is detected immediately."""
_TIME_LOSS = 0.02
"""Share of a time limit that may be lost when a process dies. It sets the interval of the plan's heartbeats."""

_held: set[str] = set()
"""Tokens of the leases that this process works under."""


def new_lease(seconds: float = LEASE_SECONDS) -> Lease:
    """A lease of this process."""
    lease = Lease(os.urandom(8).hex(), _host(), os.getpid(), _start_time(os.getpid()), seconds)
    _held.add(lease.token)
    return lease


def release(lease: Lease) -> Lease:
    """Give up a lease; returns the record to append."""
    forget(lease)
    return Lease(lease.token, lease.host, lease.pid, lease.started, 0)


def forget(lease: Lease) -> None:
    """Give up a lease without a record: the file already shows that the work ended."""
    _held.discard(lease.token)


def is_free(lease: Lease | None, last_write: str) -> bool:
    """Whether a lane with this lease may be taken over; `last_write` is the timestamp of its last entry."""
    if lease is None or lease.seconds <= 0:
        return True
    if lease.host == _host():
        if lease.pid == os.getpid() and lease.started == _start_time(lease.pid):
            return lease.token not in _held
        if _start_time(lease.pid) != lease.started:  # it has ended, or another process has its pid now
            return True
    return time.time() - unix_seconds(last_write) > lease.seconds


def _host() -> str:
    # A pid means something only within its pid namespace: each container counts its own.
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _start_time(pid: int) -> str:
    """Start time of a process in a system-specific form; empty if it does not run."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # After the name, which is in parentheses and may itself contain spaces and parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return "" if os.path.exists("/proc/self/stat") else _start_time_without_proc(pid)
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def _start_time_without_proc(pid: int) -> str:
    # Systems without /proc: all we can learn is whether the pid is in use.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "there"


class LeaseKeeper:
    """The leases that one process holds on an exploration and its lanes, kept alive by heartbeats."""

    def __init__(self, exploration: Exploration) -> None:
        self._exploration = exploration
        self._seconds = exploration.options.lease_seconds
        self.plan_lease: Lease | None = None
        """The lease to create lanes and to enforce the limits: one process at a time has it."""
        self.last_write = time.time()
        """Time of the plan's last heartbeat, by the wall clock: a suspended machine counts as silent."""

    async def holds_lane(self, lane: Lane) -> bool:
        """Whether this process may still work on a lane.

        With limits, it must also hold the plan, because a single process enforces them.
        """
        exploration = self._exploration
        is_limited = exploration.budget.is_limited
        # After a long silence, as when the machine was suspended, others may have taken over: write and read first.
        if is_limited and self.plan_lease is not None and self._silence > self._seconds / 2:
            await uncancelled(in_thread(self._beat_plan, self.plan_lease))
        if lane.lease is not None and lane.silence > self._seconds / 2:
            await lane.write(Heartbeat(lane.lease.token))
        if exploration.log.has_changes:
            await in_thread(exploration.log.refresh)
        return self.owns(lane) and (not is_limited or self._is_held(exploration.plan_id, self.plan_lease))

    async def holds_plan(self) -> bool:
        """Whether this process is still the one that creates lanes."""
        if self.plan_lease is not None and self._silence > self._seconds / 2:
            await uncancelled(in_thread(self._beat_plan, self.plan_lease))
        await in_thread(self._exploration.log.refresh)
        return self._is_held(self._exploration.plan_id, self.plan_lease)

    def owns(self, lane: Lane) -> bool:
        """Whether a lane's lease belongs to this process, as far as the file was read."""
        return self._is_held(lane.start, lane.lease)

    def _is_held(self, start: str, lease: Lease | None) -> bool:
        tracked = self._exploration.log.tracked.get(start)
        current = tracked.lease if tracked is not None else None
        return current is not None and lease is not None and current.token == lease.token

    def release_plan(self) -> None:
        """Record that this process creates no more lanes. Blocking."""
        if self.plan_lease is None:
            return
        log = self._exploration.log
        log.refresh()
        tracked = log.tracked.get(self._exploration.plan_id)
        released = release(self.plan_lease)
        if tracked is not None and tracked.lease == self.plan_lease:
            write(Branch(self._exploration.session, tracked.leaf), released)

    @property
    def _silence(self) -> float:
        return time.time() - self.last_write

    @property
    def _interval(self) -> float:
        """Seconds between two heartbeats on the plan. The last one dates the end of the work, so limits shorten it."""
        limit, usual = self._exploration.plan.bounds.seconds, self._seconds / 3
        return usual if limit is None else min(usual, max(limit * _TIME_LOSS, 0.25))

    async def run_heartbeat(self) -> None:
        """Write heartbeats on the plan and on silent lanes until cancelled."""
        while True:
            await asyncio.sleep(min(self._seconds / 6, self._interval / 2))
            if self.plan_lease is not None and self._silence > self._interval:
                with contextlib.suppress(SessionTreeError):
                    await uncancelled(in_thread(self._beat_plan, self.plan_lease))
            for lane in list(self._exploration.lanes):
                # A lane that waits for a slot may also be silent for long.
                is_active = lane.state in ("running", "waiting")
                if is_active and lane.lease is not None and lane.silence > self._seconds / 3:
                    # An error of the store surfaces when the lane itself writes next.
                    with contextlib.suppress(SessionTreeError):
                        await lane.write(Heartbeat(lane.lease.token))

    def _beat_plan(self, lease: Lease) -> None:
        log = self._exploration.log
        log.refresh()
        tracked = log.tracked[self._exploration.plan_id]
        if tracked.lease == lease:  # otherwise the beat would land on the branch of the process that took over
            write(Branch(self._exploration.session, tracked.leaf), Heartbeat(lease.token))
            self.last_write = time.time()
