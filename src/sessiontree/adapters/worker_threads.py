"""Run blocking calls in worker threads, under asyncio and trio alike.

Under asyncio, calls run in this module's pool: with `anyio.to_thread`, the round trip to a thread takes longer than
most reads and writes, and with `ThreadPoolExecutor` half as long again as with this pool. Everything else goes through
anyio.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Generic, TypeAlias, TypeVar, cast

import anyio
from anyio import to_thread

T = TypeVar("T")

_MAX_THREADS = 40
"""As many as anyio uses by default."""


async def run_read(call: Callable[[], T]) -> T:
    """Run a call that writes nothing. Cancellation returns immediately; the thread finishes on its own."""
    if not _is_in_asyncio():
        return await to_thread.run_sync(call, abandon_on_cancel=True)
    started = _Call(call)
    try:
        await started.waiter
    except asyncio.CancelledError:
        started.is_abandoned = True  # a thread that has not started the call skips it
        raise
    return started.result()


async def run_write(call: Callable[[], T]) -> T:
    """Run a call that writes. It always runs to completion; a cancellation is re-raised when its outcome is known."""
    if not _is_in_asyncio():
        with anyio.CancelScope(shield=True):
            return await to_thread.run_sync(call)
    started = _Call(call)
    try:
        await started.waiter
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):  # anyio repeats a cancellation in every event loop iteration
            while not started.is_done:
                started.waiter = started.loop.create_future()
                with suppress(asyncio.CancelledError):  # a task that asyncio itself cancels ignores the shield
                    await started.waiter
        started.failure = None  # the caller asked for the cancellation
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
        self.is_abandoned = False
        self.value: T | None = None
        self.failure: BaseException | None = None
        self._call = call
        self._context = contextvars.copy_context()
        _pool.submit(self._run)

    def _run(self) -> None:
        if self.is_abandoned:
            return
        try:
            self.value = self._context.run(self._call)
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            self.failure = error
        with suppress(RuntimeError):  # the event loop was closed: nothing is waiting
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


_Job: TypeAlias = Callable[[], object]


class _Pool:
    """Threads that each run one job after another. A job goes to the thread that became idle last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle: list[SimpleQueue[_Job | None]] = []
        """The queues of the threads that wait for a job; None ends a thread."""
        self._waiting: deque[_Job] = deque()
        """Jobs for which there was no thread."""
        self._is_ending = False

    def submit(self, job: _Job) -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().put(job)
            elif len(self._threads) < _MAX_THREADS:
                # A daemon, because the interpreter waits for other threads before it calls `finish`.
                name = f"sessiontree_{len(self._threads)}"
                thread = threading.Thread(target=self._work, args=(job,), name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            else:
                self._waiting.append(job)

    def _work(self, first: _Job) -> None:
        job: _Job | None = first
        queue: SimpleQueue[_Job | None] = SimpleQueue()
        while job is not None:
            job()
            job = None  # its values must not live until the next one
            with self._lock:
                if self._waiting:
                    job = self._waiting.popleft()
                elif not self._is_ending:
                    self._idle.append(queue)
                else:
                    return
            if job is None:
                job = queue.get()

    def finish(self) -> None:
        """Wait for the end of all jobs."""
        with self._lock:
            self._is_ending = True
            for queue in self._idle:
                queue.put(None)
            self._idle.clear()
            threads, self._threads = self._threads, []
        for thread in threads:
            thread.join()


_pool = _Pool()


def _forget_pool() -> None:
    global _pool
    _pool = _Pool()


def _finish_jobs() -> None:
    _pool.finish()


atexit.register(_finish_jobs)  # a write that was started is not lost when the program ends
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)  # threads do not survive a fork
