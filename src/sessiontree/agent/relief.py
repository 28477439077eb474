"""Keeping a branch inside a model's window while it runs: when it is time by the settings, and after an overflow.

The work is done in a thread, through a hand of its own: when the run is interrupted that hand is closed, so that a
summary which comes too late is not written behind something else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from sessiontree.agent.hand import Hand, in_background, in_thread
from sessiontree.agent.live import Live
from sessiontree.compacting import (
    Compacted,
    Pruned,
    Summarizer,
    Window,
    after_overflow,
    make_room,
    policy_of,
    should_compact,
)
from sessiontree.entries import Entry
from sessiontree.models import Model
from sessiontree.session import Branch, Session
from sessiontree.settings import Settings


class Relieved(Struct, frozen=True):
    """What made room, and the entries that were written for it."""

    done: Compacted | Pruned
    entries: tuple[Entry, ...]


class Relief:
    """Makes room on one branch for one model."""

    def __init__(
        self,
        place: Branch | Session,
        live: Live,
        model: Model,
        settings: Settings,
        summarizer: Summarizer | None = None,
    ) -> None:
        self._place, self._live = place, live
        self._session = place if isinstance(place, Session) else place.session
        self._settings = settings.compaction.for_model(model.name)
        self._policy = policy_of(self._settings)
        self._window = Window(model.facts.window, model.facts.output, model.name.replace(":", "/", 1))
        self._summarizer = summarizer

    @property
    def is_automatic(self) -> bool:
        """Whether the settings let room be made at all without being asked."""
        return self._policy.limit(self._window) is not None

    async def is_due(self) -> bool:
        """Whether it is time to make room."""
        limit = self._policy.limit(self._window)
        if limit is None:
            return False
        counted, estimated = self._live.sizes()
        if (counted > limit) == (estimated > limit):
            return counted > limit
        ask = functools.partial(should_compact, policy=self._policy, branch=Hand(self._place))
        return await in_thread(ask, self._session, self._window)

    async def make_room(self) -> Relieved | None:
        """Do what is needed: prune, compact, or nothing."""
        how = {**self._how(), "pruning": self._settings.prune}
        return await self._do(lambda hand: make_room(self._session, self._window, branch=hand, **how))

    async def after_overflow(self) -> Relieved | None:
        """Compact although it was not time: the window is smaller than known, so at most half is kept."""
        how = self._how()
        how["keep"] = min(how["keep"], min(self._live.sizes()) // 2)
        return await self._do(lambda hand: after_overflow(self._session, window=self._window, branch=hand, **how))

    def _how(self) -> dict[str, Any]:
        return {
            "policy": self._policy,
            "keep": self._settings.keep_recent_tokens,
            "instructions": self._settings.instructions,
            "summarizer": self._summarizer,
        }

    async def _do(self, work: Callable[[Hand], Compacted | Pruned | None]) -> Relieved | None:
        entries: list[Entry] = []
        hand = Hand(self._place, entries.append)
        try:
            done = await in_background(work, hand)
        finally:
            await in_thread(hand.close)
            self._live.forget()
        return Relieved(done, tuple(entries)) if done is not None else None
