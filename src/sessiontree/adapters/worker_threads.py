"""Run blocking calls in worker threads, under asyncio and trio alike."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar, cast

import anyio
from anyio import to_thread

T = TypeVar("T")


async def run_read(call: Callable[[], T]) -> T:
    """Run a call that writes nothing. Cancellation returns at once; the thread ends by itself."""
    return await to_thread.run_sync(call, abandon_on_cancel=True)


async def run_write(call: Callable[[], T]) -> T:
    """Run a call that writes. It always runs to its end; a cancellation is raised again when its outcome is known."""
    outcome: list[tuple[T | None, BaseException | None]] = []
    mutex = threading.Lock()

    def work() -> None:
        with mutex:  # after a cancellation, this waits for the thread that runs the call
            if outcome:
                return
            try:
                outcome.append((call(), None))
            except BaseException as error:  # noqa: BLE001 - raised below
                outcome.append((None, error))

    cancelled: BaseException | None = None
    limiter: anyio.CapacityLimiter | None = None
    with anyio.CancelScope(shield=True):
        while not outcome:
            try:
                await to_thread.run_sync(work, limiter=limiter)
            except anyio.get_cancelled_exc_class() as error:
                # A task that asyncio itself cancels ignores the shield. Waiting must not depend on free threads.
                cancelled, limiter = cancelled or error, anyio.CapacityLimiter(1)
    result, failure = outcome[0]
    if cancelled is not None:
        raise cancelled
    if failure is not None:
        raise failure
    return cast(T, result)
