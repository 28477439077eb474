"""Run blocking calls in worker threads, under asyncio and trio alike."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import anyio
from anyio import to_thread

T = TypeVar("T")


async def run_read(call: Callable[[], T]) -> T:
    """Run a call that writes nothing. Cancellation returns at once; the thread ends by itself."""
    return await to_thread.run_sync(call, abandon_on_cancel=True)


async def run_write(call: Callable[[], T]) -> T:
    """Run a call that writes. It always runs to its end; a cancellation is raised again when its outcome is known."""
    outcome: Future[T] = Future()
    claim = threading.Lock()

    def work() -> None:
        if not claim.acquire(blocking=False):
            outcome.exception()  # another thread runs the call: wait for it
            return
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller gets it from the outcome
            outcome.set_exception(error)

    cancelled: BaseException | None = None
    limiter: anyio.CapacityLimiter | None = None
    with anyio.CancelScope(shield=True):
        while not outcome.done():
            try:
                await to_thread.run_sync(work, limiter=limiter)
            except anyio.get_cancelled_exc_class() as error:
                # A task that asyncio itself cancels ignores the shield. Waiting must not depend on free threads.
                cancelled, limiter = cancelled or error, anyio.CapacityLimiter(1)
    if cancelled is not None:
        raise cancelled
    return outcome.result()
