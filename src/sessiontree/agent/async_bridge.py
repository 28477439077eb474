"""Await work that runs in threads, with defined behavior on cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

SUMMARIES = 16
"""How many summaries may be written at the same time."""

# Not the event loop's default executor: its threads may all be waiting for long-running commands.
_workers = ThreadPoolExecutor(4, thread_name_prefix="session")
_summarizers = ThreadPoolExecutor(SUMMARIES, thread_name_prefix="summary")


def in_thread(function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Read or write a session without blocking the event loop."""
    return asyncio.get_running_loop().run_in_executor(_workers, function, *arguments)


def in_background(function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Like `in_thread`, for work that may call a model: it does not occupy the threads that write sessions."""
    return asyncio.get_running_loop().run_in_executor(_summarizers, function, *arguments)


async def uncancelled(awaited: Awaitable[T]) -> T:
    """Await to completion even if the task is cancelled in the meantime, then raise `CancelledError`.

    A thread cannot be cancelled: without this, the caller would continue while the thread is still writing.
    """
    inner = asyncio.ensure_future(awaited)
    cancelled: asyncio.CancelledError | None = None
    while not inner.done():
        # `wait` does not cancel what it waits for. In a loop, because a task can be cancelled more than once.
        try:
            await asyncio.wait([inner])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        inner.exception() if not inner.cancelled() else None  # retrieved, so that asyncio does not report it
        raise cancelled
    return inner.result()


class LoopCalls:
    """Runs coroutines in an event loop from threads that wait for them, between `start` and `stop`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._in_progress: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        """Accept coroutines from threads. To be called in the event loop."""
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Cancel coroutines in progress and refuse new ones. To be called in the event loop."""
        self._loop = None
        self.cancel()
        if self._in_progress:
            await asyncio.wait(list(self._in_progress))

    def cancel(self) -> bool:
        """Cancel coroutines in progress; returns whether there were any. To be called in the event loop."""
        for task in self._in_progress:
            task.cancel()
        return bool(self._in_progress)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop, from a thread, and wait for it."""
        loop = self._loop
        if loop is None:
            work.close()
            raise CancelledError
        return asyncio.run_coroutine_threadsafe(self._tracked(work), loop).result()

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:  # `stop` was called after this was scheduled, and could not cancel it
            work.close()
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        self._in_progress.add(task)
        try:
            return await work
        finally:
            self._in_progress.discard(task)


# The event loop holds only weak references to tasks: without one, a running task could be garbage-collected.
_abandoned: set[asyncio.Future[Any]] = set()


async def with_cancel_timeout(awaited: Awaitable[T], seconds: float) -> T:
    """Await; when cancelled, cancel the inner work too, and wait at most `seconds` for it to end."""
    inner = asyncio.ensure_future(awaited)
    try:
        # Shielded: without it, a cancelled task would wait for `inner` without a limit.
        return await asyncio.shield(inner)
    except asyncio.CancelledError:
        if not inner.done():
            inner.cancel()
            await asyncio.wait([inner], timeout=seconds)
        if not inner.done():
            _abandoned.add(inner)
            inner.add_done_callback(_release)
        raise


def _release(inner: asyncio.Future[Any]) -> None:
    _abandoned.discard(inner)
    if not inner.cancelled():
        inner.exception()  # retrieved, so that asyncio does not report it
