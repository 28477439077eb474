"""Recognition of Qwen Code's files, the header of a session, and facts about it."""

from __future__ import annotations

import os
from typing import Any

from sessiontree.core.entries import ForkOrigin, Header
from sessiontree.core.ids import iso_time
from sessiontree.dialects.contract import CERTAIN, IndexedLines
from sessiontree.dialects.defaults import DefaultFacts, head_records
from sessiontree.dialects.qwen.content import string
from sessiontree.dialects.qwen.records import PARENT_SESSION, is_record

_LIKELY = 60
_STEP = 64


def recognize(head: bytes) -> int:
    records = [record for record in head_records(head) if is_record(record)]
    if any(map(_has_parts, records)):
        return CERTAIN
    if any(isinstance(record.get("systemPayload"), dict) and "subtype" in record for record in records):
        return _LIKELY
    is_cut = not records and b'"parentUuid":' in head and b'"parts":[' in head and b'"sessionId":' in head
    return _LIKELY if is_cut else 0  # the first line is longer than the head


def _has_parts(record: dict[str, Any]) -> bool:
    message = record.get("message")
    return isinstance(message, dict) and message.get("role") in ("user", "model") and "parts" in message


def find_header(lines: IndexedLines) -> Header | None:
    """The header, from the first record."""
    if not lines.types:
        return None
    (first,) = lines.fields([0])
    stem = os.path.splitext(os.path.basename(lines.location))[0]
    return Header(
        id=string(first, "sessionId") or stem,
        timestamp=iso_time(first.get("timestamp")),
        cwd=string(first, "cwd"),
        parent_session=_find_parent(lines),
        forked_from=_find_origin(lines, first),
    )


def _find_parent(lines: IndexedLines) -> str | None:
    node = next((node for node, kind in enumerate(lines.types) if kind == PARENT_SESSION), None)
    payload = None if node is None else lines.fields([node])[0].get("systemPayload")
    return (string(payload, "parentSessionId") or None) if isinstance(payload, dict) else None


def _find_origin(lines: IndexedLines, first: dict[str, Any]) -> ForkOrigin | None:
    """The origin of a fork: each copied record names the one it is a copy of."""
    if not isinstance(first.get("forkedFrom"), dict):
        return None
    origin: ForkOrigin | None = None
    for start in range(0, len(lines.types), _STEP):
        for fields in lines.fields(range(start, min(start + _STEP, len(lines.types)))):
            mark = fields.get("forkedFrom")
            if not isinstance(mark, dict):
                return origin
            origin = ForkOrigin(string(mark, "sessionId"), string(mark, "messageUuid") or None)
    return origin


class QwenFacts(DefaultFacts):
    @property
    def git_branch(self) -> str | None:
        count = len(self.lines.types)
        return (string(self.lines.fields([count - 1])[0], "gitBranch") or None) if count else None
