"""What all lanes of an exploration may use together: a gate that requests pass, not a meter that is read afterwards.

Each request reserves what it may use at most. It goes when all that is spent and reserved leaves room for it, or when
no other is under way and nothing is reached yet; else it waits, the first to come before the next. So the lanes
together pass a limit by no more than one request. That rests on requests using no more than was expected of them: when
one did, the next are taken for as much more.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from sessiontree.agent.limits import RunUsage, Ticket, reached_text
from sessiontree.explore.records import Bounds


class Reservation(Ticket):
    """What may be used by a request that is under way."""

    def __init__(self, most: RunUsage, *, is_alone: bool = False) -> None:
        self.most, self.is_alone = most, is_alone


class Budget:
    """The tokens, the money and the time of one exploration. All in one event loop."""

    def __init__(self, bounds: Bounds, seconds_before: float = 0.0) -> None:
        self._bounds = bounds
        self._began = time.monotonic() - seconds_before
        self._spent: dict[int, RunUsage] = {}
        self._under_way: list[Reservation] = []
        self._factor = 1.0
        """By how much a request has used more than was expected, at worst."""
        self._turnstile = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def spent(self) -> RunUsage:
        """All lanes together; the time is that of the clock."""
        total = RunUsage()
        for one in self._spent.values():
            total = total.combine(one)
        return msgspec.structs.replace(total, seconds=self.seconds)

    @property
    def _tokens(self) -> float:
        return sum(one.tokens for one in self._spent.values())

    @property
    def _cost(self) -> float:
        return sum(one.cost for one in self._spent.values())

    @property
    def is_counting(self) -> bool:
        """Whether it matters what a request will use."""
        return self._bounds.tokens is not None or self._bounds.cost is not None

    @property
    def is_limited(self) -> bool:
        """Whether all lanes together may use only so much of anything."""
        return self.is_counting or self._bounds.seconds is not None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def seconds_left(self) -> float | None:
        return None if self._bounds.seconds is None else max(self._bounds.seconds - self.seconds, 0.0)

    def reached(self) -> str | None:
        """Which limit of the exploration is reached, in words; None when none is."""
        bounds = self._bounds
        if bounds.tokens is not None and self._tokens >= bounds.tokens:
            return reached_text(f"{bounds.tokens:,.0f} tokens for all lanes")
        if bounds.cost is not None and self._cost >= bounds.cost:
            return reached_text(f"${bounds.cost:.2f} for all lanes")
        if bounds.seconds is not None and self.seconds >= bounds.seconds:
            return reached_text(f"{bounds.seconds:g} seconds for all lanes")
        return None

    async def enter(self, most: RunUsage, *, is_alone: bool = False) -> Reservation | str:
        """Wait until a request may be made that uses no more than this; why not, if it may not."""
        async with self._turnstile:
            while True:
                why = self.reached()
                if why is not None:
                    return why
                if not self._under_way or (not is_alone and self._has_room(most)):
                    reserved = Reservation(most, is_alone=is_alone)
                    self._under_way.append(reserved)
                    return reserved
                self._changed.clear()
                await self._changed.wait()

    def leave(self, reserved: Ticket, lane: int, spent: RunUsage, used: RunUsage) -> None:
        """A request of a lane is over, and has used so much; `spent` is what the lane has used so far in all."""
        self.count(lane, spent)
        if isinstance(reserved, Reservation):
            self._under_way.remove(reserved)
            if not reserved.is_alone:
                both = (used.tokens, reserved.most.tokens), (used.cost, reserved.most.cost)
                self._factor = max([self._factor, *(one / most for one, most in both if most > 0)])

    def count(self, lane: int, spent: RunUsage) -> None:
        """A lane has used so much in all, in this run and in those before."""
        self._spent[lane] = spent
        self._changed.set()

    def _has_room(self, most: RunUsage) -> bool:
        if any(one.is_alone for one in self._under_way):
            return False
        together = [most, *(one.most for one in self._under_way)]
        tokens = self._tokens + self._factor * sum(one.tokens for one in together)
        cost = self._cost + self._factor * sum(one.cost for one in together)
        bounds = self._bounds
        return (bounds.tokens is None or tokens <= bounds.tokens) and (bounds.cost is None or cost <= bounds.cost)
