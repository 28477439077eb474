"""Parse OpenCode's lines (see `rows`) into entries, and decode them into canonical entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sessiontree.core.entries import Compaction, Custom, Entry, Header, MessageEntry, Unknown
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.grouped_results import decode_grouped
from sessiontree.dialects.opencode.content import (
    created_at,
    info_of,
    is_request,
    is_summary,
    mapping,
    messages_of,
    parts_of,
    string,
    summary_text,
    usage_of,
)
from sessiontree.dialects.passthrough import passthrough_of

REQUEST_TYPE = "opencode.compaction"
"""The custom type of a message that asks for a compaction; the summary is another message."""
ROLES = ("user", "assistant")


def entry_type(fields: Mapping[str, Any]) -> str:
    """The type of a message: `compaction` for a summary, `custom` for its request."""
    if is_summary(fields):
        return "compaction"
    return "custom" if is_request(fields) else "message"


def parse_header(info: Mapping[str, Any]) -> Header:
    return Header(
        string(info, "id"),
        timestamp=created_at(info),
        cwd=string(info, "directory"),
        title=string(info, "title") or None,
    )


def parse_fields(fields: Mapping[str, Any]) -> Entry:
    info = info_of(fields)
    id, time = string(info, "id"), created_at(info)
    if info.get("role") not in ROLES or not id:
        return Unknown()
    match entry_type(fields):
        case "compaction":
            kept = mapping(fields, "compaction").get("tail_start_id")
            return Compaction(
                id=id,
                timestamp=time,
                summary=summary_text(fields),
                first_kept_entry_id=kept if isinstance(kept, str) else None,
                usage=usage_of(info),
            )
        case "custom":
            return Custom(id=id, timestamp=time, custom_type=REQUEST_TYPE)
        case _:
            first, *more = messages_of(fields)
            return MessageEntry(id=id, timestamp=time, message=first, more_messages=tuple(more))


def decode_fields(fields: Mapping[str, Any]) -> Iterator[CanonicalEntry]:
    return decode_grouped(parse_fields(fields), _passthrough_of(fields))


def _passthrough_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The passthrough data of a line. It is in the metadata of a part, which OpenCode preserves."""
    return next(filter(None, (passthrough_of(mapping(part, "metadata")) for part in parts_of(fields))), {})
