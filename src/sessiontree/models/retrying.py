"""Asking again after a while, when a model is busy or out of reach."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable

from msgspec import Struct

from sessiontree.errors import BusyModelError, ModelError, UnreachableError
from sessiontree.models.base import Event, Model, Request
from sessiontree.settings import Retry

Sleep = Callable[[float], Awaitable[object]]


class Retrying(Struct, frozen=True):
    """An attempt failed, and another one follows after a wait. What came of the failed one does not count."""

    error: ModelError
    attempt: int
    """How many have failed by now."""
    delay: float


async def with_retries(
    model: Model, request: Request, retry: Retry | None = None, *, sleep: Sleep = asyncio.sleep
) -> AsyncGenerator[Event | Retrying, None]:
    """The events of a model, with new attempts where they make sense: `Retrying` stands before each.

    The wait doubles from `first_delay` on, with some chance in it so that many who wait do not come back at once; what
    the provider asks for counts instead, unless it is longer than `longest_delay`: then the error is raised, for a
    person to decide. Overflow, access and refusals are raised at once.
    """
    rules = retry or Retry()
    failed = 0
    while True:
        stream = model.stream(request)
        try:
            async for event in stream:
                yield event
            return
        except (BusyModelError, UnreachableError) as error:
            failed += 1
            delay = next_delay(error, failed, rules)
            if delay is None:
                raise
            notice = Retrying(error, failed, delay)
        finally:
            await stream.aclose()
        yield notice
        await sleep(notice.delay)


def next_delay(error: ModelError, failed: int, rules: Retry) -> float | None:
    """How long to wait after so many failures; None for no more."""
    if failed > rules.attempts:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= rules.longest_delay else None
    doubled = rules.first_delay * 2 ** min(failed - 1, 30)
    return float(min(doubled, rules.longest_delay) * random.uniform(0.75, 1.0))
