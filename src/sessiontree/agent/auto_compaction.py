"""Keeping a branch inside a model's window while it runs: when it is time by the settings, and after an overflow.

The work is done in a thread, through a hand of its own: when the run is interrupted that hand is closed, so that a
summary which comes too late is not written behind something else.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from sessiontree.agent.branch_writer import SerializedBranch, in_background, in_thread
from sessiontree.agent.events import Compacting, Event, Occasion, Persisted
from sessiontree.agent.live_context import LiveContext
from sessiontree.agent.metered_summarizer import Metered
from sessiontree.agent.metering import LimitReached
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
    """Makes room on one branch for one model, and tells of it."""

    def __init__(
        self,
        place: Branch | Session,
        live: LiveContext,
        model: Model,
        settings: Settings,
        summaries: Metered,
        send: Callable[[Event], Awaitable[None]],
        told: Callable[[Usage | None], None],
    ) -> None:
        """`send` hands an event to whoever looks; `told` hears what the entries that are written say was used."""
        self._place, self._live = place, live
        self._session = place if isinstance(place, Session) else place.session
        self._settings = settings.compaction.for_model(model.name)
        self._policy = policy_of(self._settings)
        self._window = Window(model.facts.window, model.facts.output, model.name.replace(":", "/", 1))
        self._summaries, self._send, self._told = summaries, send, told
        self._has_failed = False

    def begin(self) -> None:
        """The run begins. In its loop."""
        self._summaries.begin()

    async def end(self) -> None:
        """The run is over: nobody is asked any more."""
        await self._summaries.end()

    async def make_room(self, occasion: Occasion) -> None:
        """Prune or compact, if it is time. That it cannot be done is told, and the run goes on."""
        if self._has_failed:
            return
        await self._live.gather()
        if not await self._is_due():
            return
        how = {**self._how(), "pruning": self._settings.prune}
        try:
            await self._send(Compacting("start", occasion))
            await self._do(occasion, lambda hand: make_room(self._session, self._window, branch=hand, **how))
        except (CompactionError, LimitReached) as error:  # of a limit the next request will hear as well
            self._has_failed = True
            await self._send(Compacting("failed", occasion, error=str(error)))

    async def after_overflow(self, error: ContextOverflowError) -> None:
        """Compact, because the request was refused as too long. It was not time for it: the window is smaller than
        known, so at most half is kept."""
        if self._policy.limit(self._window) is None:
            raise ContextOverflowError(
                f"{error}; compacting by itself is turned off, so compact it by hand", error.partial
            )
        how = self._how()
        how["keep"] = min(how["keep"], min(self._live.sizes()) // 2)
        await self._send(Compacting("start", "overflow", error=str(error)))
        try:
            await self._do(
                "overflow", lambda hand: after_overflow(self._session, window=self._window, branch=hand, **how)
            )
        except (CompactionError, LimitReached) as failure:
            await self._send(Compacting("failed", "overflow", error=str(failure)))
            raise

    async def _is_due(self) -> bool:
        limit = self._policy.limit(self._window)
        if limit is None:
            return False
        counted, estimated = self._live.sizes()
        if (counted > limit) == (estimated > limit):
            return counted > limit
        ask = functools.partial(should_compact, policy=self._policy, branch=SerializedBranch(self._place))
        return await in_thread(ask, self._session, self._window)

    def _how(self) -> dict[str, Any]:
        return {
            "policy": self._policy,
            "keep": self._settings.keep_recent_tokens,
            "instructions": self._settings.instructions,
            "summarizer": self._summaries.or_nobody,
        }

    async def _do(self, occasion: Occasion, work: Callable[[SerializedBranch], Compacted | Pruned | None]) -> None:
        entries: list[Entry] = []
        hand = SerializedBranch(self._place, entries.append)
        try:
            done = await in_background(work, hand)
        finally:
            await in_thread(hand.close)
            self._live.forget()
        for entry in entries if done is not None else ():
            self._told(usage_of(entry))
            await self._send(Persisted(entry))
        match done:
            case None:
                event = Compacting("end", occasion)
            case Compacted():
                event = Compacting("end", occasion, "compact", done.tokens_before, done.tokens_after)
            case Pruned():
                await self._live.gather()
                before = max(self._live.sizes())
                event = Compacting("end", occasion, "prune", before + done.freed, before)
        await self._send(event)
