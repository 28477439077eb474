"""The items that a compaction may keep: Codex replaces the whole history, so kept items are written again.

An encoder cannot read what it has written, and a later compaction may keep any entry. So the latest items are held in
memory, up to a size far beyond what a compaction keeps. In an existing file, items are read from the file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.dialects.codex.items import CALL_TYPES, OUTPUT_TYPES, Item, string
from sessiontree.dialects.codex.records import COMPACTION, MESSAGE
from sessiontree.dialects.codex.rollbacks import find_history, last_entry
from sessiontree.dialects.contract import IndexedLines

MAX_BYTES = 64 * 1024 * 1024


class KeptItems:
    """The items written so far, by the id of their entry."""

    def __init__(self, lines: IndexedLines | None) -> None:
        self._entries: OrderedDict[str, list[bytes]] = OrderedDict()
        self._size = 0
        if lines is not None:
            self._read(lines)

    def add(self, id: str, items: Sequence[Item]) -> None:
        raw = [render_json(item) for item in items]
        self._entries[id] = raw
        self._size += sum(map(len, raw))
        while self._size > MAX_BYTES and len(self._entries) > 1:
            _, oldest = self._entries.popitem(last=False)
            self._size -= sum(map(len, oldest))

    def find(self, first: str) -> tuple[list[Item], bool]:
        """The items from an entry on, and whether the entry is still available. Outputs need their calls."""
        ids = [*self._entries]
        if first not in self._entries:
            return [], False
        found = [parse_object(raw) for id in ids[ids.index(first) :] for raw in self._entries[id]]
        calls = {string(item, "call_id") for item in found if string(item, "type") in CALL_TYPES}
        return [
            item for item in found if string(item, "type") not in OUTPUT_TYPES or string(item, "call_id") in calls
        ], True

    def _read(self, lines: IndexedLines) -> None:
        for node, fields in _iter_items(lines):
            payload = fields.get("payload")
            if isinstance(payload, dict):
                self.add(lines.tree.ids[node], [payload])


def _iter_items(lines: IndexedLines) -> Iterator[tuple[int, dict[str, object]]]:
    """The last items of the history, as many as are held."""
    nodes = [node for node in find_history(lines, last_entry(lines)) if lines.types[node] in (MESSAGE, COMPACTION)]
    sizes, start, total = lines.sizes(nodes), len(nodes), 0
    while start and lines.types[nodes[start - 1]] == MESSAGE and total + sizes[start - 1] <= MAX_BYTES:
        start -= 1
        total += sizes[start]
    for at in range(start, len(nodes), 256):
        step = nodes[at : at + 256]
        yield from zip(step, lines.fields(step), strict=True)
