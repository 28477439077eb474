"""Format detection, and facts about a session: its id, origin, settings and title."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from sessiontree.core.entries import Config, ConfigChange, ForkOrigin, Header, SessionInfo
from sessiontree.core.ids import iso_time
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.defaults import head_records
from sessiontree.dialects.neovate.records import INTERRUPTION, MESSAGE, is_record, parts, string

# A first line that is longer than the head: Neovate writes the keys of a line in this order.
_LONG_FIRST_LINE = (
    rb'\s*\{\s*(?:"type"\s*:\s*"config"\s*,\s*"config"\s*:\s*\{'
    rb'|"parentUuid"\s*:\s*(?:null|"[^"]*")\s*,\s*"uuid"\s*:\s*"[^"]+"\s*,\s*"role"\s*:\s*")'
)
_LONGEST_TITLE = 50
_STEP = 32
_SHELL_ECHO = r"\s*<bash-(?:input|stdout|stderr)>"


def recognize(head: bytes) -> int:
    records = head_records(head)
    if any(record.get("type") == "session" or _is_claude_line(record) for record in records):
        return 0
    if any(map(_is_typical, records)) or (not records and re.match(_LONG_FIRST_LINE, head)):
        return 60
    return 10 if any(map(is_record, records)) else 0


def _is_typical(fields: dict[str, Any]) -> bool:
    if fields.get("type") == MESSAGE:
        return isinstance(fields.get("uuid"), str) and isinstance(fields.get("role"), str)
    return fields.get("type") == "config" and isinstance(fields.get("config"), dict) and "id" not in fields


def _is_claude_line(fields: dict[str, Any]) -> bool:
    return fields.get("type") in ("user", "assistant") and "uuid" in fields


def _message_nodes(lines: IndexedLines) -> list[int]:
    return [node for node, kind in enumerate(lines.types) if kind == MESSAGE]


def find_header(lines: IndexedLines) -> Header | None:
    """The session id of the last message, else the name of the file."""
    if not lines.types:
        return None
    nodes = _message_nodes(lines)
    if not nodes:
        return Header(id=_stem(lines.location))
    first, last = lines.fields([nodes[0], nodes[-1]])
    return Header(
        id=string(last, "sessionId") or _stem(lines.location),
        timestamp=iso_time(first.get("timestamp")),
        forked_from=_fork_origin(lines, nodes, first),
    )


def _stem(location: str) -> str:
    return os.path.splitext(os.path.basename(location))[0]


def _fork_origin(lines: IndexedLines, nodes: Sequence[int], first: dict[str, Any]) -> ForkOrigin | None:
    """The origin of a fork: the mark of the last copied message. All copied messages precede the new ones."""
    if _fork_mark(first) is None:
        return None
    copied = bisect_left(nodes, True, key=lambda node: _fork_mark(lines.fields([node])[0]) is None)
    mark = _fork_mark(lines.fields([nodes[copied - 1]])[0]) if copied else None
    return ForkOrigin(string(mark, "sessionId"), string(mark, "messageUuid") or None) if mark else None


def _fork_mark(fields: dict[str, Any]) -> dict[str, Any] | None:
    mark = fields.get("forkedFrom")
    return mark if isinstance(mark, dict) else None


def find_config(lines: IndexedLines) -> Config:
    """The settings on the first config line, the only one that counts."""
    for node, kind in enumerate(lines.types):
        if kind == "config" and lines.fields([node])[0].get("type") == "config":
            (entry,) = lines.entries([node])
            return entry.config if isinstance(entry, ConfigChange) else Config()
    return Config()


def find_title(lines: IndexedLines) -> str | None:
    """The newest title line, else the title in the settings, else the start of the first prompt."""
    return find_given_title(lines) or next(_iter_prompts(lines), None)


def find_given_title(lines: IndexedLines) -> str | None:
    """The newest title line, else the title in the settings."""
    for node in range(len(lines.types) - 1, -1, -1):
        if lines.types[node] == "session_info":
            (entry,) = lines.entries([node])
            if isinstance(entry, SessionInfo) and entry.name:
                return entry.name
    return find_config(lines).summary or None


def _iter_prompts(lines: IndexedLines) -> Iterator[str]:
    """Iterate over the user's prompts, truncated to a title: without shell output, interruptions and hidden text."""
    nodes = _message_nodes(lines)
    for start in range(0, len(nodes), _STEP):
        for fields in lines.fields(nodes[start : start + _STEP]):
            text = " ".join(_shown_text(fields).split())
            if fields.get("role") == "user" and text and text != INTERRUPTION and not re.match(_SHELL_ECHO, text):
                yield text if len(text) <= _LONGEST_TITLE else f"{text[:_LONGEST_TITLE]}..."


def _shown_text(fields: dict[str, Any]) -> str:
    content = fields.get("content")
    if isinstance(content, str):
        return content
    shown = [part for part in parts(content) if isinstance(part, dict) and not part.get("hidden")]
    return " ".join(string(part, "text") for part in shown if part.get("type") == "text")
