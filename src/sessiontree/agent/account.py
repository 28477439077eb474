"""What one run uses, and how its requests pass the gate: room is reserved before each, and what it used counts after.

Every attempt of every request of a run goes through `turn` or `aside`, which are doors for `with_retries`. One that a
gate has reserved room for is held to it: its answer may be no longer than was expected. And it counts even if nobody
tells what it used, as when it is dropped on its way or the provider does not say: then it counts as what was sent and
what is known to have come. Only what was refused before anything came counts as nothing.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from sessiontree.agent.hand import in_thread
from sessiontree.agent.spending import Limits, Spent
from sessiontree.compacting.estimate import MEASURED, measured_tokens
from sessiontree.errors import ModelError
from sessiontree.messages import Assistant, Usage, message_text
from sessiontree.models import Facts, Model, Request, cost_of
from sessiontree.models.library import LONGEST_ANSWER
from sessiontree.models.retrying import Passage

_LEAST_ANSWER = 1_024
"""Tokens that an answer may have whatever is left of the window: the estimate of what is in it may be too high."""
_COUNTED = ("turns", "input", "output", "cached", "cache_written", "cost")
_PRECISION = 12
"""Digits behind the point of a dollar that are kept when something is taken off: sums of fractions are not exact."""


class LimitReached(Exception):  # noqa: N818 - nothing went wrong
    """A request is not made, because no more may be used."""


async def _nothing() -> int:
    return 0


class Account:
    """The account of one run. `size` tells how many tokens a turn asked for now sends."""

    def __init__(self, limits: Limits, size: Callable[[], Awaitable[int]] = _nothing) -> None:
        self._limits, self._size = limits, size
        self._began = 0.0
        self._used = Spent()
        self.untold = Spent()
        """What is among `spent` and stands nowhere in the session."""

    def begin(self) -> None:
        """The clock starts."""
        self._began = time.monotonic()

    def close(self) -> None:
        """The clock stops."""
        self._used, self._began = self.spent, 0.0

    @property
    def spent(self) -> Spent:
        if not self._began:
            return self._used
        return msgspec.structs.replace(self._used, seconds=time.monotonic() - self._began)

    def charge(self, spent: Spent) -> None:
        """Count what others have used for the run."""
        self._used = self._used.and_of(spent)

    def told(self, usage: Usage | None, *, turns: int = 0) -> None:
        """An entry of the session tells what a request used; so many turns are in it."""
        self._used = self._used.plus(None, turns=turns)
        left = self.untold.since(Spent().plus(usage))
        self.untold = Spent(*(max(round(getattr(left, name), _PRECISION), 0) for name in _COUNTED))

    def check(self) -> None:
        """`LimitReached` when a limit of the run itself is, so that no turn is asked for."""
        _raise(self._limits.reached(self.spent))

    # Doors

    @contextlib.asynccontextmanager
    async def turn(self, model: Model, request: Request) -> AsyncIterator[Passage]:
        """A door for the turns of the run. What comes of them is seen while it comes."""
        self.check()
        async with self._passing(model, request, self._size) as passage:
            yield passage

    @contextlib.asynccontextmanager
    async def aside(self, model: Model, request: Request) -> AsyncIterator[Passage]:
        """A door for what else is asked for the sake of the run. If it is dropped, it counts as all it might use."""

        def measured() -> int:
            return measured_tokens("".join([request.system or "", *map(message_text, request.messages)]))

        async def size() -> int:
            return await in_thread(measured)

        _raise(self._limits.used_up(self.spent))
        async with self._passing(model, request, size, is_aside=True) as passage:
            yield passage

    @contextlib.asynccontextmanager
    async def alone(self, facts: Facts) -> AsyncIterator[Callable[[Usage | None], None]]:
        """A door for a request of which nothing is known before: it goes when no other is under way.

        It is told what was used; None, or nothing at all, counts as what a turn asked for now would send.
        """
        _raise(self._limits.used_up(self.spent))
        used: Usage | None = None

        async def expected() -> Spent:
            nonlocal used
            used = _priced(Usage(await self._size()), facts)
            return Spent(input=math.inf, cost=math.inf)

        if self._is_counting:
            await expected()

        def say(usage: Usage | None) -> None:
            nonlocal used
            used = usage or used

        async with self._entered(expected):
            try:
                yield say
            finally:
                self._count(used)

    @contextlib.asynccontextmanager
    async def _passing(
        self, model: Model, request: Request, size: Callable[[], Awaitable[int]], *, is_aside: bool = False
    ) -> AsyncIterator[Passage]:
        reserved: Usage | None = None

        async def expected() -> Spent:
            nonlocal reserved
            reserved = _most(model.facts, await size(), request.max_tokens)
            return Spent().plus(reserved, turns=1)

        if self._is_counting or is_aside:  # else only if the gate wants to know: to measure a conversation takes time
            await expected()
        async with self._entered(expected):
            held = request if reserved is None else msgspec.structs.replace(request, max_tokens=int(reserved.output))
            passage = Passage(model, held)
            try:
                yield passage
            except ModelError as error:
                came = error.partial if isinstance(error.partial, Assistant) else passage.came.message()
                if came is not None and came.content:
                    self._count(_used(came, reserved, model.facts))
                raise
            except BaseException:  # dropped on its way
                if passage.was_made:
                    came = passage.came.message() or Assistant()
                    self._count(reserved if is_aside else _used(came, reserved, model.facts))
                raise
            else:
                came = passage.came.message() or Assistant()
                if came.content or came.usage is not None or came.stop_reason != "error":
                    self._count(_used(came, reserved, model.facts, is_whole=True))

    @property
    def _is_counting(self) -> bool:
        """Whether it matters what requests use, and not only to a gate."""
        return self._limits.tokens is not None or self._limits.cost is not None

    @contextlib.asynccontextmanager
    async def _entered(self, expected: Callable[[], Awaitable[Spent]]) -> AsyncIterator[None]:
        """Room for one request; `LimitReached` when the gate has none."""
        gate = self._limits.gate
        if gate is None:
            yield
            return
        _raise(await gate.enter(expected))
        try:
            yield
        finally:
            gate.leave(self.spent)

    def _count(self, usage: Usage | None) -> None:
        self._used, self.untold = self._used.plus(usage), self.untold.plus(usage)


def _raise(why: str | None) -> None:
    if why is not None:
        raise LimitReached(why)


def _most(facts: Facts, size: int, longest: int | None) -> Usage:
    """What a request of some size will use at most: nothing comes from a cache, all of it may go
    into one, and the answer is as long as it may be.

    It is an estimate for what was said since the provider last counted.
    """
    room = min(facts.output, LONGEST_ANSWER, max(facts.window - size, _LEAST_ANSWER))
    answer = room if longest is None else min(room, longest)
    fresh, cached = _priced(Usage(size, answer), facts), cost_of(Usage(0, answer, 0, size), facts.prices)
    dearer = cached is not None and fresh.cost is not None and cached.total > fresh.cost.total
    return msgspec.structs.replace(fresh, cost=cached) if dearer else fresh


def _used(came: Assistant, reserved: Usage | None, facts: Facts, *, is_whole: bool = False) -> Usage | None:
    """What a request has used, of which so much came. What the provider tells counts, as far as it is all told."""
    told = came.usage
    if reserved is None or (told is not None and is_whole):
        return told
    known = _priced(Usage(reserved.input), facts) if told is None else told
    size = MEASURED(came)
    return known if size <= known.output else _priced(msgspec.structs.replace(known, output=size), facts)


def _priced(usage: Usage, facts: Facts) -> Usage:
    return msgspec.structs.replace(usage, cost=cost_of(usage, facts.prices))
