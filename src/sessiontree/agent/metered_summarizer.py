"""A Summarizer whose requests count against the run's limits and pass its gate.

A summary is written in a thread, but requests, gates and meters belong to the event loop of the run. A summarizer that
calls one of our models has its requests made in that loop. Any other summarizer reports only its final usage, so each
of its summaries is metered as one exclusive request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from sessiontree.agent.async_bridge import SUMMARIES
from sessiontree.agent.metering import Meter
from sessiontree.compaction import Summarizer
from sessiontree.compaction.extractive import ExtractiveSummarizer
from sessiontree.compaction.summarizers import Request, Summary
from sessiontree.core.messages import Assistant
from sessiontree.errors import SummaryError
from sessiontree.models import Model
from sessiontree.models import Request as ModelRequest
from sessiontree.models.model_summarizer import OpenedModelSummarizer, request_and_close
from sessiontree.settings import Retry

T = TypeVar("T")

# Each is awaited by one thread that requested a summary, so there are as many as of those.
_writers = ThreadPoolExecutor(SUMMARIES, thread_name_prefix="writer")

_PURPOSE = "summary"


def _in_writer(summarizer: Summarizer, request: Request) -> asyncio.Future[Summary]:
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
    """Called from threads, between `start` and `stop`."""

    def __init__(self, summarizer: Summarizer | None, meter: Meter, model: Model, *, counts_cost: bool) -> None:
        self._meter, self._model, self._counts_cost = meter, model, counts_cost
        self._loop: asyncio.AbstractEventLoop | None = None
        self._in_progress: set[asyncio.Task[Any]] = set()
        self._summarizer = summarizer.asking(self._ask) if isinstance(summarizer, OpenedModelSummarizer) else summarizer

    @property
    def or_none(self) -> MeteredSummarizer | None:
        """Self; None where summaries make no request, and there is nothing to meter."""
        return None if isinstance(self._summarizer, ExtractiveSummarizer | None) else self

    @property
    def name(self) -> str:
        assert self._summarizer is not None
        return self._summarizer.name

    def start(self) -> None:
        """Accept requests from threads. To be called in the event loop of the run."""
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Cancel requests in progress and refuse new ones. To be called in the event loop of the run."""
        self._loop = None
        for task in self._in_progress:
            task.cancel()
        if self._in_progress:
            await asyncio.wait(list(self._in_progress))

    def __call__(self, request: Request, /) -> Summary:
        assert self._summarizer is not None
        if isinstance(self._summarizer, OpenedModelSummarizer):
            return self._summarizer(request)
        return self._in_loop(self._summarize_exclusively(self._summarizer, request))

    async def _summarize_exclusively(self, summarizer: Summarizer, request: Request) -> Summary:
        async with self._meter.exclusive_request(_PURPOSE, self._model.facts) as metered:
            work = _in_writer(summarizer, request)
            metered.work = work
            summary = await asyncio.shield(work)
            metered.usage = summary.usage
            return summary

    def _ask(self, model: Model, request: ModelRequest, retry: Retry | None) -> Assistant:
        if self._counts_cost and not model.facts.prices.are_known:
            raise SummaryError(
                f"{model.name} cannot write a summary under a cost limit: its prices are not known; limit tokens "
                "instead, or add its prices to the file named by the setting `models`"
            )
        return self._in_loop(request_and_close(model, request, retry, self._meter.side_request(_PURPOSE)))

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of the run, from a thread, and wait for it."""
        loop = self._loop
        if loop is None:
            work.close()
            raise CancelledError
        return asyncio.run_coroutine_threadsafe(self._tracked(work), loop).result()

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        self._in_progress.add(task)
        try:
            return await work
        finally:
            self._in_progress.discard(task)
