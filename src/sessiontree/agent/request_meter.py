"""Meter the requests of one run: reserve usage at the gate before each, and count it afterwards.

Every attempt of every request goes through `turn`, `side_request` or `exclusive_request`. A request with a reservation
is held to it: its answer is limited to the reserved length, and cut off if the model exceeds that. A request also
counts if the provider reports no usage, for example because it was dropped in progress: then the sent tokens and the
received text are estimated. Only a request that was refused before any output counts as nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import msgspec
from msgspec import Struct

from sessiontree.agent.async_bridge import SUMMARIES, LoopCalls, in_thread, uncancelled
from sessiontree.agent.limits import GateRequest, Limits, RequestEstimate, RunUsage, Ticket
from sessiontree.compaction import Summarizer, Summary
from sessiontree.compaction.extractive import ExtractiveSummarizer
from sessiontree.compaction.summarizers import FallbackSummarizer
from sessiontree.compaction.summarizers import Request as SummaryRequest
from sessiontree.compaction.token_estimate import MEASURED, Size, measured_tokens
from sessiontree.core.messages import Assistant, Usage, message_text
from sessiontree.core.usage import valid_count
from sessiontree.errors import ModelError, SessionTreeError, SummaryError, UnreachableError
from sessiontree.models import Facts, Model, Request
from sessiontree.models.facts import upper_cost
from sessiontree.models.model_summarizer import OpenedModelSummarizer, request_and_close
from sessiontree.models.pydantic_ai_model import LONGEST_ANSWER
from sessiontree.models.retry import Attempt, RequestGate
from sessiontree.settings import Retry

T = TypeVar("T")

_MIN_ANSWER = 1_024
"""Tokens an answer may always have: the estimate of what fills the window may be too high."""
_MARGIN = 3
"""Factor by which a token estimate may be too low: encoded data has about that many more tokens than prose."""
_COUNTED = ("turns", "input", "output", "cached", "cache_written", "cost")
_PRECISION = 12
"""Decimal places of a dollar kept by a subtraction; float sums are not exact."""


class LimitReached(Exception):  # noqa: N818 - not an error: a request is not made because a limit is reached
    """A limit does not allow another request."""


class ExclusiveRequest:
    """A request that is made by code outside our control, such as a summarizer of another package."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        """Its usage, once known."""
        self.work: asyncio.Future[Summary] | None = None
        """The work itself, which continues after a cancellation."""


class _Reservation(Struct, frozen=True):
    likely: Usage
    maximum: Usage

    @property
    def estimate(self) -> RequestEstimate:
        return RequestEstimate(RunUsage().plus(self.likely, turns=1), RunUsage().plus(self.maximum, turns=1))


async def _no_size() -> Size:
    return Size(0, 0)


class Meter:
    """Usage of one run. `size` estimates the tokens that a turn sends if it is made now."""

    def __init__(self, limits: Limits, size: Callable[[], Awaitable[Size]] = _no_size) -> None:
        self._limits, self._size = limits, size
        self._began = 0.0
        self._used = RunUsage()
        self.unreported = RunUsage()
        """The part of `usage` that no entry of the session records."""

    def start(self) -> None:
        """Start the clock."""
        self._began = time.monotonic()

    def stop(self) -> None:
        """Stop the clock."""
        self._used, self._began = self.usage, 0.0

    @property
    def usage(self) -> RunUsage:
        if not self._began:
            return self._used
        return msgspec.structs.replace(self._used, seconds=time.monotonic() - self._began)

    def charge(self, usage: RunUsage) -> None:
        """Add the usage of another run that works for this one."""
        self._used = self._used.combine(usage)

    def record(self, usage: Usage | None, *, turns: int = 0) -> None:
        """Note that an entry of the session now records this usage, and completes the given number of turns."""
        self._used = self._used.plus(None, turns=turns)
        left = self.unreported.since(RunUsage().plus(usage))
        self.unreported = RunUsage(*(max(round(getattr(left, name), _PRECISION), 0) for name in _COUNTED))

    def check_limits(self) -> None:
        """Raise `LimitReached` if the run may not make another turn."""
        _raise_if(self._limits.reached(self.usage))

    # Kinds of requests

    @contextlib.asynccontextmanager
    async def turn(self, model: Model, request: Request) -> AsyncIterator[Attempt]:
        """Meter a turn of the run. Its answer is streamed, so a dropped one counts what had arrived."""
        self.check_limits()
        async with self._metered(model, request, self._size) as attempt:
            yield attempt

    def side_request(self, purpose: str) -> RequestGate:
        """Meter a request that is not a turn. Its output is not streamed, so a dropped one counts its reservation."""
        return functools.partial(self._side_request, purpose)

    @contextlib.asynccontextmanager
    async def _side_request(self, purpose: str, model: Model, request: Request) -> AsyncIterator[Attempt]:
        def measured() -> int:
            return measured_tokens("".join([request.system or "", *map(message_text, request.messages)]))

        async def size() -> Size:
            return Size(0, await in_thread(measured))

        _raise_if(self._limits.used_up(self.usage))
        async with self._metered(model, request, size, purpose) as attempt:
            yield attempt

    @contextlib.asynccontextmanager
    async def exclusive_request(self, purpose: str, facts: Facts) -> AsyncIterator[ExclusiveRequest]:
        """Meter a request that cannot be estimated: no other request is in progress at the same time.

        If its usage is not reported, it counts like the input of a turn.
        """
        _raise_if(self._limits.used_up(self.usage))
        reservation: _Reservation | None = None

        async def expected() -> RequestEstimate:
            nonlocal reservation
            reservation = _reserve(facts, await self._size(), 0)
            return reservation.estimate

        if self._is_counting:
            await expected()
        ticket = await self._enter(GateRequest(expected, purpose, is_exclusive=True))
        request = ExclusiveRequest()
        try:
            yield request
        finally:
            estimate = reservation.likely if reservation is not None else None
            used = (
                _priced(request.usage, facts) if request.usage is not None and _is_reported(request.usage) else estimate
            )
            self._count(used)
            if request.work is None or request.work.done():
                self._leave(ticket, used)
            else:  # a thread cannot be cancelled: the ticket is returned when it ends, with the usage known then
                request.work.add_done_callback(functools.partial(self._leave_late, ticket, used, facts))

    def _leave_late(
        self, ticket: Ticket | None, counted: Usage | None, facts: Facts, work: asyncio.Future[Summary]
    ) -> None:
        failed = work.cancelled() or work.exception() is not None
        usage = None if failed else work.result().usage
        more = RunUsage()
        if usage is not None and _is_reported(usage):
            new = RunUsage().plus(_priced(usage, facts)).since(RunUsage().plus(counted))
            more = RunUsage(*(max(getattr(new, name), 0) for name in _COUNTED))
        self._used, self.unreported = self._used.combine(more), self.unreported.combine(more)
        self._leave(ticket, counted)

    @contextlib.asynccontextmanager
    async def _metered(
        self, model: Model, request: Request, size: Callable[[], Awaitable[Size]], purpose: str = ""
    ) -> AsyncIterator[Attempt]:
        reservation: _Reservation | None = None

        async def expected() -> RequestEstimate:
            nonlocal reservation
            reservation = _reserve(model.facts, await size(), request.max_tokens)
            return reservation.estimate

        if self._is_counting or purpose:  # otherwise only on the gate's demand: measuring a conversation takes time
            await expected()
        ticket = await self._enter(GateRequest(expected, purpose))
        likely = reservation.likely if reservation is not None else None
        attempt = Attempt(model, request)
        if likely is not None:
            attempt.request = msgspec.structs.replace(request, max_tokens=int(likely.output))
            attempt.limit_length(_MARGIN * likely.output, measured_tokens)
        used: Usage | None = None
        try:
            yield attempt
        except ModelError as error:
            was_sent = isinstance(error, UnreachableError) and error.was_sent
            if attempt.was_made and (attempt.answer.has_begun or error.partial is not None or was_sent):
                used = _used(attempt, likely or await _estimate_late(expected), model.facts, error.partial)
            raise
        except BaseException:  # dropped in progress
            if attempt.was_made:
                used = likely if purpose else _used(attempt, likely or await _estimate_late(expected), model.facts)
            raise
        else:
            used = _used(attempt, likely, model.facts, is_complete=True)
        finally:
            self._count(used)
            self._leave(ticket, used)

    @property
    def _is_counting(self) -> bool:
        """Whether limits of the run itself need an estimate of each request."""
        return self._limits.tokens is not None or self._limits.cost is not None

    async def _enter(self, request: GateRequest) -> Ticket | None:
        """Pass the gate; `LimitReached` if it refuses."""
        if self._limits.gate is None:
            return None
        entered = await self._limits.gate.enter(request)
        if isinstance(entered, str):
            raise LimitReached(entered)
        return entered

    def _leave(self, ticket: Ticket | None, used: Usage | None) -> None:
        if ticket is not None and self._limits.gate is not None:
            self._limits.gate.leave(ticket, self.usage, RunUsage().plus(used))

    def _count(self, usage: Usage | None) -> None:
        self._used, self.unreported = self._used.plus(usage), self.unreported.plus(usage)


async def _estimate_late(expected: Callable[[], Awaitable[RequestEstimate]]) -> Usage | None:
    """Estimate a request after it broke off."""
    with contextlib.suppress(SessionTreeError):  # the session cannot be read; how the request ended matters more
        return (await uncancelled(expected())).likely.usage
    return None


def _raise_if(reason: str | None) -> None:
    if reason is not None:
        raise LimitReached(reason)


def _reserve(facts: Facts, size: Size, longest: int | None) -> _Reservation:
    """Estimate a request: no input comes from a cache, and the answer is as long as it may be."""
    left = min(facts.output, LONGEST_ANSWER, max(facts.window - size.tokens, _MIN_ANSWER))
    answer = left if longest is None else min(left, longest)
    maximum = _priced(Usage(size.counted + _MARGIN * size.estimated, answer), facts)
    cached = upper_cost(Usage(0, answer, 0, maximum.input), facts.prices)  # all input may be written to a cache
    if cached is not None and maximum.cost is not None and cached.total > maximum.cost.total:
        maximum = msgspec.structs.replace(maximum, cost=cached)
    return _Reservation(_priced(Usage(size.tokens, answer), facts), maximum)


def _used(
    attempt: Attempt, likely: Usage | None, facts: Facts, partial: object = None, *, is_complete: bool = False
) -> Usage | None:
    """Usage of a request: the provider's report where it is complete, else an estimate of input and received output.

    A request that was answered by a refusal used nothing.
    """
    received = attempt.answer.message()
    if isinstance(partial, Assistant) and (received is None or MEASURED(partial) > MEASURED(received)):
        received = partial
    reported = (received.usage if received is not None else None) or attempt.answer.usage
    if reported is not None and not _is_reported(reported):
        reported = None
    is_empty_error = received is not None and received.stop_reason == "error" and not received.content
    if is_complete and reported is None and is_empty_error:
        return None
    if likely is None or (reported is not None and is_complete):
        return _priced(reported, facts) if reported is not None else None
    known = _priced(reported if reported is not None else Usage(likely.input), facts)
    size = (MEASURED(received) if received is not None else 0) + measured_tokens(attempt.answer.incomplete_calls)
    return known if size <= known.output else _priced(msgspec.structs.replace(known, output=size, cost=None), facts)


def _is_reported(usage: Usage) -> bool:
    """Whether a provider reported usage. Servers that do not support it send nothing, or zeros."""
    numbers = (usage.input, usage.output, usage.cache_read, usage.cache_write)
    return all(valid_count(number) == number for number in numbers) and sum(numbers) > 0


def _priced(usage: Usage, facts: Facts) -> Usage:
    """Fill in the cost where the provider did not report it."""
    if usage.cost is not None and valid_count(usage.cost.total) == usage.cost.total:
        return usage
    return msgspec.structs.replace(usage, cost=upper_cost(usage, facts.prices))


# Summaries

# As many threads as may request a summary: each of those waits for one of these.
_writers = ThreadPoolExecutor(SUMMARIES, thread_name_prefix="writer")

_SUMMARY = "summary"


def _in_writer(summarizer: Summarizer, request: SummaryRequest) -> asyncio.Future[Summary]:
    """Run a summarizer in a thread, which may outlive the task that awaits it, and even the event loop."""
    loop = asyncio.get_running_loop()
    written: asyncio.Future[Summary] = loop.create_future()

    def resolve(job: Future[Summary]) -> None:
        if written.done():
            return
        error = job.exception()
        if error is not None:
            written.set_exception(error)
        else:
            written.set_result(job.result())

    def on_done(job: Future[Summary]) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(resolve, job)

    _writers.submit(summarizer, request).add_done_callback(on_done)
    return written


class MeteredSummarizer:
    """A Summarizer whose requests count against the run's limits. Called from threads, between `start` and `stop`.

    A summary is written in a thread, but requests, gates and meters belong to the event loop of the run. A summarizer
    that calls one of our models has its requests made in that loop. Any other one reports only its final usage, so each
    of its summaries is metered as one exclusive request.
    """

    def __init__(self, summarizer: Summarizer | None, meter: Meter, model: Model, *, counts_cost: bool) -> None:
        self._meter, self._model, self._counts_cost = meter, model, counts_cost
        self._calls = LoopCalls()
        self._fallback: Summarizer | None = None
        if isinstance(summarizer, FallbackSummarizer):
            self._fallback, summarizer = summarizer.second, summarizer.first
        self._summarizer = summarizer.asking(self._ask) if isinstance(summarizer, OpenedModelSummarizer) else summarizer

    @property
    def or_none(self) -> Summarizer | None:
        """Self, with its fallback; None where summaries make no request, and there is nothing to meter."""
        if isinstance(self._summarizer, ExtractiveSummarizer | None):
            return None
        return self if self._fallback is None else FallbackSummarizer(self, self._fallback)

    @property
    def name(self) -> str:
        assert self._summarizer is not None
        return self._summarizer.name

    def start(self) -> None:
        """Accept requests from threads. To be called in the event loop of the run."""
        self._calls.start()

    async def stop(self) -> None:
        """Cancel requests in progress and refuse new ones. To be called in the event loop of the run."""
        await self._calls.stop()

    def __call__(self, request: SummaryRequest, /) -> Summary:
        assert self._summarizer is not None
        if isinstance(self._summarizer, OpenedModelSummarizer):
            return self._summarizer(request)
        return self._calls.run(self._summarize_exclusively(self._summarizer, request))

    async def _summarize_exclusively(self, summarizer: Summarizer, request: SummaryRequest) -> Summary:
        async with self._meter.exclusive_request(_SUMMARY, self._model.facts) as metered:
            work = _in_writer(summarizer, request)
            metered.work = work
            summary = await asyncio.shield(work)
            metered.usage = summary.usage
            return summary

    def _ask(self, model: Model, request: Request, retry: Retry | None) -> Assistant:
        if self._counts_cost and not model.facts.prices.are_known:
            raise SummaryError(
                f"{model.name} cannot write a summary under a cost limit: its prices are not known; limit tokens "
                "instead, or add its prices to the file named by the setting `models`"
            )
        return self._calls.run(request_and_close(model, request, retry, self._meter.side_request(_SUMMARY)))
