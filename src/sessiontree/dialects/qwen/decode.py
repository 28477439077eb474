"""Decode Qwen Code's lines into canonical entries: one for each message of a record.

To preserve fields beyond the canonical form, a message is encoded again, and the difference to its record is carried.
Telemetry, snapshots and other records of the client itself are left out: they describe one run of Qwen Code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import native_fields
from sessiontree.core.messages import Assistant, Message, ToolResult, User
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.contract import UPDATE, IndexedLines
from sessiontree.dialects.defaults import iter_resolved
from sessiontree.dialects.passthrough import PASSTHROUGH, json_delta, passthrough_of, restore_entry, with_carried_data
from sessiontree.dialects.qwen.content import encode_assistant, encode_result, encode_user, string, summary_of
from sessiontree.dialects.qwen.records import COMPACTION, MESSAGE, TITLE, parse_messages

CARRIED = "qwen"
"""The name under which Qwen Code's own data is carried."""


def decode_entries(lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
    waiting: CanonicalEntry | None = None  # the last entry, because a later line may add an alias to it
    for node, fields in iter_resolved(lines, nodes):
        if lines.types[node] == UPDATE:
            continue
        id = lines.tree.ids[node]
        found = _decode(lines.types[node], id, fields)
        if not found and waiting is not None:
            waiting = msgspec.structs.replace(waiting, aliases=(*waiting.aliases, id))
        for entry in found:
            if waiting is not None:
                yield waiting
            waiting = entry
    if waiting is not None:
        yield waiting


def must_decode_with_previous(lines: IndexedLines, child: int) -> bool:
    """A record without an entry is an alias of the entry before it. Results of one response stay together."""
    if not _has_entry(lines, child):
        return True
    if lines.types[child] != MESSAGE:
        return False
    (fields,) = lines.fields([child])
    return fields.get("type") == "tool_result"


def _has_entry(lines: IndexedLines, node: int) -> bool:
    kind = lines.types[node]
    if kind == MESSAGE:
        (fields,) = lines.fields([node])
        return bool(_decode(kind, "", fields))
    return not kind.startswith("qwen:") and kind != UPDATE


def _decode(kind: str, id: str, fields: dict[str, Any]) -> list[CanonicalEntry]:
    time, passthrough = iso_time(fields.get("timestamp")), passthrough_of(fields)
    payload = fields.get("systemPayload")
    details: dict[str, Any] = payload if isinstance(payload, dict) else {}
    if kind == MESSAGE:
        if passthrough or PASSTHROUGH in fields:
            entry = CanonicalEntry("message", {"message": native_fields(merged(parse_messages(fields)))}, id, time)
            return [restore_entry(entry, passthrough)]
        return _decode_native(id, time, fields)
    if kind == COMPACTION:
        entry = CanonicalEntry("compaction", compaction_fields(details), id, time)
        return (
            [restore_entry(entry, passthrough)]
            if passthrough
            else [with_carried_data(entry, CARRIED, {"payload": details})]
        )
    if kind == TITLE:
        entry = CanonicalEntry(TITLE, {"name": string(details, "customTitle")}, id, time)
        return [restore_entry(entry, passthrough)]
    if fields.get("subtype") == PASSTHROUGH and string(details, "type"):
        entry = CanonicalEntry(
            details["type"], {name: value for name, value in details.items() if name != "type"}, id, time
        )
        return [restore_entry(entry, passthrough)]
    return []


def merged(messages: Sequence[Message]) -> Message:
    """The message of a record that we wrote, which has exactly one."""
    return messages[0] if messages else User()


def compaction_fields(payload: dict[str, Any]) -> dict[str, Any]:
    info = payload.get("info")
    tokens = info.get("originalTokenCount", 0) if isinstance(info, dict) else 0
    return {"summary": summary_of(payload), "tokensBefore": tokens if type(tokens) is int else 0}


def _decode_native(id: str, time: str, fields: dict[str, Any]) -> list[CanonicalEntry]:
    found: list[CanonicalEntry] = []
    messages = parse_messages(fields)
    for number, message in enumerate(messages):
        entry = CanonicalEntry("message", {"message": native_fields(message)}, f"{id}.{number}" if number else id, time)
        found.append(with_carried_data(entry, CARRIED, _own_data(fields, message) if len(messages) == 1 else None))
    return found


def _own_data(fields: dict[str, Any], message: Message) -> dict[str, Any] | None:
    """The difference between the content of a record and the content that its message would be encoded to."""
    encode = {User: encode_user, Assistant: encode_assistant, ToolResult: encode_result}.get(type(message))
    if encode is None:
        return None
    delta = json_delta(encode(native_fields(message)).content, fields.get("message"))
    kept = {name: fields[name] for name in ("toolCallResult", "subtype") if name in fields}
    return ({"content": delta} if delta is not None else {}) | kept
