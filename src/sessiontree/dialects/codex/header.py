"""The header of a rollout, and facts about the session."""

from __future__ import annotations

import re
from typing import Any

from sessiontree.core.entries import Entry, ForkOrigin, Header, SessionInfo
from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.codex.items import string
from sessiontree.dialects.codex.records import META, is_record
from sessiontree.dialects.contract import CERTAIN, ClientNotes, IndexedLines
from sessiontree.dialects.defaults import DefaultFacts, head_records

_LIKELY = 60
_beginning = re.compile(
    rb'\s*\{\s*"timestamp"\s*:\s*"[^"]{1,40}"\s*,\s*(?:"ordinal"\s*:\s*\d+\s*,\s*)?"type"\s*:\s*"session_meta"\s*,'
)
"""The beginning of a header, which may be longer than the part of the file that is looked at."""


def recognize(head: bytes) -> int:
    records = head_records(head)
    if _beginning.match(head.removeprefix(b"\xef\xbb\xbf")):
        return CERTAIN
    if any(record.get("type") == META and _has_id(record) for record in records):
        return CERTAIN
    return _LIKELY if any(is_record(record) and "timestamp" in record for record in records) else 0


def _has_id(record: dict[str, Any]) -> bool:
    payload = record.get("payload")
    return isinstance(payload, dict) and isinstance(payload.get("id"), str)


def parse_header(fields: dict[str, Any]) -> Header | None:
    """Parse a header; None without an id."""
    payload = fields["payload"]
    id = string(payload, "id")
    if not id:
        return None
    origin = string(payload, "forked_from_id")
    return Header(
        id=id,
        timestamp=iso_time(payload.get("timestamp") or fields.get("timestamp")),
        cwd=string(payload, "cwd"),
        forked_from=ForkOrigin(origin) if origin else None,
    )


def meta_of(raw: bytes) -> dict[str, Any]:
    """The content of a header line; empty for any other line."""
    fields = parse_object(raw)
    payload = fields.get("payload")
    return payload if fields.get("type") == META and isinstance(payload, dict) else {}


def is_paginated(meta: dict[str, Any]) -> bool:
    return meta.get("history_mode") == "paginated"


def subagent_parent(meta: dict[str, Any]) -> str:
    """The thread that started this one as a sub-agent; empty for any other thread."""
    parent = string(meta, "parent_thread_id")
    source = meta.get("source")
    if not isinstance(source, dict) or "subagent" not in source:
        return parent
    started = source["subagent"]
    spawn = started.get("thread_spawn") if isinstance(started, dict) else None
    return parent or (string(spawn, "parent_thread_id") if isinstance(spawn, dict) else "")


class CodexFacts(DefaultFacts):
    """Facts from the header line, and from lines of ours."""

    @property
    def title(self) -> str | None:
        entry: Entry | None = self.last_of("session_info")
        name = entry.name if isinstance(entry, SessionInfo) else None
        return " ".join((name or "").split()) or None

    @property
    def git_branch(self) -> str | None:
        git = header_meta(self.lines).get("git")
        return (string(git, "branch") or None) if isinstance(git, dict) else None

    @property
    def client_notes(self) -> ClientNotes:
        meta = header_meta(self.lines)
        role = string(meta, "agent_role") or string(meta, "agent_nickname")
        return ClientNotes(agent=role or None, parent=subagent_parent(meta) or None)


def header_meta(lines: IndexedLines) -> dict[str, Any]:
    """The content of the header of a session; empty without a header."""
    payload = lines.header_fields.get("payload")
    return payload if isinstance(payload, dict) else {}
