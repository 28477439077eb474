"""Format detection of oh-my-pi and xcsh against Pi, the title slot before the header, and the title of a session."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from sessiontree.core.entries import Compaction, Header
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.contract import IndexedLines, is_metadata_id
from sessiontree.dialects.defaults import DefaultFacts

SLOT = "title"
SLOT_SIZE = 256
"""Bytes of the slot, LF included. It is overwritten in place, so this never changes."""

_OWN_HEADER_FIELDS = frozenset(
    {"title", "titleSource", "additionalDirectories", "previousSessionFiles", "providerPromptCacheKey"}
)
_OWN_TYPES = frozenset(
    {
        "credential_pin",
        "mcp_tool_selection",
        "mode_change",
        "model_usage",
        "reset_boundary",
        "service_tier_change",
        "session_init",
        "title_change",
        "ttsr_injection",
    }
)
_OWN_FIELDS = {
    "branch_summary": frozenset({"fromExtension"}),
    "compaction": frozenset(
        {"fromExtension", "method", "preserveData", "providerReplayThroughEntryId", "shortSummary", "tokensAfter"}
    ),
    "custom_message": frozenset({"attribution"}),
    "model_change": frozenset({"model"}),
    "thinking_level_change": frozenset({"configured"}),
}
_OWN_ROLES = ("developer", "fileMention", "pythonExecution")
_SNOWFLAKE = r"[0-9a-f]{16}\Z"
_LONGEST_TIME = 32


def is_title_slot(fields: dict[str, Any]) -> bool:
    """Whether this is the line before the header that holds the title, padded to 256 bytes."""
    return (
        fields.get("type") == SLOT
        and fields.get("v") == 1
        and all(isinstance(fields.get(name), str) for name in ("title", "updatedAt", "pad"))
        and fields.get("source") in (None, "auto", "user")
    )


def render_slot(title: str, source: str | None, updated_at: str) -> bytes:
    """Render a title slot without LF, always of the same size. A title that is too long is cut between characters."""
    fields: dict[str, Any] = {"type": SLOT, "v": 1, "title": title[:SLOT_SIZE]}
    if source is not None:
        fields["source"] = source
    fields["updatedAt"] = updated_at[:_LONGEST_TIME]
    fields["pad"] = ""
    line = render_json(fields)
    while len(line) > SLOT_SIZE - 1:
        fields["title"] = fields["title"][:-1]
        line = render_json(fields)
    fields["pad"] = " " * (SLOT_SIZE - 1 - len(line))
    return render_json(fields)


def is_own_header(fields: dict[str, Any]) -> bool:
    return not _OWN_HEADER_FIELDS.isdisjoint(fields) or re.match(_SNOWFLAKE, fields["id"]) is not None


def is_own_record(fields: dict[str, Any]) -> bool:
    """Whether only oh-my-pi or xcsh writes such an entry."""
    kind, message = fields.get("type"), fields.get("message")
    if not isinstance(kind, str) or not isinstance(fields.get("timestamp"), str | int | float):
        return False
    if kind in _OWN_TYPES or not _OWN_FIELDS.get(kind, frozenset()).isdisjoint(fields):
        return True
    return kind == "message" and isinstance(message, dict) and message.get("role") in _OWN_ROLES


class OhMyPiFacts(DefaultFacts):
    @property
    def title(self) -> str | None:
        """The slot's title, else the header's, else the short summary of the latest compaction that has one."""
        given = self.given_title
        if given is not None:
            return given
        types = self.lines.types
        for node in range(len(types) - 1, -1, -1):
            if types[node] == "compaction":
                (entry,) = self.lines.entries([node])
                if isinstance(entry, Compaction) and entry.short_summary:
                    return entry.short_summary
        return None

    @property
    def given_title(self) -> str | None:
        header = header_with_title(self.lines)
        return header.title or None if header is not None else None


def header_with_title(lines: IndexedLines) -> Header | None:
    """The header with the title of the slot, which the client updates without touching the header."""
    header, slot = lines.header, _slot_title(lines)
    if header is None or slot is None or (slot or None) == header.title:
        return header
    return msgspec.structs.replace(header, title=slot or None)


def _slot_title(lines: IndexedLines) -> str | None:
    """The title in the slot, which may be empty; None without a slot."""
    if not lines.types or lines.types[0] != SLOT or not is_slot_line(lines, 0):
        return None
    return str(lines.fields([0])[0].get("title", ""))


def is_slot_line(lines: IndexedLines, node: int) -> bool:
    return lines.types[node] == SLOT and is_metadata_id(lines.tree.ids[node])
