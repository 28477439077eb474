"""The lines that a compaction may keep: Neovate's compaction starts a new root, so kept messages are written again.

An encoder cannot read what it has written, and a later compaction may keep any line. So the latest lines are held in
memory, up to a size far beyond what a compaction keeps; of older lines only the order is kept. In an existing file,
lines are read from the file.
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
from sessiontree.dialects.neovate.path import find_summarized_end
from sessiontree.dialects.neovate.records import MESSAGE, is_compaction, is_result, parts, string

MAX_BYTES = 64 * 1024 * 1024
"""Maximum size in bytes of the lines held in memory."""


class EntryLine(Struct, frozen=True, gc=False):
    """The first line of an encoded entry, or for a metadata line the message it follows."""

    uuid: str | None
    is_metadata: bool = False


class KeptMessages:
    """The lines written so far, each with the one before it in the conversation."""

    def __init__(self, lines: IndexedLines | None) -> None:
        self._lines = lines
        self._before: dict[str, str | None] = {}
        self._raw: OrderedDict[str, bytes] = OrderedDict()  # removing the first item of a plain dict gets slow
        self._size = 0
        self.copies: dict[str, str] = {}
        """Lines that repeat one of another branch -> that line."""

    def add(self, uuid: str, before: str | None, raw: bytes) -> None:
        self._before[uuid] = before
        self._raw[uuid] = raw
        self._size += len(raw)
        while self._size > MAX_BYTES and len(self._raw) > 1:
            _, oldest = self._raw.popitem(last=False)
            self._size -= len(oldest)

    def find(self, first: EntryLine, last: str | None) -> tuple[list[dict[str, Any]], bool]:
        """The lines to repeat, from the first kept one to the last, and whether all of them are still available.

        Left out: earlier compactions with what they repeat, system prompts, and results whose call is not kept.
        """
        uuids = self._range(first, last)
        found = [self.fields(uuid) for uuid in uuids]
        available = [fields for fields in found if fields is not None]
        calls: set[str] = set()
        kept: list[dict[str, Any]] = []
        # Earlier compactions and what they repeat: its originals are before them. A line that is gone may be one.
        compacted = {uuid for uuid, fields in zip(uuids, found, strict=True) if fields is None}
        for fields in available:
            calls |= calls_of(fields).keys()
            answered = {string(part, "toolCallId") for part in parts(fields.get("content")) if is_result(part)}
            parent = string(fields, "parentUuid")
            if (is_compaction(fields) and not parent) or (marks_of(fields).get("copy") is True and parent in compacted):
                compacted.add(string(fields, "uuid"))
            elif fields.get("role") != "system" and answered <= calls:
                kept.append(fields)
        return kept, len(available) == len(found)

    def _range(self, first: EntryLine, last: str | None) -> list[str]:
        """The lines from `first` to `last`; none when `first` is not an ancestor of `last`."""
        found: list[str] = []
        for uuid in self._iter_back(last):
            if any(original == first.uuid for original in self._iter_originals(uuid)):
                return (found if first.is_metadata else [*found, uuid])[::-1]
            found.append(uuid)
        return found[::-1] if first.uuid is None and first.is_metadata else []

    def _iter_originals(self, uuid: str) -> Iterator[str]:
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
        before = find_summarized_end(lines, node) if parent is None else parent
        return None if before is None else lines.tree.ids[before]

    def fields(self, uuid: str) -> dict[str, Any] | None:
        """Return a decoded line; None when it is no longer held."""
        raw = self._raw.get(uuid)
        if raw is not None:
            fields: dict[str, Any] = parse_json(raw)
            return fields
        node = self._lines.tree.node_of.get(uuid) if self._lines is not None else None
        return next(self._lines.resolved_fields([node])) if self._lines is not None and node is not None else None
