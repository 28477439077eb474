"""The shared budget of an exploration: a gate that requests pass, not a meter that is read afterwards.

Each request reserves the most it may use. It passes when everything spent and reserved leaves room for it, or when no
other request is in flight and no limit is reached; otherwise it waits, first come, first served. So all lanes together
exceed a limit by one request at most. That relies on requests staying within their reservation: after one that did not,
later reservations are scaled up by the same factor.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from sessiontree.agent.limits import RunUsage, Ticket, reached_text
from sessiontree.explore.records import Bounds


class Reservation(Ticket):
    """The most a request in flight may use."""

    def __init__(self, most: RunUsage, *, is_alone: bool = False) -> None:
        self.most, self.is_alone = most, is_alone


class Budget:
    """Tokens, cost and time of one exploration. For one event loop."""

    def __init__(self, bounds: Bounds, seconds_before: float = 0.0) -> None:
        self._bounds = bounds
        self._began = time.monotonic() - seconds_before
        self._spent: dict[int, RunUsage] = {}
        self._in_flight: list[Reservation] = []
        self._factor = 1.0
        """The largest factor by which a request exceeded its reservation."""
        self._turnstile = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def spent(self) -> RunUsage:
        """All lanes together, with the elapsed time."""
        total = RunUsage()
        for usage in self._spent.values():
            total = total.combine(usage)
        return msgspec.structs.replace(total, seconds=self.seconds)

    @property
    def _tokens(self) -> float:
        return sum(usage.tokens for usage in self._spent.values())

    @property
    def _cost(self) -> float:
        return sum(usage.cost for usage in self._spent.values())

    @property
    def is_counting(self) -> bool:
        """Whether requests have to be estimated."""
        return self._bounds.tokens is not None or self._bounds.cost is not None

    @property
    def is_limited(self) -> bool:
        return self.is_counting or self._bounds.seconds is not None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def seconds_left(self) -> float | None:
        return None if self._bounds.seconds is None else max(self._bounds.seconds - self.seconds, 0.0)

    def reached(self) -> str | None:
        """A message about the limit that is reached, if any."""
        bounds = self._bounds
        if bounds.tokens is not None and self._tokens >= bounds.tokens:
            return reached_text(f"{bounds.tokens:,.0f} tokens for all lanes")
        if bounds.cost is not None and self._cost >= bounds.cost:
            return reached_text(f"${bounds.cost:.2f} for all lanes")
        if bounds.seconds is not None and self.seconds >= bounds.seconds:
            return reached_text(f"{bounds.seconds:g} seconds for all lanes")
        return None

    async def enter(self, most: RunUsage, *, is_alone: bool = False) -> Reservation | str:
        """Wait until a request may be made that uses at most this much; returns the reason if it may not."""
        # The lock is held while waiting: requests pass in order, and small ones do not overtake a large one forever.
        async with self._turnstile:
            while True:
                why = self.reached()
                if why is not None:
                    return why
                if not self._in_flight or (not is_alone and self._fits(most)):
                    reserved = Reservation(most, is_alone=is_alone)
                    self._in_flight.append(reserved)
                    return reserved
                self._changed.clear()
                await self._changed.wait()

    def leave(self, reserved: Ticket, lane: int, spent: RunUsage, used: RunUsage) -> None:
        """End a request that used `used`; `spent` is the new total of its lane."""
        self.count(lane, spent)
        if isinstance(reserved, Reservation):
            self._in_flight.remove(reserved)
            if not reserved.is_alone:
                both = (used.tokens, reserved.most.tokens), (used.cost, reserved.most.cost)
                self._factor = max([self._factor, *(actual / most for actual, most in both if most > 0)])

    def count(self, lane: int, spent: RunUsage) -> None:
        """Set the total usage of a lane, including earlier runs."""
        self._spent[lane] = spent
        self._changed.set()

    def _fits(self, most: RunUsage) -> bool:
        if any(reserved.is_alone for reserved in self._in_flight):
            return False
        together = [most, *(reserved.most for reserved in self._in_flight)]
        tokens = self._tokens + self._factor * sum(usage.tokens for usage in together)
        cost = self._cost + self._factor * sum(usage.cost for usage in together)
        bounds = self._bounds
        return (bounds.tokens is None or tokens <= bounds.tokens) and (bounds.cost is None or cost <= bounds.cost)
