"""Whoever summarises for a run, with each of its requests passing the gate of the run.

A summary is written in a thread; requests, gates and what they count belong to the loop of the run. So a summarizer
that asks a model has its requests made there. Of any other one nothing is known but what it says in the end: each
summary of it is one request, and goes alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from sessiontree.agent.branch_writer import SUMMARIES
from sessiontree.agent.metering import Account
from sessiontree.compaction import Summarizer
from sessiontree.compaction.extractive import ExtractiveSummarizer
from sessiontree.compaction.summarizers import Request, Summary
from sessiontree.core.messages import Assistant
from sessiontree.errors import SummaryError
from sessiontree.models import Model
from sessiontree.models import Request as ModelRequest
from sessiontree.models.model_summarizer import AskingSummarizer, ask_and_close
from sessiontree.settings import Retry

T = TypeVar("T")

# Each is waited for by one of the threads that want summaries, and there are as many of those.
_writers = ThreadPoolExecutor(SUMMARIES, thread_name_prefix="writer")

_WHAT = "summary"


def _in_writer(summarizer: Summarizer, request: Request) -> asyncio.Future[Summary]:
    """Have a summary written in a thread, which may outlive whoever waits for it, and even the loop."""
    loop = asyncio.get_running_loop()
    written: asyncio.Future[Summary] = loop.create_future()

    def over(job: Future[Summary]) -> None:
        if written.done():
            return
        error = job.exception()
        if error is not None:
            written.set_exception(error)
        else:
            written.set_result(job.result())

    def tell(job: Future[Summary]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            loop.call_soon_threadsafe(over, job)

    _writers.submit(summarizer, request).add_done_callback(tell)
    return written


class Metered:
    """A summarizer whose requests pass the gate of a run. Called in threads, between `begin` and `end`."""

    def __init__(self, summarizer: Summarizer | None, account: Account, model: Model, *, counts_cost: bool) -> None:
        self._account, self._model, self._counts_cost = account, model, counts_cost
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way: set[asyncio.Task[Any]] = set()
        self._summarizer = summarizer.asking(self._ask) if isinstance(summarizer, AskingSummarizer) else summarizer

    @property
    def or_nobody(self) -> Metered | None:
        """This one; None where a summary asks nobody, and there is nothing to count."""
        return None if isinstance(self._summarizer, ExtractiveSummarizer | None) else self

    @property
    def name(self) -> str:
        assert self._summarizer is not None
        return self._summarizer.name

    def begin(self) -> None:
        """Summaries may be wanted from now on. In the loop of the run."""
        self._loop = asyncio.get_running_loop()

    async def end(self) -> None:
        """The run is over: what is under way is dropped, and no more is asked. In the loop of the run."""
        self._loop = None
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(list(self._under_way))

    def __call__(self, request: Request, /) -> Summary:
        assert self._summarizer is not None
        if isinstance(self._summarizer, AskingSummarizer):
            return self._summarizer(request)
        return self._in_loop(self._alone(self._summarizer, request))

    async def _alone(self, summarizer: Summarizer, request: Request) -> Summary:
        async with self._account.alone(_WHAT, self._model.facts) as one:
            work = _in_writer(summarizer, request)
            one.work = work
            summary = await asyncio.shield(work)
            one.usage = summary.usage
            return summary

    def _ask(self, model: Model, request: ModelRequest, retry: Retry | None) -> Assistant:
        if self._counts_cost and not model.facts.prices.are_known:
            raise SummaryError(
                f"the prices of {model.name} are not known, so it writes no summary within a limit of cost; limit "
                "tokens, or say the prices in the file of the setting `models`"
            )
        return self._in_loop(ask_and_close(model, request, retry, self._account.aside(_WHAT)))

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something where the run is, from a thread, and wait for it."""
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
        self._under_way.add(task)
        try:
            return await work
        finally:
            self._under_way.discard(task)
