"""Retry requests when a model is busy or unreachable.

Every attempt is billed, so a caller with a budget passes a `RequestGate`, which sees each attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from sessiontree.core.messages import Assistant
from sessiontree.errors import BusyModelError, ModelError, UnreachableError
from sessiontree.models.accumulator import AnswerAccumulator
from sessiontree.models.base import Event, Model, Request, Stop, TextDelta, ThinkingDelta, ToolCallDelta
from sessiontree.settings import Retry

Sleep = Callable[[float], Awaitable[object]]
_MEASURED_AT_ONCE = 1_000
"""Characters of an answer that are measured together: single deltas are too short for a good estimate."""


class RetryEvent(Struct, frozen=True):
    """An attempt failed, and another follows after a delay. Events of the failed attempt do not count."""

    error: ModelError
    attempt: int
    """Number of failed attempts so far."""
    delay: float


class Attempt:
    """One attempt at a request."""

    def __init__(self, model: Model, request: Request) -> None:
        self.request = request
        """The request as it is sent."""
        self.was_made = False
        provider, _, name = model.name.partition(":")
        self.answer = AnswerAccumulator(provider, name)
        """The answer so far."""
        self._longest: float | None = None
        self._measure: Callable[[str], int] = len
        self._tokens = 0
        self._pieces: list[str] = []
        self._size = 0

    def limit_length(self, tokens: float, measure: Callable[[str], int]) -> None:
        """Stop the answer when it is longer than this: not every model respects `max_tokens`."""
        self._longest, self._measure = tokens, measure

    def is_too_long(self, event: Event) -> bool:
        """Whether the answer is too long with this event."""
        if self._longest is None:
            return False
        match event:
            case TextDelta(text=piece) | ThinkingDelta(text=piece) | ToolCallDelta(arguments=piece):
                self._pieces.append(piece)
                self._size += len(piece)
            case _:
                return False
        if self._size >= _MEASURED_AT_ONCE:
            self._tokens += self._measure("".join(self._pieces))
            self._pieces, self._size = [], 0
        return self._tokens > self._longest


RequestGate: TypeAlias = Callable[[Model, Request], contextlib.AbstractAsyncContextManager[Attempt]]
"""Async context manager around each attempt; it exits before the caller sees the attempt's end. It may wait, change the
request, or raise an error that ends all attempts. Errors of an attempt pass through it."""


@contextlib.asynccontextmanager
async def no_gate(model: Model, request: Request) -> AsyncIterator[Attempt]:
    """A gate without limits."""
    yield Attempt(model, request)


async def with_retries(
    model: Model,
    request: Request,
    retry: Retry | None = None,
    *,
    gate: RequestGate = no_gate,
    sleep: Sleep = asyncio.sleep,
) -> AsyncGenerator[Event | RetryEvent, None]:
    """Stream a model's events, retrying where it makes sense, with a `RetryEvent` before each new attempt.

    The delay doubles from `first_delay` on, with jitter so that many clients do not return at once. The provider's own
    delay takes precedence; if it is longer than `longest_delay`, the error is raised. Overflow, access errors and
    rejections are raised at once.
    """
    rules = retry or Retry()
    failed = 0
    while True:
        try:
            async with gate(model, request) as attempt:
                attempt.was_made = True
                end: Stop | None = None
                async with contextlib.aclosing(model.stream(attempt.request)) as stream:
                    async for event in stream:
                        attempt.answer.add(event)
                        if isinstance(event, Stop):
                            end = event
                            break
                        yield event
                        if attempt.is_too_long(event):
                            end = _cut(model, attempt)
                            break
            # Only now: the gate has exited, so the attempt is metered before the caller sees its end.
            if end is not None:
                yield end
            return
        except (BusyModelError, UnreachableError) as error:
            failed += 1
            delay = next_delay(error, failed, rules)
            if delay is None:
                raise
            notice = RetryEvent(error, failed, delay)
        yield notice
        await sleep(notice.delay)


def _cut(model: Model, attempt: Attempt) -> Stop:
    answer = attempt.answer.message("length")
    if answer is None:
        raise ModelError(f"{model.name}: stopped: the answer was far longer than allowed")
    return Stop(answer)


async def ask(model: Model, request: Request, retry: Retry | None = None, *, gate: RequestGate = no_gate) -> Assistant:
    """Request a complete answer, retrying where it makes sense."""
    async with contextlib.aclosing(with_retries(model, request, retry, gate=gate)) as stream:
        async for event in stream:
            if isinstance(event, Stop):
                return event.message
    raise ModelError(f"{model.name}: the answer ended without a stop event")


def next_delay(error: ModelError, failed: int, rules: Retry) -> float | None:
    """Delay after a number of failures; None for no further attempt."""
    if failed > rules.attempts:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= rules.longest_delay else None
    doubled = rules.first_delay * 2 ** min(failed - 1, 30)
    return float(min(doubled, rules.longest_delay) * random.uniform(0.75, 1.0))
