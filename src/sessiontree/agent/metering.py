"""What one run uses, and how its requests pass the gate: room is reserved before each, and what it used counts after.

Every attempt of every request of a run goes through `turn`, `aside` or `alone`. One that a gate has reserved room for
is held to it: its answer may be no longer than was expected, and is ended if a model does not keep to that. It counts
even if nobody tells what it used, as when it is dropped on its way or the provider does not say: then it counts as what
was sent and what is known to have come. Only what was refused before anything came counts as nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from msgspec import Struct

from sessiontree.agent.branch_writer import in_thread, uncancelled
from sessiontree.agent.limits import Asked, Expected, Limits, RunUsage, Ticket
from sessiontree.compaction import Summary
from sessiontree.compaction.token_estimate import MEASURED, Size, measured_tokens
from sessiontree.core.messages import Assistant, Usage, message_text
from sessiontree.core.usage import valid_count
from sessiontree.errors import ModelError, SessionTreeError, UnreachableError
from sessiontree.models import Facts, Model, Request
from sessiontree.models.facts import likely_cost
from sessiontree.models.pydantic_ai_model import LONGEST_ANSWER
from sessiontree.models.retry import Door, Passage

_LEAST_ANSWER = 1_024
"""Tokens that an answer may have whatever is left of the window: the estimate of what is in it may be too high."""
_MARGIN = 3
"""How much more an estimate of tokens may be in truth: encoded data has about so many more than words."""
_COUNTED = ("turns", "input", "output", "cached", "cache_written", "cost")
_PRECISION = 12
"""Digits behind the point of a dollar that are kept when something is taken off: sums of fractions are not exact."""


class LimitReached(Exception):  # noqa: N818 - nothing went wrong
    """A request is not made, because no more may be used."""


class Alone:
    """A request that someone else makes."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        """What it has used, when that is known."""
        self.work: asyncio.Future[Summary] | None = None
        """What goes on until it is over, also when nobody waits for it any more."""


class _Reserved(Struct, frozen=True):
    likely: Usage
    most: Usage

    @property
    def expected(self) -> Expected:
        return Expected(RunUsage().plus(self.likely, turns=1), RunUsage().plus(self.most, turns=1))


async def _nothing() -> Size:
    return Size(0, 0)


class Account:
    """The account of one run. `size` tells how many tokens a turn asked for now sends."""

    def __init__(self, limits: Limits, size: Callable[[], Awaitable[Size]] = _nothing) -> None:
        self._limits, self._size = limits, size
        self._began = 0.0
        self._used = RunUsage()
        self.untold = RunUsage()
        """What is among `spent` and stands nowhere in the session."""

    def begin(self) -> None:
        """The clock starts."""
        self._began = time.monotonic()

    def close(self) -> None:
        """The clock stops."""
        self._used, self._began = self.spent, 0.0

    @property
    def spent(self) -> RunUsage:
        if not self._began:
            return self._used
        return msgspec.structs.replace(self._used, seconds=time.monotonic() - self._began)

    def charge(self, spent: RunUsage) -> None:
        """Count what others have used for the run."""
        self._used = self._used.and_of(spent)

    def told(self, usage: Usage | None, *, turns: int = 0) -> None:
        """An entry of the session tells what a request used; so many turns are in it."""
        self._used = self._used.plus(None, turns=turns)
        left = self.untold.since(RunUsage().plus(usage))
        self.untold = RunUsage(*(max(round(getattr(left, name), _PRECISION), 0) for name in _COUNTED))

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

    def aside(self, what: str) -> Door:
        """A door for what else is asked for the sake of the run. If it is dropped, it counts as all it might use."""
        return functools.partial(self._aside, what)

    @contextlib.asynccontextmanager
    async def _aside(self, what: str, model: Model, request: Request) -> AsyncIterator[Passage]:
        def measured() -> int:
            return measured_tokens("".join([request.system or "", *map(message_text, request.messages)]))

        async def size() -> Size:
            return Size(0, await in_thread(measured))

        _raise(self._limits.used_up(self.spent))
        async with self._passing(model, request, size, what) as passage:
            yield passage

    @contextlib.asynccontextmanager
    async def alone(self, what: str, facts: Facts) -> AsyncIterator[Alone]:
        """For a request of which nothing is known before: it goes when no other is under way.

        If nobody says what it used, it counts as what a turn asked for now would send.
        """
        _raise(self._limits.used_up(self.spent))
        reserved: _Reserved | None = None

        async def expected() -> Expected:
            nonlocal reserved
            reserved = _reserve(facts, await self._size(), 0)
            return reserved.expected

        if self._is_counting:
            await expected()
        ticket = await self._enter(Asked(expected, what, is_alone=True))
        one = Alone()
        try:
            yield one
        finally:
            guess = reserved.likely if reserved is not None else None
            used = _priced(one.usage, facts) if one.usage is not None and _is_told(one.usage) else guess
            self._count(used)
            if one.work is None or one.work.done():
                self._leave(ticket, used)
            else:  # it cannot be ended: the gate is left when it is over, and knows then what it used
                one.work.add_done_callback(functools.partial(self._leave_late, ticket, used, facts))

    def _leave_late(
        self, ticket: Ticket | None, counted: Usage | None, facts: Facts, work: asyncio.Future[Summary]
    ) -> None:
        failed = work.cancelled() or work.exception() is not None
        usage = None if failed else work.result().usage
        more = RunUsage()
        if usage is not None and _is_told(usage):
            new = RunUsage().plus(_priced(usage, facts)).since(RunUsage().plus(counted))
            more = RunUsage(*(max(getattr(new, name), 0) for name in _COUNTED))
        self._used, self.untold = self._used.and_of(more), self.untold.and_of(more)
        self._leave(ticket, counted)

    @contextlib.asynccontextmanager
    async def _passing(
        self, model: Model, request: Request, size: Callable[[], Awaitable[Size]], what: str = ""
    ) -> AsyncIterator[Passage]:
        reserved: _Reserved | None = None

        async def expected() -> Expected:
            nonlocal reserved
            reserved = _reserve(model.facts, await size(), request.max_tokens)
            return reserved.expected

        if self._is_counting or what:  # else only if the gate wants to know: to measure a conversation takes time
            await expected()
        ticket = await self._enter(Asked(expected, what))
        likely = reserved.likely if reserved is not None else None
        passage = Passage(model, request)
        if likely is not None:
            passage.request = msgspec.structs.replace(request, max_tokens=int(likely.output))
            passage.hold_to(_MARGIN * likely.output, measured_tokens)
        used: Usage | None = None
        try:
            yield passage
        except ModelError as error:
            was_sent = isinstance(error, UnreachableError) and error.was_sent
            if passage.was_made and (passage.came.has_begun or error.partial is not None or was_sent):
                used = _used(passage, likely or await _guess(expected), model.facts, error.partial)
            raise
        except BaseException:  # dropped on its way
            if passage.was_made:
                used = likely if what else _used(passage, likely or await _guess(expected), model.facts)
            raise
        else:
            used = _used(passage, likely, model.facts, is_whole=True)
        finally:
            self._count(used)
            self._leave(ticket, used)

    @property
    def _is_counting(self) -> bool:
        """Whether it matters what requests use, and not only to a gate."""
        return self._limits.tokens is not None or self._limits.cost is not None

    async def _enter(self, asked: Asked) -> Ticket | None:
        """Room for one request; `LimitReached` when the gate has none."""
        if self._limits.gate is None:
            return None
        entered = await self._limits.gate.enter(asked)
        if isinstance(entered, str):
            raise LimitReached(entered)
        return entered

    def _leave(self, ticket: Ticket | None, used: Usage | None) -> None:
        if ticket is not None and self._limits.gate is not None:
            self._limits.gate.leave(ticket, self.spent, RunUsage().plus(used))

    def _count(self, usage: Usage | None) -> None:
        self._used, self.untold = self._used.plus(usage), self.untold.plus(usage)


async def _guess(expected: Callable[[], Awaitable[Expected]]) -> Usage | None:
    """What a request that broke off may have used, of which nobody wanted to know before."""
    with contextlib.suppress(SessionTreeError):  # the session cannot be read; the request's own end is what matters
        return (await uncancelled(expected())).likely.usage
    return None


def _raise(why: str | None) -> None:
    if why is not None:
        raise LimitReached(why)


def _reserve(facts: Facts, size: Size, longest: int | None) -> _Reserved:
    """What a request of some size will use: nothing comes from a cache, and the answer is as long as it may be."""
    room = min(facts.output, LONGEST_ANSWER, max(facts.window - size.tokens, _LEAST_ANSWER))
    answer = room if longest is None else min(room, longest)
    most = _priced(Usage(size.counted + _MARGIN * size.estimated, answer), facts)
    cached = likely_cost(Usage(0, answer, 0, most.input), facts.prices)  # all of it may be written into a cache
    if cached is not None and most.cost is not None and cached.total > most.cost.total:
        most = msgspec.structs.replace(most, cost=cached)
    return _Reserved(_priced(Usage(size.tokens, answer), facts), most)


def _used(
    passage: Passage, likely: Usage | None, facts: Facts, partial: object = None, *, is_whole: bool = False
) -> Usage | None:
    """What a request has used. What the provider tells counts, as far as it is all told; else what was sent and came.

    One that was answered by a refusal has used nothing.
    """
    came = passage.came.message()
    if isinstance(partial, Assistant) and (came is None or MEASURED(partial) > MEASURED(came)):
        came = partial
    told = (came.usage if came is not None else None) or passage.came.usage
    if told is not None and not _is_told(told):
        told = None
    if is_whole and told is None and came is not None and came.stop_reason == "error" and not came.content:
        return None
    if likely is None or (told is not None and is_whole):
        return _priced(told, facts) if told is not None else None
    known = _priced(told if told is not None else Usage(likely.input), facts)
    size = (MEASURED(came) if came is not None else 0) + measured_tokens(passage.came.cut_off)
    return known if size <= known.output else _priced(msgspec.structs.replace(known, output=size, cost=None), facts)


def _is_told(usage: Usage) -> bool:
    """Whether it is said what was used. Servers that do not say it say nothing, or that it was nothing."""
    numbers = (usage.input, usage.output, usage.cache_read, usage.cache_write)
    return all(valid_count(number) == number for number in numbers) and sum(numbers) > 0


def _priced(usage: Usage, facts: Facts) -> Usage:
    """With what it costs, if that is not told."""
    if usage.cost is not None and valid_count(usage.cost.total) == usage.cost.total:
        return usage
    return msgspec.structs.replace(usage, cost=likely_cost(usage, facts.prices))
