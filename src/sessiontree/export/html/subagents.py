"""Sub-agents inside of the calls that started them: on branches of the session, or in files that belong to it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import Any

from markupsafe import Markup

from sessiontree.branches.subagent_branches import find_subagent_branches
from sessiontree.dialects.contract import RelatedFile
from sessiontree.errors import SessionTreeError
from sessiontree.export.html.cards import CardRenderer, group_cards
from sessiontree.export.html.environment import environment
from sessiontree.export.record_builder import gist
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
    """The sub-agents of a session that is exported."""

    def __init__(self, source: Source, render_strand: Callable[[int], Iterator[str]], depth: int = 0) -> None:
        """`render_strand` renders a strand of the session by its number."""
        self._source, self._render_strand, self._depth = source, render_strand, depth
        self._strands = _find_strands(source)
        self.waiting = set(self._strands.values())
        """Numbers of strands that will be shown inside of a call, and not yet are."""
        self._files = {file.call: file for file in source.files if file.kind == "subagent" and file.call}

    def render(self, call: str) -> Markup | None:
        """The sub-agent that a call started; None if there is none."""
        number = self._strands.get(call)
        if number in self.waiting:
            return self._render_branch(number)
        file = self._files.get(call)
        return None if file is None or self._depth >= _DEEPEST else self._render_file(file)

    def _render_branch(self, number: int) -> Markup:
        self.waiting.discard(number)
        strand = self._source.outline.strands[number]
        first = self._source.first_record(strand)
        start = opening(f"branch-{number}", "" if first is None else gist(first), len(strand.nodes))
        return Markup("").join([start, *map(Markup, self._render_strand(number)), _END])

    def _render_file(self, file: RelatedFile) -> Markup | None:
        session = open_subagent(self._source.session.location, self._source.session.id, file)
        if session is None:
            return None
        with session:
            source = Source(session, "active", self._source.redactor)
            strand = source.outline.strands[0]
            first = source.first_record(strand)
            start = opening(None, "" if first is None else gist(first), len(strand.nodes))
            nested = Subagents(source, lambda _number: iter(()), self._depth + 1)
            renderer = CardRenderer(session.dialect.name, nested.render)
            cards = map(renderer.render, group_cards(source.records(strand)))
            return Markup("").join([start, *cards, _END])


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
