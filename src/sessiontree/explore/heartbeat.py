"""Whether this process may work on an exploration: what it holds, and the signs of life by which it keeps it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from sessiontree.agent.async_bridge import in_thread, uncancelled
from sessiontree.errors import SessionTreeError
from sessiontree.explore.lane import Lane
from sessiontree.explore.leases import release
from sessiontree.explore.records import Beat, Lease, write
from sessiontree.session.session import Branch

if TYPE_CHECKING:
    from sessiontree.explore.exploration import Exploration

_LOST_TIME = 0.02
"""The part of a limit of time by which the death of a process may be noted too early."""


class Holding:
    """The leases of one process on an exploration and its lanes."""

    def __init__(self, exploration: Exploration) -> None:
        self._exploration = exploration
        self._good_for = exploration.work.good_for
        self.maker: Lease | None = None
        """The lease under which this process makes lanes, and keeps the limits of all: only one does at a time."""
        self.last_sign = time.time()
        """When the plan last had a sign of life, by the clock that others know: a sleep of the machine counts."""

    async def still_holds(self, lane: Lane) -> bool:
        """Whether this process may still work on a lane, by what its last write has seen of the file.

        Where there are limits, it has to be the one process that keeps them. Others may take it for dead when it was
        silent for long, as after a sleep of the machine: then it looks first.
        """
        exploration = self._exploration
        is_limited = exploration.budget.is_limited
        if is_limited and self.maker is not None and self._silent_for > self._good_for / 2:
            await uncancelled(in_thread(self._beat_plan, self.maker))
        if lane.lease is not None and lane.silent_for > self._good_for / 2:
            await exploration.write(lane, Beat(lane.lease.token))
        if exploration.book.has_news:
            await in_thread(exploration.book.look)
        return self.has(lane) and (not is_limited or self._is_held(exploration.plan_id, self.maker))

    async def still_makes(self) -> bool:
        """Whether this process is the one that makes lanes; one that was silent for long gives a sign of life first."""
        if self.maker is not None and self._silent_for > self._good_for / 2:
            await uncancelled(in_thread(self._beat_plan, self.maker))
        await in_thread(self._exploration.book.look)
        return self._is_held(self._exploration.plan_id, self.maker)

    def has(self, lane: Lane) -> bool:
        """Whether the lease on a lane is that of this process, by what was read so far."""
        return self._is_held(lane.start, lane.lease)

    def _is_held(self, start: str, lease: Lease | None) -> bool:
        noted = self._exploration.book.noted.get(start)
        held = noted.lease if noted is not None else None
        return held is not None and lease is not None and held.token == lease.token

    def let_go(self) -> None:
        """Say that this process makes no more lanes. For a thread."""
        if self.maker is None:
            return
        book = self._exploration.book
        book.look()
        noted = book.noted.get(self._exploration.plan_id)
        gone = release(self.maker)
        if noted is not None and noted.lease == self.maker:
            write(Branch(self._exploration.session, noted.leaf), gone)

    # Signs of life

    @property
    def _silent_for(self) -> float:
        return time.time() - self.last_sign

    @property
    def _beats_every(self) -> float:
        """Seconds between two signs of life on the plan: how long it was worked on is told by the last one."""
        seconds, usual = self._exploration.plan.bounds.seconds, self._good_for / 3
        return usual if seconds is None else min(usual, max(seconds * _LOST_TIME, 0.25))

    async def beat(self) -> None:
        """Give a sign of life on the plan, and on each lane that has been silent for long; until it is cancelled."""
        exploration, good_for = self._exploration, self._good_for
        while True:
            await asyncio.sleep(min(good_for / 6, self._beats_every / 2))
            if self.maker is not None and self._silent_for > self._beats_every:
                with contextlib.suppress(SessionTreeError):
                    await uncancelled(in_thread(self._beat_plan, self.maker))
            for lane in list(exploration.lanes):
                is_under_way = lane.state in ("running", "waiting")  # for its place, too, a lane may wait for long
                if is_under_way and lane.lease is not None and lane.silent_for > good_for / 3:
                    with contextlib.suppress(SessionTreeError):  # the lane will hear of it when it has something to say
                        await exploration.write(lane, Beat(lane.lease.token))

    def _beat_plan(self, maker: Lease) -> None:
        book = self._exploration.book
        book.look()
        noted = book.noted[self._exploration.plan_id]
        if noted.lease == maker:
            write(Branch(self._exploration.session, noted.leaf), Beat(maker.token))
            self.last_sign = time.time()
