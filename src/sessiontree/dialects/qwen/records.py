"""Decode Qwen Code's lines into envelopes and entries."""

from __future__ import annotations

from functools import lru_cache
from sys import intern
from typing import Any

import msgspec
from msgspec import Raw, Struct

from sessiontree.core import entries
from sessiontree.core.entries import (
    ENTRY_TYPES,
    Compaction,
    Entry,
    MessageEntry,
    SessionInfo,
    Unknown,
    parse_entry,
)
from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import parse_json, parse_object, render_json
from sessiontree.core.messages import Assistant, Message, OtherMessage, Usage
from sessiontree.dialects.contract import Columns, Envelope
from sessiontree.dialects.defaults import decode_records
from sessiontree.dialects.passthrough import PASSTHROUGH
from sessiontree.dialects.qwen.content import list_of, parse_content, string, summary_of

MESSAGE = "message"
COMPACTION = "compaction"
TITLE = "session_info"
REWIND = "qwen:rewind"
PARENT_SESSION = "qwen:parent_session"
MESSAGE_TYPES = frozenset({"user", "assistant", "tool_result"})
_RESERVED_TYPES = frozenset({MESSAGE, COMPACTION, TITLE, "leaf"})
"""Types that lines of ours must not have, because Qwen Code's own lines have them, or because they are moves."""
_NOT_SENT = frozenset({"realtime_message"})
"""Subtypes of messages that Qwen Code never sends."""

milliseconds = lru_cache(maxsize=64)(entries.milliseconds)

_NOTHING = Raw(b"")


class _Record(Struct, gc=False, rename={"id": "uuid", "parent": "parentUuid", "payload": "systemPayload"}):
    type: str
    id: str
    parent: str | None
    subtype: str | None = None
    payload: Raw = _NOTHING


_decode_lines = msgspec.json.Decoder(_Record).decode_lines


def decode_columns(data: memoryview) -> Columns | None:
    """The envelopes of a block of ordinary lines; None when any line needs `decode_envelope`."""
    records = decode_records(_decode_lines, data)
    if not records:
        return None
    types = [_record_type(record) for record in records]
    if any(not kind or not record.id or record.parent == "" for kind, record in zip(types, records, strict=True)):
        return None
    return Columns(
        [intern(kind) for kind in types], [record.id for record in records], [record.parent for record in records]
    )


def _record_type(record: _Record) -> str:
    """The type of an ordinary record; empty if only `decode_envelope` knows it."""
    if record.type in MESSAGE_TYPES:
        return MESSAGE
    if record.type != "system" or not record.subtype:
        return ""
    if record.subtype in ("chat_compression", PASSTHROUGH):
        try:
            return system_type(record.subtype, parse_json(bytes(record.payload)))
        except ValueError:
            return ""
    return system_type(record.subtype, None)


def system_type(subtype: str, payload: object) -> str:
    """Return the canonical entry type of a system record, by its subtype and what it contains."""
    match subtype:
        case "chat_compression":
            history = payload.get("compressedHistory") if isinstance(payload, dict) else None
            return COMPACTION if isinstance(history, list) else "qwen:chat_compression"
        case "custom_title":
            return TITLE
        case "sessiontree":
            kind = string(payload, "type") if isinstance(payload, dict) else ""
            return own_type(kind) if kind else "qwen:sessiontree"
        case _:
            return f"qwen:{subtype}"


def own_type(kind: str) -> str:
    """The type of a line that we wrote for an entry that Qwen Code cannot store."""
    return f"{PASSTHROUGH}:{kind}" if kind in _RESERVED_TYPES else kind


def line_type(fields: dict[str, Any]) -> str:
    """The type of any line; empty if it is not a record."""
    kind, subtype = string(fields, "type"), string(fields, "subtype")
    if kind in MESSAGE_TYPES:
        return MESSAGE
    if kind != "system":
        return ""
    return system_type(subtype, fields.get("systemPayload")) if subtype else "qwen:system"


def decode_envelope(fields: dict[str, Any]) -> Envelope | None:
    kind, id = line_type(fields), string(fields, "uuid")
    if not kind or not is_record(fields):
        return None
    parent = fields.get("parentUuid")
    return Envelope(kind, id, parent if isinstance(parent, str | None) else "")


def is_record(fields: dict[str, Any]) -> bool:
    if not string(fields, "uuid") or not line_type(fields):
        return False
    return "parentUuid" in fields or isinstance(fields.get("sessionId"), str)


def parse_raw(raw: bytes) -> Entry:
    return parse_line(parse_object(raw))


def parse_line(fields: dict[str, Any]) -> Entry:
    """Parse a decoded line of any type."""
    kind, time = line_type(fields), iso_time(fields.get("timestamp"))
    id, parent = string(fields, "uuid"), string(fields, "parentUuid") or None
    payload = fields.get("systemPayload")
    details = payload if isinstance(payload, dict) else {}
    if kind == MESSAGE:
        messages = parse_messages(fields) or [OtherMessage()]
        return MessageEntry(id, parent, time, messages[0], tuple(messages[1:]))
    if kind == COMPACTION:
        return Compaction(id, parent, time, summary=summary_of(details), tokens_before=_tokens(details))
    if kind == TITLE:
        return SessionInfo(id, parent, time, string(details, "customTitle") or None)
    if fields.get("subtype") == PASSTHROUGH and kind in ENTRY_TYPES:
        return parse_entry({**details, "type": kind, "id": id, "parentId": parent, "timestamp": time})
    return Unknown(id, parent, time, kind, fields)


def parse_messages(fields: dict[str, Any]) -> list[Message]:
    """The messages of a record; none if Qwen Code does not send it."""
    if string(fields, "subtype") in _NOT_SENT:
        return []
    found = parse_content(fields.get("message"), milliseconds(iso_time(fields.get("timestamp"))))
    usage = fields.get("usageMetadata")
    return [
        msgspec.structs.replace(
            message, model=string(fields, "model") or None, usage=_usage(usage) if isinstance(usage, dict) else None
        )
        if isinstance(message, Assistant)
        else message
        for message in found
    ]


def _usage(fields: dict[str, Any]) -> Usage:
    """Tokens of a request. The prompt includes cached tokens; what the total adds to it is the answer."""
    prompt, cached = count(fields, "promptTokenCount"), count(fields, "cachedContentTokenCount")
    total = count(fields, "totalTokenCount")
    answer = count(fields, "candidatesTokenCount")
    return Usage(
        input=max(prompt - cached, 0),
        output=max(total - prompt, 0) if total and prompt else answer,
        cache_read=cached,
        total_tokens=total or prompt + answer,
    )


def _tokens(payload: dict[str, Any]) -> int:
    info = payload.get("info")
    return count(info, "originalTokenCount") if isinstance(info, dict) else 0


def count(fields: dict[str, Any], name: str) -> int:
    found = fields.get(name)
    return found if type(found) is int and found >= 0 else 0


def join_lines(raws: list[bytes]) -> bytes:
    """One record of several lines with the same uuid, as Qwen Code reads them."""
    first, *others = map(parse_object, raws)
    message = first.get("message")
    joined = {**message, "parts": [*list_of(message.get("parts"))]} if isinstance(message, dict) else None
    for fields in others:
        more = fields.get("message")
        if isinstance(more, dict):
            joined = {**more, "parts": []} if joined is None else joined
            joined["parts"].extend(list_of(more.get("parts")))  # in place: thousands of lines may have one uuid
        if fields.get("usageMetadata"):
            first["usageMetadata"] = fields["usageMetadata"]
        for name in ("toolCallResult", "model"):
            if fields.get(name) and not first.get(name):
                first[name] = fields[name]
        if string(fields, "timestamp") > string(first, "timestamp"):
            first["timestamp"] = fields["timestamp"]
    if joined is not None:
        first["message"] = joined
    return render_json(first)
