"""Asking again after a while, when a model is busy or out of reach.

Each attempt is a request of its own, and is paid for: who has a say in how many are made gives a door, which each
attempt goes through.
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
from sessiontree.models.accumulator import Gathering
from sessiontree.models.base import Event, Model, Request, Stop, TextDelta, ThinkingDelta, ToolCallDelta
from sessiontree.settings import Retry

Sleep = Callable[[float], Awaitable[object]]
_MEASURED_AT_ONCE = 1_000
"""Characters of an answer that are measured together: single pieces of it are too short for that."""


class Retrying(Struct, frozen=True):
    """An attempt failed, and another one follows after a wait. What came of the failed one does not count."""

    error: ModelError
    attempt: int
    """How many have failed by now."""
    delay: float


class Passage:
    """One attempt, on its way through a door."""

    def __init__(self, model: Model, request: Request) -> None:
        self.request = request
        """As it is made."""
        self.was_made = False
        provider, _, name = model.name.partition(":")
        self.came = Gathering(provider, name)
        """What has come of the answer."""
        self._longest: float | None = None
        self._measure: Callable[[str], int] = len
        self._tokens = 0
        self._pieces: list[str] = []
        self._size = 0

    def hold_to(self, tokens: float, measure: Callable[[str], int]) -> None:
        """End the answer when it is longer than this, whatever its model was told and keeps to."""
        self._longest, self._measure = tokens, measure

    def is_too_long(self, event: Event) -> bool:
        """Whether what came with this event is more than the answer may be."""
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


Door: TypeAlias = Callable[[Model, Request], contextlib.AbstractAsyncContextManager[Passage]]
"""Entered before each attempt, and left when it is over, before anyone hears of its end. It may wait, change the
request, or raise what ends all attempts; what an attempt ends with goes through it."""


@contextlib.asynccontextmanager
async def open_door(model: Model, request: Request) -> AsyncIterator[Passage]:
    """Lets everything through."""
    yield Passage(model, request)


async def with_retries(
    model: Model,
    request: Request,
    retry: Retry | None = None,
    *,
    door: Door = open_door,
    sleep: Sleep = asyncio.sleep,
) -> AsyncGenerator[Event | Retrying, None]:
    """The events of a model, with new attempts where they make sense: `Retrying` stands before each.

    The wait doubles from `first_delay` on, with some chance in it so that many who wait do not come back at once; what
    the provider asks for counts instead, unless it is longer than `longest_delay`: then the error is raised, for a
    person to decide. Overflow, access and refusals are raised at once.
    """
    rules = retry or Retry()
    failed = 0
    while True:
        try:
            async with door(model, request) as passage:
                passage.was_made = True
                end: Stop | None = None
                async with contextlib.aclosing(model.stream(passage.request)) as stream:
                    async for event in stream:
                        passage.came.add(event)
                        if isinstance(event, Stop):
                            end = event
                            break
                        yield event
                        if passage.is_too_long(event):
                            end = _cut(model, passage)
                            break
            if end is not None:
                yield end
            return
        except (BusyModelError, UnreachableError) as error:
            failed += 1
            delay = next_delay(error, failed, rules)
            if delay is None:
                raise
            notice = Retrying(error, failed, delay)
        yield notice
        await sleep(notice.delay)


def _cut(model: Model, passage: Passage) -> Stop:
    came = passage.came.message("length")
    if came is None:
        raise ModelError(f"{model.name}: the answer was far longer than it may be, and was ended")
    return Stop(came)


async def ask(model: Model, request: Request, retry: Retry | None = None, *, door: Door = open_door) -> Assistant:
    """The whole answer, with new attempts where they make sense."""
    async with contextlib.aclosing(with_retries(model, request, retry, door=door)) as stream:
        async for event in stream:
            if isinstance(event, Stop):
                return event.message
    raise ModelError(f"{model.name}: the answer ended without an end")


def next_delay(error: ModelError, failed: int, rules: Retry) -> float | None:
    """How long to wait after so many failures; None for no more."""
    if failed > rules.attempts:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= rules.longest_delay else None
    doubled = rules.first_delay * 2 ** min(failed - 1, 30)
    return float(min(doubled, rules.longest_delay) * random.uniform(0.75, 1.0))
