"""Parse OpenCode's lines (see `rows`) into entries, and decode them into canonical entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sessiontree.core.entries import Compaction, Custom, Entry, Header, MessageEntry, Unknown
from sessiontree.core.jsonio import native_fields
from sessiontree.dialects.canonical import CanonicalEntry
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
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of, restore_entry

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
    """The canonical entries of a line: an answer and each of its results, or a single entry."""
    entry = parse_fields(fields)
    restored, order = _passthrough_of(fields)
    native = native_fields(entry)
    kind = native.pop("type", "message")
    for name in ("id", "parentId", "timestamp"):
        native.pop(name, None)
    messages = [native.pop("message", None), *native.pop("moreMessages", ())]
    if sorted(order) == list(range(1, len(messages))):
        messages = [messages[0], *(messages[at] for at in order)]
    for number, message in enumerate(messages):
        body = native if message is None else {**native, "message": message}
        decoded = CanonicalEntry(kind, body, f"{entry.id}.{number}" if number else entry.id, entry.timestamp)
        found = restored[number] if number < len(restored) else None
        yield restore_entry(decoded, found) if isinstance(found, dict) else decoded


def _passthrough_of(fields: Mapping[str, Any]) -> tuple[list[Any], list[int]]:
    """The passthrough data of each entry of a line, and the order of the results, where it is not that of the calls.

    It is in the metadata of a part, which OpenCode preserves.
    """
    for part in parts_of(fields):
        found = passthrough_of(mapping(part, "metadata"))
        entries, order = found.get("entries"), found.get("order")
        if isinstance(entries, list) or isinstance(order, list):
            numbers = [at for at in order if type(at) is int] if isinstance(order, list) else []
            return entries if isinstance(entries, list) else [], numbers
    return [], []


def with_passthrough(part: dict[str, Any], entries: list[Any], order: list[int]) -> dict[str, Any]:
    data = {"entries": entries, **({"order": order} if order else {})}
    return {**part, "metadata": {**mapping(part, "metadata"), PASSTHROUGH: data}}
