"""Build hits from matching lines, with the facts that need another read of the file: branch, and tool of a result."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from sessiontree.core.entries import milliseconds
from sessiontree.dialects.texts import Line
from sessiontree.errors import SessionTreeError
from sessiontree.library.session_store import open_store
from sessiontree.library.summary import Summary
from sessiontree.search.branch_state import BranchMap, BranchState, load_branches
from sessiontree.search.indexer import FileTexts, Index, IndexPart
from sessiontree.search.matcher import Match
from sessiontree.search.results import Hit
from sessiontree.search.snippets import snippet

if TYPE_CHECKING:
    from sessiontree.library.library import Library


class LineMatch(Struct, frozen=True):
    """A line that matches the query: its position in the file, its score, and where in it the words are."""

    line_score: float
    offset: int
    line: Line
    found: Match


class Group(Struct, frozen=True):
    """The best lines of one session."""

    summary: Summary
    file: int | None
    """File number in the index, if there is one."""
    score: float
    matches: list[LineMatch]
    is_partial: bool = False
    more: int = 0
    """Further matching lines that were found, and are not among `matches`."""


class HitBuilder:
    def __init__(self, library: Library, parts: Sequence[IndexPart]) -> None:
        self._library = library
        self._parts = parts

    def build(self, found: Sequence[tuple[Group, LineMatch]]) -> Iterator[Hit]:
        opened: dict[str, tuple[BranchMap, FileTexts]] = {}
        with contextlib.ExitStack() as stores:
            for group, match in found:
                summary = group.summary
                if summary.ref not in opened:
                    store = stores.enter_context(contextlib.closing(open_store(summary)))
                    try:
                        size = store.size()
                    except SessionTreeError:
                        continue  # deleted meanwhile
                    branches = load_branches(self._index_of(summary).store, group.file, summary, size)
                    opened[summary.ref] = branches, FileTexts(summary.agent, summary.ref, store)
                branches, texts = opened[summary.ref]
                text = match.found.text
                tool = text.tool or texts.tool_of(text, match.offset)
                yield self._hit(group, match, tool, branches.state(match.offset))

    def _index_of(self, summary: Summary) -> Index:
        is_of_home = self._library.is_stored(summary)
        return next(part.index for part in self._parts if part.is_of_home == is_of_home)

    def _hit(self, group: Group, match: LineMatch, tool: str, state: BranchState) -> Hit:
        summary, line, found = group.summary, match.line, match.found
        command = ("sessiontree", "show", summary.ref, *(("--leaf", line.id) if line.id and state != "active" else ()))
        return Hit(
            session=summary,
            entry=line.id,
            offset=match.offset,
            kind=found.text.kind,
            role=found.text.role,
            tool=tool,
            model=line.model,
            time=milliseconds(line.time) if line.time else None,
            is_error=found.text.is_error,
            branch=state,
            snippet=snippet(found.content, found.spans),
            score=round(group.score, 4),
            command=command,
            is_partial=group.is_partial,
        )
