"""Buffer for the results of one response, until all of its tool calls are answered.

Neovate stores all results of a turn in one message, and leaves out a response with an unanswered call. Entries between
the results wait until the line of results is written.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sessiontree.dialects.neovate.content import Call, interrupted_result
from sessiontree.dialects.neovate.metadata_lines import Position, TurnTrace
from sessiontree.dialects.neovate.records import string


class PendingLine(Struct, frozen=True):
    """A line that is complete except for its parent."""

    fields: dict[str, Any]
    uuid: str
    """Empty for a metadata line."""
    count: int
    """Number of results of this turn before it."""


class ResultBuffer:
    """A response with tool calls, and the entries after it so far."""

    def __init__(self, assistant: str, calls: dict[str, Call]) -> None:
        self.assistant = assistant
        self.calls = calls
        self.uuid: str | None = None
        """The line of results, as soon as it has a uuid."""
        self.timestamp = ""
        self.line_fields: dict[str, Any] = {}
        self.marks: dict[str, Any] = {}
        self.parts: list[dict[str, Any]] = []
        self.passthroughs: list[dict[str, Any]] = []
        self.pending: list[PendingLine] = []
        self.trace = TurnTrace(assistant)
        self._open = dict(calls)

    def is_continued_by(self, parent: str | None) -> bool:
        """Whether an entry with this parent follows everything so far."""
        count = parent.entry_count if isinstance(parent, Position) and parent.trace is self.trace else 0
        return parent == self.tail and count == len(self.trace.entries)

    def add_entry(self, lines: tuple[str, ...], metadata_id: str = "") -> str:
        """Record an entry by its lines (a result has none); returns the parent id for the next entry."""
        self.trace.entries.append(lines)
        if not lines:
            self.trace.through_last_result = len(self.trace.entries)
        return Position(self.tail, metadata_id, self.trace, len(self.trace.entries))

    @property
    def tail(self) -> str:
        """The uuid of the last line of the turn."""
        results = self.uuid or self.assistant
        return next((line.uuid for line in reversed(self.pending) if line.uuid), results) if self.pending else results

    @property
    def is_answered(self) -> bool:
        return not self._open

    @property
    def is_started(self) -> bool:
        """Whether there are any results, or lines that wait for them."""
        return self.uuid is not None or bool(self.pending)

    def is_open(self, call: str) -> bool:
        return call in self._open

    def answer(self, call: str, part: dict[str, Any], passthrough: dict[str, Any]) -> None:
        del self._open[call]
        self.parts.append(part)
        self.passthroughs.append(passthrough)

    def copy_result(self, part: dict[str, Any]) -> None:
        """Add a copy of a result of another branch after the same response."""
        call = string(part, "toolCallId")
        if call in self._open:
            self.answer(call, part, {"copy": True})
            self.trace.copied_results += 1

    def fill_missing(self) -> int:
        """Answer the open calls as Neovate answers those of an interrupted turn; returns their number."""
        count = len(self._open)
        for id, call in self._open.items():
            self.parts.append(interrupted_result(id, call))
            self.passthroughs.append({"filler": True})
        self._open = {}
        return count

    @property
    def own_results(self) -> int:
        """The number of results that are neither generated nor copied from another branch."""
        return sum(
            1 for passthrough in self.passthroughs if not passthrough.get("filler") and not passthrough.get("copy")
        )

    @property
    def body(self) -> dict[str, Any]:
        return {"role": "tool", "content": self.parts, **self.line_fields}
