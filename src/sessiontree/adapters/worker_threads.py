"""Run blocking calls in worker threads, under asyncio and trio alike.

Under asyncio, the threads are those of a pool here: with `anyio.to_thread`, the way to the thread and back takes longer
than most reads and writes. Everything else goes through anyio.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar, cast

import anyio
from anyio import to_thread

T = TypeVar("T")

_MAX_THREADS = 40
"""As many as anyio uses by default."""
_pool: ThreadPoolExecutor | None = None


async def run_read(call: Callable[[], T]) -> T:
    """Run a call that writes nothing. Cancellation returns at once; the thread ends by itself."""
    if not _is_in_asyncio():
        return await to_thread.run_sync(call, abandon_on_cancel=True)
    started = _Call(call)
    try:
        await started.waiter
    except asyncio.CancelledError:
        started.future.cancel()  # if no thread has begun with it
        raise
    return started.result()


async def run_write(call: Callable[[], T]) -> T:
    """Run a call that writes. It always runs to its end; a cancellation is raised again when its outcome is known."""
    if not _is_in_asyncio():
        with anyio.CancelScope(shield=True):
            return await to_thread.run_sync(call)
    started = _Call(call)
    try:
        await started.waiter
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):  # anyio repeats a cancellation in every pass of the event loop
            while not started.is_done:
                started.waiter = started.loop.create_future()
                with suppress(asyncio.CancelledError):  # a task that asyncio itself cancels ignores the shield
                    await started.waiter
        started.failure = None  # the cancellation is what the caller has asked for
        raise
    return started.result()


def _is_in_asyncio() -> bool:
    try:
        return asyncio.current_task() is not None  # None also in trio as a guest of asyncio
    except RuntimeError:  # no event loop of asyncio
        return False


class _Call(Generic[T]):
    """A call that was given to a thread, and the future that a task of asyncio waits for.

    The thread sets the outcome; waiting and waking happen in the thread of the event loop.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self.loop = asyncio.get_running_loop()
        self.waiter: asyncio.Future[None] = self.loop.create_future()
        self.is_done = False
        self.value: T | None = None
        self.failure: BaseException | None = None
        self.future: Future[None] = _thread_pool().submit(self._run, contextvars.copy_context(), call)

    def _run(self, context: contextvars.Context, call: Callable[[], T]) -> None:
        try:
            self.value = context.run(call)
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            self.failure = error
        with suppress(RuntimeError):  # the event loop was closed: nothing waits any more
            self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self.is_done = True
        if not self.waiter.done():
            self.waiter.set_result(None)

    def result(self) -> T:
        failure, self.failure = self.failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # its traceback refers to this frame
        return cast(T, self.value)


def _thread_pool() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(_MAX_THREADS, "sessiontree")
    return _pool


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)  # threads do not survive a fork
