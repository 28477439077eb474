"""Search results: hits, and how they were found."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from sessiontree.library.session_store import open_store
from sessiontree.library.summary import Summary
from sessiontree.search.branch_state import BranchState
from sessiontree.search.file_chunks import line_at
from sessiontree.search.query import Query
from sessiontree.search.snippets import Part

if TYPE_CHECKING:
    pass


class Hit(Struct, frozen=True):
    """A matching line of a session."""

    session: Summary
    entry: str
    """Entry id; empty for a line without one (a title, in some formats a label)."""
    offset: int
    """Byte offset of the line."""
    kind: str
    """Kind of text: prompt, answer, thinking, input, output, summary, title, label, context."""
    role: str
    tool: str
    model: str
    time: int | None
    """Milliseconds since 1970."""
    is_error: bool
    branch: BranchState
    snippet: tuple[Part, ...]
    score: float
    command: tuple[str, ...]
    """The command that shows the hit."""
    is_partial: bool = False
    """Whether the line has only some of the words, and other lines of the session have the rest."""


class Unsearched(Struct, frozen=True):
    """Sessions that a search did not reach, or read only in part."""

    sessions: int = 0
    size: int = 0
    """Their size in bytes."""


class Results(Iterator[Hit]):
    """Hits, the best sessions first, with notes and statistics of the search."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.notes: list[str] = list(query.notes)
        """Messages to the user: what was not read as typed, what was not searched."""
        self.state: Literal["index", "scan", "mixed"] = "index"
        """Whether the index answered, the files were scanned, or both."""
        self.unindexed = 0
        """Bytes that are not in the index yet."""
        self.is_complete = True
        """Whether every session was searched as far as this page needs it; False if a limit was reached before."""
        self.unsearched = Unsearched()
        """What was not searched, if a limit was reached."""
        self.unreadable: list[str] = []
        """References of sessions that could not be read."""
        self.more: dict[str, int] = {}
        """By reference, how many further hits a session has, which `session:` shows."""
        self.more_at_least: set[str] = set()
        """The references of `more` whose session may have even more hits, because counting them all takes long."""
        self.sessions = 0
        """Sessions that may match, according to the index."""
        self.offset = 0
        self.next_offset: int | None = None
        """Offset of the next page; None at the end."""
        self.seconds = 0.0
        self._hits: list[Hit] = []
        self._at = 0

    def __next__(self) -> Hit:
        if self._at >= len(self._hits):
            raise StopIteration
        self._at += 1
        return self._hits[self._at - 1]

    def __len__(self) -> int:
        return len(self._hits)

    def set_hits(self, hits: Iterable[Hit]) -> None:
        self._hits = list(hits)


def read_hit(hit: Hit) -> bytes:
    """Read the line of a hit as it is in the file now."""
    with contextlib.closing(open_store(hit.session)) as store:
        return line_at(store, hit.offset)
