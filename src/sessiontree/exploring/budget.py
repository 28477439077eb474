"""What all lanes of an exploration may use together: a gate that requests pass, not a meter that is read afterwards.

Each request reserves what it may use at most. It goes when all that is spent and reserved leaves room for it, or when
no other is under way and nothing is reached yet; else it waits, the first to come before the next. So the lanes
together pass a limit by no more than one request. That rests on requests using no more than was expected of them: until
the first one has told, each is taken for twice as much, and when one used more, the next are by as much.
"""

from __future__ import annotations

import asyncio
import math
import time

import msgspec

from sessiontree.agent.spending import Spent, reached_text
from sessiontree.exploring.records import Bounds

_UNKNOWN = 2.0
"""How much of what is expected is reserved while it is not known how good expectations are."""


class Budget:
    """The tokens, the money and the time of one exploration. All in one event loop."""

    def __init__(self, bounds: Bounds, seconds_before: float = 0.0) -> None:
        self._bounds = bounds
        self._began = time.monotonic() - seconds_before
        self._spent: dict[int, Spent] = {}
        self._reserved: dict[int, list[Spent]] = {}
        """By lane; one whose sub-agents work has several requests under way."""
        self._factor: float | None = None
        """By how much a request has used more than was expected, at worst; None before one has told."""
        self._turnstile = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def spent(self) -> Spent:
        """All lanes together; the time is that of the clock."""
        total = Spent()
        for one in self._spent.values():
            total = total.and_of(one)
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

    async def enter(self, lane: int, expected: Spent) -> str | None:
        """Wait until a request of a lane may be made; why not, if it may not."""
        async with self._turnstile:
            while True:
                why = self.reached()
                if why is not None:
                    return why
                if not self._reserved or self._has_room(expected):
                    self._reserved.setdefault(lane, []).append(expected)
                    return None
                self._changed.clear()
                await self._changed.wait()

    def leave(self, lane: int, spent: Spent) -> None:
        """A request of a lane is over; `spent` is what the lane has used so far in all."""
        is_only_one = len(self._reserved.get(lane, ())) == 1
        expected, before = self._released(lane), self._spent.get(lane, Spent())
        self.count(lane, spent)
        if expected is not None and is_only_one:
            used = (spent.tokens - before.tokens, expected.tokens), (spent.cost - before.cost, expected.cost)
            times = [one / most for one, most in used if one > 0 and 0 < most < math.inf]
            self._factor = max([*times, self._factor or 1.0]) if times else self._factor
        self._changed.set()

    def _released(self, lane: int) -> Spent | None:
        """Take back what was reserved for a request of a lane; of several the least, so that enough stays reserved."""
        waiting = self._reserved.pop(lane, [])
        if not waiting:
            return None
        least = min(waiting, key=lambda one: one.tokens)
        waiting.remove(least)
        if waiting:
            self._reserved[lane] = waiting
        return least

    def count(self, lane: int, spent: Spent) -> None:
        """A lane has used so much in all, in this run and in those before."""
        self._spent[lane] = spent
        self._changed.set()

    def _has_room(self, expected: Spent) -> bool:
        under_way = [expected, *(one for reserved in self._reserved.values() for one in reserved)]
        factor = self._factor or _UNKNOWN
        tokens = self._tokens + factor * sum(one.tokens for one in under_way)
        cost = self._cost + factor * sum(one.cost for one in under_way)
        bounds = self._bounds
        return (bounds.tokens is None or tokens <= bounds.tokens) and (bounds.cost is None or cost <= bounds.cost)
