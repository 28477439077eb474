"""Automatic compaction: keeps a branch within the model's context window.

The work is done in a thread through a SerializedBranch of its own. When the run is interrupted that branch is closed,
so a summary that arrives late is not appended after other entries.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from sessiontree.agent.async_bridge import in_background, in_thread
from sessiontree.agent.branch_writer import SerializedBranch
from sessiontree.agent.events import Compacting, Event, Occasion, Persisted
from sessiontree.agent.live_context import LiveContext
from sessiontree.agent.request_meter import LimitReached, MeteredSummarizer
from sessiontree.compaction import (
    Compacted,
    Pruned,
    Window,
    after_overflow,
    make_room,
    policy_of,
    should_compact,
)
from sessiontree.core.entries import Entry
from sessiontree.core.messages import Usage
from sessiontree.core.usage import usage_of
from sessiontree.errors import CompactionError, ContextOverflowError
from sessiontree.models import Model
from sessiontree.session.session import Branch, Session
from sessiontree.settings import Settings


class AutoCompactor:
    """Compacts or prunes one branch for one model, and emits events about it."""

    def __init__(
        self,
        branch: Branch | Session,
        live: LiveContext,
        model: Model,
        settings: Settings,
        summarizer: MeteredSummarizer,
        send: Callable[[Event], Awaitable[None]],
        record: Callable[[Usage | None], None],
        refusal: Callable[[], Awaitable[str | None]],
    ) -> None:
        """`record` is called with the usage that each written entry reports.

        `refusal` returns why the session may not be compacted; None if it may.
        """
        self._branch, self._live = branch, live
        self._session = branch if isinstance(branch, Session) else branch.session
        self._settings = settings.compaction.for_model(model.name)
        self._policy = policy_of(self._settings)
        self._window = Window(model.facts.window, model.facts.output, model.name.replace(":", "/", 1))
        self._summarizer, self._send, self._record, self._refusal = summarizer, send, record, refusal
        self._has_failed = False

    def start(self) -> None:
        """Start with the run, in its event loop."""
        self._summarizer.start()

    async def stop(self) -> None:
        """End with the run: requests in progress are cancelled."""
        await self._summarizer.stop()

    async def compact_if_needed(self, occasion: Occasion) -> None:
        """Prune or compact if the settings require it. A failure is reported as an event, and the run continues."""
        if self._has_failed:
            return
        await self._live.load()
        if not await self._is_due():
            return
        refusal = await self._refusal()
        if refusal is not None:
            self._has_failed = True
            await self._send(Compacting("failed", occasion, error=refusal))
            return
        options = {**self._options(), "pruning": self._settings.prune}
        try:
            await self._send(Compacting("start", occasion))
            await self._apply(occasion, lambda branch: make_room(self._session, self._window, branch=branch, **options))
        except (CompactionError, LimitReached) as error:  # the next request runs into the same limit and ends the run
            self._has_failed = True
            await self._send(Compacting("failed", occasion, error=str(error)))

    async def after_overflow(self, error: ContextOverflowError) -> None:
        """Compact because the provider refused the request as too long.

        By our numbers no compaction was due, so the window is smaller than we assumed: keep at most half of the
        context.
        """
        if self._policy.limit(self._window) is None:
            raise ContextOverflowError(f"{error}; auto-compaction is off: compact the session yourself", error.partial)
        refusal = await self._refusal()
        if refusal is not None:
            raise ContextOverflowError(f"{error}; {refusal}", error.partial)
        options = self._options()
        options["keep"] = min(options["keep"], min(self._live.sizes()) // 2)
        await self._send(Compacting("start", "overflow", error=str(error)))
        try:
            await self._apply(
                "overflow",
                lambda branch: after_overflow(self._session, window=self._window, branch=branch, **options),
            )
        except (CompactionError, LimitReached) as failure:
            await self._send(Compacting("failed", "overflow", error=str(failure)))
            raise

    async def _is_due(self) -> bool:
        limit = self._policy.limit(self._window)
        if limit is None:
            return False
        # The full check reads the whole path, so it runs only where the two numbers disagree.
        counted, estimated = self._live.sizes()
        if (counted > limit) == (estimated > limit):
            return counted > limit
        check = functools.partial(should_compact, policy=self._policy, branch=SerializedBranch(self._branch))
        return await in_thread(check, self._session, self._window)

    def _options(self) -> dict[str, Any]:
        return {
            "policy": self._policy,
            "keep": self._settings.keep_recent_tokens,
            "instructions": self._settings.instructions,
            "summarizer": self._summarizer.or_none,
        }

    async def _apply(self, occasion: Occasion, work: Callable[[SerializedBranch], Compacted | Pruned | None]) -> None:
        entries: list[Entry] = []
        branch = SerializedBranch(self._branch, entries.append)
        try:
            done = await in_background(work, branch)
        finally:
            await in_thread(branch.close)  # in a thread, because it waits for an append in progress
            self._live.invalidate()
        for entry in entries if done is not None else ():
            self._record(usage_of(entry))
            await self._send(Persisted(entry))
        match done:
            case None:
                event = Compacting("end", occasion)
            case Compacted():
                event = Compacting(
                    "end", occasion, "compact", done.tokens_before, done.tokens_after, report="; ".join(done.reports)
                )
            case Pruned():
                await self._live.load()
                before = max(self._live.sizes())
                event = Compacting("end", occasion, "prune", before + done.freed, before)
        await self._send(event)
