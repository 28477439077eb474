"""The lines that a compaction may keep: Neovate's compaction starts anew, so what it keeps is written once more.

Nothing tells beforehand which lines a later compaction will keep, and a encoder cannot read what it has written. So the
latest lines are remembered, up to a size far beyond what anyone keeps; of the older ones only who follows whom. In a
file that is continued the lines are read from it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from sessiontree.core.jsonio import parse_json
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.neovate.content import calls_of
from sessiontree.dialects.neovate.metadata_lines import marks_of
from sessiontree.dialects.neovate.path import find_summarised
from sessiontree.dialects.neovate.records import MESSAGE, is_compaction, is_result, parts, string

REMEMBERED = 64 * 1024 * 1024
"""How many bytes of lines are remembered."""


class Place(Struct, frozen=True, gc=False):
    """What became of an item: the first of its lines, or for an aside the line it stands behind."""

    uuid: str | None
    is_metadata: bool = False


class Kept:
    """The lines written so far, each with the one before it in the conversation."""

    def __init__(self, lines: IndexedLines | None) -> None:
        self._lines = lines
        self._before: dict[str, str | None] = {}
        self._raw: OrderedDict[str, bytes] = OrderedDict()  # a dict is slow to lose its first one again and again
        self._size = 0
        self.copies: dict[str, str] = {}
        """Lines that stand on their branch for one of another branch, and that one."""

    def remember(self, uuid: str, before: str | None, raw: bytes) -> None:
        self._before[uuid] = before
        self._raw[uuid] = raw
        self._size += len(raw)
        while self._size > REMEMBERED and len(self._raw) > 1:
            _, oldest = self._raw.popitem(last=False)
            self._size -= len(oldest)

    def find(self, first: Place, last: str | None) -> tuple[list[dict[str, Any]], bool]:
        """The lines to be repeated, from the first one kept to the last one, and whether all of them are still known.

        Compactions in between have nothing left to say, the system prompt is the new one's, and results whose call is
        not kept would answer nothing.
        """
        uuids = self._range(first, last)
        found = [self.fields(uuid) for uuid in uuids]
        known = [fields for fields in found if fields is not None]
        calls: set[str] = set()
        kept: list[dict[str, Any]] = []
        for fields in known:
            calls |= calls_of(fields).keys()
            answered = {string(part, "toolCallId") for part in parts(fields.get("content")) if is_result(part)}
            if _is_repeated(fields) and answered <= calls:
                kept.append(fields)
        return kept, len(known) == len(found)

    def _range(self, first: Place, last: str | None) -> list[str]:
        """The lines from one to another; none when the first is not on the way."""
        found: list[str] = []
        for uuid in self._iter_back(last):
            if any(meant == first.uuid for meant in self._iter_meanings(uuid)):
                return (found if first.is_metadata else [*found, uuid])[::-1]
            found.append(uuid)
        return found[::-1] if first.uuid is None and first.is_metadata else []

    def _iter_meanings(self, uuid: str) -> Iterator[str]:
        found: str | None = uuid
        while found is not None:
            yield found
            found = self.copies.get(found)

    def _iter_back(self, last: str | None) -> Iterator[str]:
        seen: set[str] = set()
        while last is not None and last not in seen:
            seen.add(last)
            yield last
            last = self._before[last] if last in self._before else self._before_in_file(last)

    def _before_in_file(self, uuid: str) -> str | None:
        lines = self._lines
        node = lines.tree.node_of.get(uuid) if lines is not None else None
        if lines is None or node is None or lines.types[node] != MESSAGE:
            return None
        parent = lines.tree.parent(node)
        before = find_summarised(lines, node) if parent is None else parent
        return None if before is None else lines.tree.ids[before]

    def fields(self, uuid: str) -> dict[str, Any] | None:
        """A line; None when it is not remembered any more."""
        raw = self._raw.get(uuid)
        if raw is not None:
            fields: dict[str, Any] = parse_json(raw)
            return fields
        node = self._lines.tree.node_of.get(uuid) if self._lines is not None else None
        return next(self._lines.resolved_fields([node])) if self._lines is not None and node is not None else None


def _is_repeated(fields: dict[str, Any]) -> bool:
    is_summary = is_compaction(fields) and not string(fields, "parentUuid")
    return not is_summary and fields.get("role") != "system" and marks_of(fields).get("copy") is not True
