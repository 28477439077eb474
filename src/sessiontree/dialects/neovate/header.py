"""What the lines tell of a session: whether it is one of Neovate, its id, its origin, its settings."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from sessiontree.core.entries import Config, ConfigChange, ForkOrigin, Header
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.detect import head_records
from sessiontree.dialects.neovate.records import MESSAGE, is_record, string

# A first line that is longer than the head: Neovate writes the keys of a line in this order.
_LONG_FIRST_LINE = (
    rb'\s*\{\s*(?:"type"\s*:\s*"config"\s*,\s*"config"\s*:\s*\{'
    rb'|"parentUuid"\s*:\s*(?:null|"[^"]*")\s*,\s*"uuid"\s*:\s*"[^"]+"\s*,\s*"role"\s*:\s*")'
)


def recognize(head: bytes) -> int:
    records = head_records(head)
    if any(record.get("type") == "session" or _is_claude_line(record) for record in records):
        return 0
    if any(map(_is_sure_sign, records)) or (not records and re.match(_LONG_FIRST_LINE, head)):
        return 60
    return 10 if any(map(is_record, records)) else 0


def _is_sure_sign(fields: dict[str, Any]) -> bool:
    if fields.get("type") == MESSAGE:
        return isinstance(fields.get("uuid"), str) and isinstance(fields.get("role"), str)
    return fields.get("type") == "config" and isinstance(fields.get("config"), dict) and "id" not in fields


def _is_claude_line(fields: dict[str, Any]) -> bool:
    return fields.get("type") in ("user", "assistant") and "uuid" in fields


def messages_in(lines: IndexedLines) -> list[int]:
    """The nodes of all messages, in file order."""
    return [node for node, kind in enumerate(lines.types) if kind == MESSAGE]


def find_header(lines: IndexedLines) -> Header | None:
    """The session's id as its last message gives it, else the name of the file."""
    if not lines.types:
        return None
    nodes = messages_in(lines)
    if not nodes:
        return Header(id=_stem(lines.location))
    first, last = lines.fields([nodes[0], nodes[-1]])
    return Header(
        id=string(last, "sessionId") or _stem(lines.location),
        timestamp=string(first, "timestamp"),
        forked_from=_fork_origin(lines, nodes, first),
    )


def _stem(location: str) -> str:
    return os.path.splitext(os.path.basename(location))[0]


def _fork_origin(lines: IndexedLines, nodes: Sequence[int], first: dict[str, Any]) -> ForkOrigin | None:
    """Where a session was forked. The copied messages carry the mark, and all of them stand before the new ones."""
    if _fork_mark(first) is None:
        return None
    copied = bisect_left(nodes, True, key=lambda node: _fork_mark(lines.fields([node])[0]) is None)
    mark = _fork_mark(lines.fields([nodes[copied - 1]])[0]) if copied else None
    return ForkOrigin(string(mark, "sessionId"), string(mark, "messageUuid") or None) if mark else None


def _fork_mark(fields: dict[str, Any]) -> dict[str, Any] | None:
    mark = fields.get("forkedFrom")
    return mark if isinstance(mark, dict) else None


def first_config(lines: IndexedLines) -> ConfigChange | None:
    """The first config line: the one that counts."""
    for node, kind in enumerate(lines.types):
        if kind == "config" and lines.fields([node])[0].get("type") == "config":
            (entry,) = lines.entries([node])
            return entry if isinstance(entry, ConfigChange) else None
    return None


def find_config(lines: IndexedLines) -> Config:
    """The settings of the session: those of the first line that has any."""
    entry = first_config(lines)
    return entry.config if entry is not None else Config()
