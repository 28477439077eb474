"""Sub-agents inside of the calls that started them: on branches of the session, in files that belong to it, or in
separate sessions."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any

from markupsafe import Markup

from sessiontree.branches.subagent_branches import TASK_TOOL, find_subagent_branches
from sessiontree.branches.subagent_sessions import (
    SubagentSession,
    find_candidates,
    find_session_of_call,
    list_subagent_sessions,
    open_candidate,
)
from sessiontree.dialects.contract import RelatedFile
from sessiontree.errors import SessionTreeError
from sessiontree.export.html.cards import CardRenderer, group_cards
from sessiontree.export.html.environment import environment
from sessiontree.export.record_builder import gist
from sessiontree.export.records import Call
from sessiontree.export.source import Source
from sessiontree.session.open import open as open_session
from sessiontree.session.session import Session

_DEEPEST = 4
"""Sub-agents of sub-agents that are shown inside of each other."""
_FIRST = 8
"""A sub-agent's branch starts within so many entries of its strand, after settings."""
_END = Markup("</details>")


def opening(name: str | None, words: str, count: int, source: str | None = None) -> Markup:
    """The start of the element of a sub-agent. With `source`, a page loads its cards from there."""
    macros: Any = environment().get_template("card.html").module
    rendered: Markup = macros.subagent(name, words, count, source)
    return rendered


class Subagents:
    """The sub-agents of a session that is exported.

    Each is shown once: a session that names another in every call, or itself, must not blow up the page.
    """

    def __init__(
        self,
        source: Source,
        render_strand: Callable[[int], Iterator[str]],
        depth: int = 0,
        shown: set[str] | None = None,
    ) -> None:
        """`render_strand` renders a strand of the session by its number; `shown` are references of sessions."""
        self._source, self._render_strand, self._depth = source, render_strand, depth
        self._shown = {source.session.location} if shown is None else shown
        self._strands = _find_strands(source)
        self.waiting = set(self._strands.values())
        """Numbers of strands that will be shown inside of a call, and not yet are."""
        self._files = {file.call: file for file in source.files if file.kind == "subagent" and file.call}

    def render(self, entry: str, call: Call) -> Markup | None:
        """The sub-agent that a call in an entry started; None if there is none."""
        number = self._strands.get(call.id)
        if number in self.waiting:
            return self._render_branch(number)
        session = None if self._depth >= _DEEPEST else self._open(entry, call)
        if session is None:
            return None
        with session:
            return self._render_session(session)

    def _open(self, entry: str, call: Call) -> Session | None:
        """The session of a sub-agent that has one and was not shown yet."""
        caller = self._source.session
        file = self._files.get(call.id)
        if file is not None:
            session = open_subagent(caller.location, caller.id, file)
        else:
            ref = find_session_of_call(caller, self._sessions, entry, call.id) if is_task(call) else None
            session = None if ref is None else open_candidate(caller, ref)
        if session is None:
            return None
        if session.location in self._shown:
            session.close()
            return None
        self._shown.add(session.location)
        return session

    @functools.cached_property
    def _sessions(self) -> list[SubagentSession]:
        caller = self._source.session
        return list_subagent_sessions(caller, find_candidates(caller, caller.header.timestamp))

    def _render_branch(self, number: int) -> Markup:
        self.waiting.discard(number)
        strand = self._source.outline.strands[number]
        first = self._source.first_record(strand)
        start = opening(f"branch-{number}", "" if first is None else gist(first), len(strand.nodes))
        return Markup("").join([start, *map(Markup, self._render_strand(number)), _END])

    def _render_session(self, session: Session) -> Markup:
        source = Source(session, "active", self._source.redactor)
        strand = source.outline.strands[0]
        first = source.first_record(strand)
        start = opening(None, "" if first is None else gist(first), len(strand.nodes))
        nested = Subagents(source, lambda _number: iter(()), self._depth + 1, self._shown)
        renderer = CardRenderer(session.dialect.name, nested.render)
        cards = map(renderer.render, group_cards(source.records(strand)))
        return Markup("").join([start, *cards, _END])


def is_task(call: Call) -> bool:
    """Whether a call may have started a sub-agent of our agent; other agents write its tool's name in their way."""
    return call.name.casefold() == TASK_TOOL


def _find_strands(source: Source) -> dict[str, int]:
    """The strands of sub-agents, by the id of their call."""
    starts = find_subagent_branches(source.session)
    if not starts:
        return {}
    numbers = {
        node: number
        for number, strand in enumerate(source.outline.strands)
        if not strand.active
        for node in strand.nodes[:_FIRST]
    }
    return {call: numbers[node] for call, node in starts.items() if node in numbers}


def open_subagent(location: str, id: str, file: RelatedFile) -> Session | None:
    """Open the transcript of a sub-agent; None if there is none that belongs to the session.

    The session names it, and is not trusted: only a regular file of the expected name counts, in which the session's
    own id is recorded.
    """
    if os.sep in file.name or "\0" in file.name:
        return None
    folder = os.path.realpath(os.path.dirname(location))
    for place in file.places:
        real = os.path.realpath(place)
        is_below = real.startswith(folder.rstrip(os.sep) + os.sep) and os.path.basename(real) == os.path.basename(place)
        try:
            if not is_below or not stat.S_ISREG(os.lstat(place).st_mode):
                continue
            session = open_session(real)
        except (SessionTreeError, OSError):  # it is gone or damaged: the call is shown without it
            continue
        if session.id == id:
            return session
        session.close()
    return None
