"""The report of a conversion: what was carried over, mapped, changed, kept as passthrough data, and dropped."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct

from sessiontree.core.messages import BLOCK_TYPES
from sessiontree.dialects.canonical import CanonicalEntry, LossNote, NoteKind

_ORDER: tuple[NoteKind, ...] = ("dropped", "changed", "mapped", "aside")


class Line(Struct, frozen=True):
    """One kind of loss or change, and how often it occurred."""

    kind: NoteKind
    what: str
    why: str
    count: int


class Report:
    """Filled while the lines of a conversion are iterated."""

    def __init__(self, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.carried: Counter[str] = Counter()
        """Counts of what was carried over: messages by role, blocks and other entries by type."""
        self._notes: Counter[LossNote] = Counter()

    @property
    def notes(self) -> list[Line]:
        """Losses and changes, the worst first."""
        lines = [Line(note.kind, note.what, note.why, count) for note, count in self._notes.items()]
        return sorted(lines, key=lambda line: (_ORDER.index(line.kind), line.what, line.why))

    @property
    def dropped(self) -> list[Line]:
        """Content that the target does not have at all."""
        return [line for line in self.notes if line.kind == "dropped"]

    def note(self, note: LossNote) -> None:
        self._notes[note] += 1

    def count(self, entry: CanonicalEntry) -> None:
        message = entry.fields.get("message")
        if entry.kind != "message" or not isinstance(message, dict):
            self.carried[entry.kind] += 1
            return
        self.carried[str(message.get("role"))] += 1
        content = message.get("content")
        if isinstance(content, list):
            for block in content:
                kind = block.get("type") if isinstance(block, dict) else None
                if kind != "text" and isinstance(kind, str) and kind in BLOCK_TYPES:
                    self.carried[kind] += 1

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "carried": dict(sorted(self.carried.items())),
            "notes": [
                {"kind": line.kind, "what": line.what, "why": line.why, "count": line.count} for line in self.notes
            ],
        }
