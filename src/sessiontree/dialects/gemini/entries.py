"""Parse Gemini CLI's lines (see `records`) into entries, and decode them into canonical entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sessiontree.core.entries import Compaction, Custom, Entry, Header, MessageEntry, Unknown
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.gemini.content import is_command, messages_of, string
from sessiontree.dialects.gemini.records import is_environment, plain_text
from sessiontree.dialects.grouped_results import decode_grouped
from sessiontree.dialects.passthrough import passthrough_of

COMMAND_TYPE = "gemini.command"


def entry_type(record: Mapping[str, Any]) -> str | None:
    """The type of a message; None if it is not part of the conversation."""
    if record.get("type") not in ("user", "gemini") or is_environment(record):
        return None
    if isinstance(record.get("compaction"), dict):
        return "compaction"
    return "custom" if is_command(record) else "message"


def parse_header(fields: Mapping[str, Any]) -> Header:
    folders = fields.get("directories")
    first = folders[0] if isinstance(folders, list) and folders else ""
    return Header(
        string(fields, "sessionId"),
        timestamp=string(fields, "startTime"),
        cwd=string(fields, "cwd") or (first if isinstance(first, str) else ""),
        title=string(fields, "summary") or None,
    )


def parse_fields(record: Mapping[str, Any]) -> Entry:
    id, time = string(record, "id"), string(record, "timestamp")
    match entry_type(record) if id else None:
        case "compaction":
            kept = record["compaction"].get("kept")
            return Compaction(
                id=id,
                timestamp=time,
                summary=plain_text(record.get("content")),
                first_kept_entry_id=kept if isinstance(kept, str) else None,
            )
        case "custom":
            return Custom(id=id, timestamp=time, custom_type=COMMAND_TYPE, data=plain_text(record.get("content")))
        case "message":
            first, *more = messages_of(record)
            return MessageEntry(id=id, timestamp=time, message=first, more_messages=tuple(more))
        case _:
            if id and isinstance(record.get("type"), str):  # a notice of the program, or the environment
                return Custom(
                    timestamp=time, custom_type=f"gemini.{record['type']}", data=plain_text(record.get("content"))
                )
            return Unknown(kind="record") if "$set" in record or "$rewindTo" in record else Unknown()


def decode_fields(record: Mapping[str, Any]) -> Iterator[CanonicalEntry]:
    return decode_grouped(parse_fields(record), passthrough_of(record))
