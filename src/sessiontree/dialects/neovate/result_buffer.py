"""The results of one answer, gathered until all of its calls are answered.

Neovate keeps all results of a turn in one message, and leaves out an answer of which a call has no result. Whatever
comes between the results waits behind them.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sessiontree.dialects.neovate.content import Call, missing_result
from sessiontree.dialects.neovate.metadata_lines import Behind, Trace
from sessiontree.dialects.neovate.records import string


class Pending(Struct, frozen=True):
    """A line that is ready but for its parent."""

    fields: dict[str, Any]
    uuid: str
    """Empty for an aside."""
    place: int
    """How many results of this turn stood before it."""


class Turn:
    """An answer with calls, and what came behind it so far."""

    def __init__(self, assistant: str, calls: dict[str, Call]) -> None:
        self.assistant = assistant
        self.calls = calls
        self.uuid: str | None = None
        """The line of its results, once there is one."""
        self.timestamp = ""
        self.around: dict[str, Any] = {}
        self.marks: dict[str, Any] = {}
        self.parts: list[dict[str, Any]] = []
        self.passthroughs: list[dict[str, Any]] = []
        self.waiting: list[Pending] = []
        self.trace = Trace(assistant)
        self._open = dict(calls)

    def is_followed_by(self, parent: str | None) -> bool:
        """Whether what has this parent goes on behind all that came so far."""
        place = parent.place if isinstance(parent, Behind) and parent.trace is self.trace else 0
        return parent == self.tail and place == len(self.trace.items)

    def came(self, lines: tuple[str, ...], aside: str = "") -> str:
        """Remember the item that came last, by its lines, of which a result has none; the parent of what follows."""
        self.trace.items.append(lines)
        if not lines:
            self.trace.gathered = len(self.trace.items)
        return Behind(self.tail, aside, self.trace, len(self.trace.items))

    @property
    def tail(self) -> str:
        """The id that what comes next has to name as its parent to belong here."""
        results = self.uuid or self.assistant
        return next((line.uuid for line in reversed(self.waiting) if line.uuid), results) if self.waiting else results

    @property
    def is_answered(self) -> bool:
        return not self._open

    @property
    def is_under_way(self) -> bool:
        """Whether lines wait for its results, or some results for the others."""
        return self.uuid is not None or bool(self.waiting)

    def is_open(self, call: str) -> bool:
        return call in self._open

    def answer(self, call: str, part: dict[str, Any], passthrough: dict[str, Any]) -> None:
        del self._open[call]
        self.parts.append(part)
        self.passthroughs.append(passthrough)

    def repeat(self, part: dict[str, Any]) -> None:
        """Take over a result of another branch behind the same answer."""
        call = string(part, "toolCallId")
        if call in self._open:
            self.answer(call, part, {"copy": True})
            self.trace.repeated += 1

    def fill(self) -> int:
        """Answer the calls that are left as Neovate answers those of an interrupted turn; how many there were."""
        count = len(self._open)
        for id, call in self._open.items():
            self.parts.append(missing_result(id, call))
            self.passthroughs.append({"filler": True})
        self._open = {}
        return count

    @property
    def given(self) -> int:
        """How many results someone gave, on this branch."""
        return sum(
            1 for passthrough in self.passthroughs if not passthrough.get("filler") and not passthrough.get("copy")
        )

    @property
    def body(self) -> dict[str, Any]:
        return {"role": "tool", "content": self.parts, **self.around}
