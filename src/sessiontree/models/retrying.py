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

from sessiontree.errors import BusyModelError, ModelError, UnreachableError
from sessiontree.messages import Assistant
from sessiontree.models.base import Event, Model, Request, Stop
from sessiontree.models.gathering import Gathering
from sessiontree.settings import Retry

Sleep = Callable[[float], Awaitable[object]]


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
