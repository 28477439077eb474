"""Decode Codex's lines into envelopes and entries.

The *note* of a message is what the rules about a whole session need to know of it: the role of its item, and for calls
and outputs the id of the call.

    p              a prompt of the user
    i              a text in the user's role that a program inserted
    a              an item of the assistant
    c<id> <name>   a call, with NUL instead of the space, which an id may have
    o<id>          the output of a call
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from sessiontree.core import entries
from sessiontree.core.entries import (
    CONTEXT_TYPES,
    ENTRY_TYPES,
    Compaction,
    Entry,
    Header,
    MessageEntry,
    ModelChange,
    Unknown,
    UsageRecord,
    parse_entry,
)
from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import parse_object
from sessiontree.core.messages import Usage
from sessiontree.core.usage import REQUEST
from sessiontree.dialects.codex.items import (
    ANSWER_TYPES,
    CALL_TYPES,
    LOCAL_SHELL,
    OUTPUT_TYPES,
    Item,
    is_inserted,
    is_preamble,
    list_of,
    parse_item,
    string,
    summary_with_prompts,
)
from sessiontree.dialects.contract import PREVIOUS, Columns, Envelope, position_id
from sessiontree.dialects.defaults import decode_records
from sessiontree.dialects.passthrough import PASSTHROUGH

BOOKKEEPING = frozenset(ENTRY_TYPES) - CONTEXT_TYPES
"""Types of entries that never become the current one."""
MESSAGE = "message"
COMPACTION = "compaction"
META = "session_meta"
ROLLBACK = "codex:rollback"
TURN_CONTEXT = "codex:turn_context"
"""The settings of a turn, with its model."""
TURN = "codex:turn"
"""The event that starts a turn."""
PREAMBLE = "codex:preamble"
_KNOWN_TYPES = frozenset(
    {
        *(META, "response_item", "event_msg", "turn_context", "compacted", "world_state", "token_usage_record"),
        *("inter_agent_communication", "inter_agent_communication_metadata", "security_risk_score", PASSTHROUGH),
    }
)
_AFTER_ID = "\0"
"""Between the id and the name in the note of a call."""
RESPONSE_USAGE = "response_usage"
"""What a line of ours holds about the response before it."""
_RESERVED_TYPES = frozenset({MESSAGE, COMPACTION, "leaf", META})
"""Types that lines of ours must not have, because Codex's own lines have them."""

milliseconds = lru_cache(maxsize=64)(entries.milliseconds)
"""Cached, because the timestamp of a line is needed several times in a row."""

_NOTHING = Raw(b"")


class _Part(Struct, gc=False):
    type: str = ""
    text: str | None = None


class _Payload(Struct, gc=False):
    """Fields of any payload. Their types differ between payloads, and long ones are decoded only where needed."""

    type: Any = None
    role: Any = None
    call_id: Any = None
    id: Any = None
    name: Any = None
    content: Raw = _NOTHING
    info: Raw = _NOTHING


class _Record(Struct, gc=False):
    type: str
    payload: _Payload
    timestamp: Raw = _NOTHING
    sessiontree: Raw = _NOTHING


_decode_lines = msgspec.json.Decoder(_Record).decode_lines
_decode_parts = msgspec.json.Decoder(str | list[_Part]).decode


class _Place(Struct, gc=False):
    """The type of a line, and its note if it is an entry."""

    type: str
    is_entry: bool = False
    note: str | None = None


def decode_columns(data: memoryview, first: int) -> Columns | None:
    """The envelopes of a block of ordinary lines; None when any line needs `decode_envelope`."""
    records = decode_records(_decode_lines, data)
    if not records:
        return None
    try:
        places = [_place_of_record(record) for record in records]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    found = [place for place in places if place is not None]
    if len(found) < len(places):
        return None
    return Columns(
        [place.type for place in found],
        [f"{node:08x}" if place.is_entry else "" for node, place in enumerate(found, first)],  # as `position_id`
        [PREVIOUS if place.is_entry else None for place in found],
        [place.note for place in found],
    )


def _place_of_record(record: _Record) -> _Place | None:
    """The place of an ordinary line; None for a line that only `decode_envelope` knows."""
    payload = record.payload
    kind = payload.type if isinstance(payload.type, str) else ""
    if record.type == "event_msg" and kind != "token_count":  # the most frequent lines
        return _EVENTS.get(kind, _EVENT)
    if record.type == "response_item":
        id, name, role = payload.call_id, payload.name, payload.role
        if not isinstance(id, str) or not id:
            id = payload.id if isinstance(payload.id, str) else ""
        name, role = name if isinstance(name, str) else "", role if isinstance(role, str) else ""
        return _place_of_item(kind, role, id, name, payload.content, is_ours=len(record.sessiontree) > 0)
    if record.type == PASSTHROUGH:
        return _own_place(kind) if kind else None
    if record.type == META or (record.type not in _KNOWN_TYPES and _first(record.timestamp) != b'"'):
        return None
    return _place_of_other(record.type, kind, has_info=_first(payload.info) == b"{")


def _first(raw: Raw) -> bytes:
    return bytes(memoryview(raw)[:1])


def _place_of_item(kind: str, role: str, id: str, name: str, content: Any, *, is_ours: bool) -> _Place:
    if kind == "message":
        if role == "assistant":
            return _ANSWER
        return _place_of_user(content, is_ours) if role == "user" else _PREAMBLE
    if kind in CALL_TYPES:
        return _Place(MESSAGE, True, f"c{id}{_AFTER_ID}{LOCAL_SHELL if kind == 'local_shell_call' else name}")
    if kind in OUTPUT_TYPES:
        return _Place(MESSAGE, True, f"o{id}")
    return _ANSWER if kind in ANSWER_TYPES else _Place("codex:item")


_EVENT = _Place("codex:event")
_EVENTS = {
    "thread_rolled_back": _Place(ROLLBACK),
    "task_started": _Place(TURN),
    "turn_started": _Place(TURN),
}
_ANSWER = _Place(MESSAGE, True, "a")
_PREAMBLE = _Place(PREAMBLE)
_PROMPT = _Place(MESSAGE, True, "p")
_INSERTED = _Place(MESSAGE, True, "i")


def _place_of_user(content: Any, is_ours: bool) -> _Place:
    """The place of a message in the user's role, by its decoded or raw content."""
    if isinstance(content, Raw):
        content = _decode_parts(content) if _first(content) in (b"[", b'"') else None
    texts = [_part_text(part) for part in list_of(content)]
    if is_ours:
        return _PROMPT
    shown = [text for text in texts if text is None or not is_preamble(text)]
    if not shown:
        return _PREAMBLE
    return _INSERTED if all(text is not None and is_inserted(text) for text in shown) else _PROMPT


def _part_text(part: object) -> str | None:
    """The text of a part; None for a part without one, such as an image."""
    if isinstance(part, str):
        return part
    text = part.get("text") if isinstance(part, dict) else part.text if isinstance(part, _Part) else None
    return text if isinstance(text, str) else None


@lru_cache(maxsize=256)  # asked for each line, and there are only a few kinds
def _place_of_other(kind: str, inner: str, *, has_info: bool) -> _Place:
    match kind:
        case "compacted":
            return _Place(COMPACTION, True)
        case "token_usage_record":
            return _Place("usage")
        case "event_msg" if inner == "token_count" and has_info:
            return _Place("usage")
        case "event_msg":
            return _EVENTS.get(inner, _EVENT)
        case _:
            return _Place(f"codex:{kind}")


def _own_place(kind: str) -> _Place:
    """The place of a line that we wrote for an entry that Codex cannot store."""
    return _Place("usage") if kind == RESPONSE_USAGE else _Place(own_type(kind), True)


def own_type(kind: str) -> str:
    return f"{PASSTHROUGH}:{kind}" if kind in _RESERVED_TYPES else kind


def _place(fields: dict[str, Any]) -> _Place | None:
    """The place of any line that is not the header; None if it is not a line of Codex."""
    kind, payload = fields.get("type"), fields.get("payload")
    if not isinstance(kind, str) or not isinstance(payload, dict):
        return None
    inner = string(payload, "type")
    if kind == "response_item":
        id, name = string(payload, "call_id") or string(payload, "id"), string(payload, "name")
        content = payload.get("content")
        return _place_of_item(inner, string(payload, "role"), id, name, content, is_ours=PASSTHROUGH in fields)
    if kind == PASSTHROUGH:
        return _own_place(inner) if inner else None
    if kind not in _KNOWN_TYPES and not isinstance(fields.get("timestamp"), str):
        return None  # an object of another program
    return _place_of_other(kind, inner, has_info=isinstance(payload.get("info"), dict))


def decode_envelope(fields: dict[str, Any], node: int) -> Envelope | Header | None:
    if fields.get("type") == META and isinstance(fields.get("payload"), dict):
        from sessiontree.dialects.codex.header import parse_header

        return parse_header(fields)
    place = _place(fields)
    if place is None:
        return None
    return Envelope(place.type, position_id(node)) if place.is_entry else Envelope(place.type, is_metadata=True)


def note_of(fields: dict[str, Any]) -> str:
    """The note of a line that was not decoded in a block; empty without one."""
    place = _place(fields)
    return (place.note or "") if place is not None else ""


def call_of_note(note: str) -> tuple[str, str]:
    """The id and the name in the note of a call."""
    id, _, name = note[1:].partition(_AFTER_ID)
    return id, name


def is_record(fields: dict[str, Any]) -> bool:
    return isinstance(fields.get("payload"), dict) and fields.get("type") in _KNOWN_TYPES


def parse_raw(raw: bytes) -> Entry:
    return parse_line(parse_object(raw))


def parse_line(fields: dict[str, Any]) -> Entry:
    """Parse a decoded line of any type."""
    place, time = _place(fields), iso_time(fields.get("timestamp"))
    payload = fields.get("payload")
    if place is None or not isinstance(payload, dict):
        return Unknown(timestamp=time, kind=string(fields, "type"), fields=fields)
    match place.type:
        case "message":
            message = parse_item(payload, milliseconds(time), is_ours=PASSTHROUGH in fields)
            if message is not None:
                return MessageEntry(timestamp=time, message=message)
        case "compaction":
            return Compaction(timestamp=time, summary=summary_with_prompts(payload))
        case "usage" if fields.get("type") != PASSTHROUGH:
            return _parse_usage(payload, time)
        case kind if fields.get("type") == PASSTHROUGH and kind in ENTRY_TYPES:
            return parse_entry({**payload, "type": kind, "id": "", "parentId": None, "timestamp": time})
        case _:
            pass
    return Unknown(timestamp=time, kind=place.type, fields=fields)


def parse_usage(raw: bytes) -> Entry:
    """Parse a line as usual; the settings of a turn as its model."""
    fields = parse_object(raw)
    entry = parse_line(fields)
    if not isinstance(entry, Unknown) or entry.kind != TURN_CONTEXT:
        return entry
    return ModelChange(timestamp=entry.timestamp, model=string(fields["payload"], "model") or None)


def _parse_usage(payload: Item, time: str) -> UsageRecord:
    """Usage of a request, on a separate line or in an event. Both may report the same request.

    The total of the session so far is different after each request: it identifies the request.
    """
    info = payload.get("info")
    usage, total = payload.get("usage"), payload.get("thread_token_usage")
    if isinstance(info, dict):
        usage, total = info.get("last_token_usage"), info.get("total_token_usage")
    used, overall = (found if isinstance(found, dict) else {} for found in (usage, total))
    return UsageRecord(
        timestamp=time,
        kind=REQUEST,
        usage=usage_of(used) if used else None,
        response_id=f"{count(overall, 'total_tokens')} tokens" if overall else None,
    )


def usage_of(fields: Item) -> Usage:
    """Tokens of a request. Codex counts cached tokens as part of the input."""
    read, cached = count(fields, "input_tokens"), count(fields, "cached_input_tokens")
    written = count(fields, "cache_write_input_tokens")
    return Usage(
        input=max(read - cached - written, 0),
        output=count(fields, "output_tokens"),
        cache_read=cached,
        cache_write=written,
        total_tokens=count(fields, "total_tokens"),
    )


def count(fields: Item, name: str) -> int:
    found = fields.get(name)
    return found if type(found) is int and found >= 0 else 0
