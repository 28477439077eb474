"""The contents that a compaction may keep: Qwen Code replaces the whole history, so kept contents are written again.

An encoder cannot read what it has written, and a later compaction may keep any entry. So the latest contents are held
in memory, up to a size far beyond what a compaction keeps. In an existing file they are read from the file.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.qwen.content import calls_of, results_of
from sessiontree.dialects.qwen.records import MESSAGE

MAX_BYTES = 64 * 1024 * 1024


class KeptContents:
    """The records written so far: the content of each, and the record before it."""

    def __init__(self, lines: IndexedLines | None) -> None:
        self._lines = lines
        self._before: dict[str, str | None] = {}
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def add(self, id: str, parent: str | None, content: dict[str, Any] | None) -> None:
        self._before[id] = parent
        if content is None:
            return
        raw = self._contents[id] = render_json(content)
        self._size += len(raw)
        while self._size > MAX_BYTES and len(self._contents) > 1:
            _, oldest = self._contents.popitem(last=False)
            self._size -= len(oldest)

    def find(self, first: str, last: str | None) -> list[dict[str, Any]]:
        """The contents from one record to another; none if the first is not an ancestor of the last.

        Left out: results whose calls are not kept.
        """
        found: list[dict[str, Any]] = []
        seen: set[str] = set()
        while last is not None and last not in seen:
            seen.add(last)
            content = self._content(last)
            if content:
                found.append(content)
            if last == first:
                return _with_calls(found[::-1])
            last = self._before[last] if last in self._before else self._before_in_file(last)
        return []

    def _content(self, id: str) -> dict[str, Any]:
        if id in self._contents:
            return parse_object(self._contents[id])
        node = self._lines.tree.node_of.get(id) if self._lines is not None else None
        if self._lines is None or node is None or self._lines.types[node] != MESSAGE:
            return {}
        content = self._lines.fields([node])[0].get("message")
        return content if isinstance(content, dict) else {}

    def _before_in_file(self, id: str) -> str | None:
        lines = self._lines
        node = lines.tree.node_of.get(id) if lines is not None else None
        parent = lines.tree.parent(node) if lines is not None and node is not None else None
        return None if lines is None or parent is None else lines.tree.ids[parent]


def _with_calls(contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    calls: set[str] = set()
    kept: list[dict[str, Any]] = []
    for content in contents:
        calls |= calls_of(content).keys()
        if results_of(content) <= calls:
            kept.append(content)
    return kept
