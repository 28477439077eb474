"""Decode Neovate's lines into envelopes and entries. A metadata line of ours is parsed as the entry inside it."""

from __future__ import annotations

import re
from functools import lru_cache
from sys import intern
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.core import entries
from sessiontree.core.entries import (
    ENTRY_TYPES,
    Config,
    ConfigChange,
    Entry,
    FileSnapshot,
    MessageEntry,
    SessionInfo,
    Unknown,
    parse_entry,
)
from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import convert_fields, parse_object, render_json
from sessiontree.core.messages import (
    Assistant,
    Block,
    Content,
    Image,
    Message,
    OtherBlock,
    OtherMessage,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from sessiontree.dialects.contract import PREVIOUS, Columns, Envelope
from sessiontree.dialects.defaults import decode_records
from sessiontree.dialects.passthrough import PASSTHROUGH

COMPACTION_MARK = "Chat history compacted successfully."
INTERRUPTION = "[Request interrupted by user]"
MESSAGE = "message"

_CANONICAL_TYPES = {"config": "config", "snapshot": "file_snapshot", "custom-title": "session_info"}
_RESERVED_TYPES = frozenset({MESSAGE, "file_snapshot"})
"""Types of lines of the tree and of the frequent snapshots; our metadata lines must not have them."""

milliseconds = lru_cache(maxsize=64)(entries.milliseconds)
"""Cached, because the timestamp of a line is needed several times in a row."""

data_url = re.compile(r"data:([^;,]*)[^,]*;base64,", re.IGNORECASE)


class _Inside(Struct, gc=False):
    type: str = ""


class _Record(Struct, gc=False, rename={"parent": "parentUuid", "id": "uuid"}):
    type: str = ""
    id: str | None = None
    parent: str | None = None
    entry: _Inside | None = None


_decode_lines = msgspec.json.Decoder(_Record).decode_lines


def decode_columns(data: memoryview) -> Columns | None:
    """The envelopes of a block of ordinary lines; None when any line needs `decode_envelope`."""
    records = decode_records(_decode_lines, data)
    if records is None:
        return None
    if not records or any(
        not record.type or (record.type == MESSAGE and (not record.id or record.parent == "")) for record in records
    ):
        return None
    return Columns(
        [intern(_record_type(record)) for record in records],
        [(record.id or "") if record.type == MESSAGE else "" for record in records],
        [record.parent if record.type == MESSAGE else None for record in records],
    )


def _record_type(record: _Record) -> str:
    if record.type == PASSTHROUGH and record.entry is not None and record.entry.type:
        return metadata_type(record.entry.type)
    return canonical_type(record.type)


def decode_envelope(fields: dict[str, Any]) -> Envelope | None:
    kind = string(fields, "type")
    if not kind:
        return None
    if kind != MESSAGE:
        inside = metadata_entry(fields)
        return Envelope(metadata_type(inside["type"]) if inside else canonical_type(kind), is_metadata=True)
    id, parent = string(fields, "uuid"), fields.get("parentUuid")
    if not isinstance(parent, str | None):
        parent = ""
    if id:
        return Envelope(kind, id, parent)
    return Envelope(kind, "", parent if "parentUuid" in fields else PREVIOUS) if is_record(fields) else None


def is_record(fields: dict[str, Any]) -> bool:
    match fields.get("type"):
        case "message":
            return isinstance(fields.get("role"), str)
        case "config":
            return isinstance(fields.get("config"), dict) and "id" not in fields  # with an id it is a native line
        case "snapshot":
            return isinstance(fields.get("trackedFileBackups"), dict)
        case "custom-title":
            return isinstance(fields.get("customTitle"), str)
        case "sessiontree":
            return bool(metadata_entry(fields))
        case _:
            return False


def is_compaction(fields: dict[str, Any]) -> bool:
    """Whether a line is marked as a compaction; it is one only if it is also a root."""
    return fields.get("role") == "user" and fields.get("uiContent") == COMPACTION_MARK


def metadata_entry(fields: dict[str, Any]) -> dict[str, Any]:
    """The entry inside one of our metadata lines; empty for any other line."""
    found = fields.get("entry") if fields.get("type") == PASSTHROUGH else None
    return found if isinstance(found, dict) and isinstance(found.get("type"), str) and found["type"] else {}


def metadata_type(kind: str) -> str:
    """The type of an entry on one of our metadata lines."""
    return f"{PASSTHROUGH}:{kind}" if kind in _RESERVED_TYPES else kind


def canonical_type(kind: str) -> str:
    """A line's type in canonical form. An unknown type keeps its name, unless a native type has the same one."""
    if kind == MESSAGE or kind in _CANONICAL_TYPES:
        return _CANONICAL_TYPES.get(kind, kind)
    return f"neovate:{kind}" if kind in ENTRY_TYPES else kind


def parse_raw(raw: bytes) -> Entry:
    """Parse a line of any content."""
    return parse_line(parse_object(raw))


def parse_line(fields: dict[str, Any]) -> Entry:
    """Parse a decoded line of any type."""
    kind, time = string(fields, "type"), iso_time(fields.get("timestamp"))
    match kind:
        case "message":
            first, *more = parse_messages(fields)
            parent = string(fields, "parentUuid") or None
            return MessageEntry(string(fields, "uuid"), parent, time, first, tuple(more))
        case "config":
            config = fields.get("config")
            return ConfigChange(config=convert_fields(Config, config) if isinstance(config, dict) else Config())
        case "snapshot":
            files = fields.get("trackedFileBackups")
            return FileSnapshot(timestamp=time, files=files if isinstance(files, dict) else {})
        case "custom-title":
            return SessionInfo(timestamp=time, name=string(fields, "customTitle") or None)
        case _:
            return _append_metadata(fields) or Unknown(timestamp=time, kind=canonical_type(kind), fields=fields)


def _append_metadata(fields: dict[str, Any]) -> Entry | None:
    """The entry on one of our metadata lines; None for any other line."""
    inside = metadata_entry(fields)
    if not inside:
        return None
    kind, time = metadata_type(inside["type"]), iso_time(fields.get("timestamp"))
    if kind != inside["type"]:
        return Unknown(timestamp=time, kind=kind, fields=fields)
    return parse_entry({**inside, "id": string(fields, "id"), "parentId": fields.get("parent"), "timestamp": time})


def parse_messages(fields: dict[str, Any]) -> list[Message]:
    """The messages of a line: one, or one for each result."""
    role, content = fields.get("role"), fields.get("content")
    time = milliseconds(iso_time(fields.get("timestamp")))
    match role:
        case "user" | "tool":
            results = [_tool_result(part, time) for part in parts(content) if is_result(part)]
            rest = [part for part in content if not is_result(part)] if isinstance(content, list) else content
            if role == "tool" and not results:
                return [OtherMessage(time, "tool", fields)]
            return [*results, *([User(time, _content(rest))] if rest or not results else [])]
        case "assistant":
            return [_assistant(fields, time)]
        case "system":
            return [System(time, _content(content))]
        case _:
            return [OtherMessage(time, role if isinstance(role, str) else "", fields)]


def _assistant(fields: dict[str, Any], time: int | None) -> Assistant:
    provider, slash, model = string(fields, "model").partition("/")
    usage = fields.get("usage")
    return Assistant(
        time,
        _content(fields.get("content") or fields.get("text")),
        provider=provider if slash else None,
        model=(model if slash else provider) or None,
        usage=_usage(usage) if isinstance(usage, dict) else None,
    )


def token_counts(fields: dict[str, Any]) -> tuple[int | float, int | float]:
    """The tokens of a request and its response, under either of the names that Neovate's files have for them."""
    if "promptTokens" in fields or "completionTokens" in fields:
        return number(fields, "promptTokens"), number(fields, "completionTokens")
    return number(fields, "input_tokens"), number(fields, "output_tokens")


def _usage(fields: dict[str, Any]) -> Usage:
    read, written = token_counts(fields)
    return Usage(
        input=read,
        output=written,
        cache_read=number(fields, "cache_read_input_tokens"),
        cache_write=number(fields, "cache_creation_input_tokens"),
        total_tokens=read + written,
    )


def is_result(part: object) -> bool:
    """Whether a part is a result, in the current form or in that of user messages up to 0.14."""
    return isinstance(part, dict) and part.get("type") in ("tool-result", "tool_result")


def _tool_result(part: dict[str, Any], time: int | None) -> ToolResult:
    fields = result_fields(part)
    is_old = part.get("type") == "tool_result"
    return ToolResult(
        time,
        tool_call_id=string(part, "id" if is_old else "toolCallId"),
        tool_name=string(part, "name" if is_old else "toolName"),
        content=_content(fields.get("llmContent")),
        is_error=fields.get("isError") is True,
    )


def result_fields(part: dict[str, Any]) -> dict[str, Any]:
    """The fields of a result. A value in another form than the client's is the text itself, or becomes JSON."""
    result = part.get("result")
    if not isinstance(result, dict):
        return {"llmContent": result}
    if "llmContent" in result or not result:
        return result
    return {**result, "llmContent": render_json(result).decode()}


def parts(content: object) -> list[Any]:
    return content if isinstance(content, list) else []


def _content(content: object) -> Content:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return tuple(_block(part) for part in content)
    return () if content is None else (_block(content),)


def _block(part: object) -> Block:
    if not isinstance(part, dict):
        return Text(part) if isinstance(part, str) else OtherBlock(type(part).__name__, part)
    match part.get("type"):
        case "text":
            return Text(string(part, "text"))
        case "reasoning":
            return Thinking(string(part, "text"))
        case "image":
            return image(part)
        case "tool_use":
            given = part.get("input")
            arguments = given if isinstance(given, dict) else {} if given is None else {"input": given}
            return ToolCall(string(part, "id"), string(part, "name"), arguments)
        case kind:
            return OtherBlock(str(kind or ""), part)


def image(part: dict[str, Any]) -> Image:
    """Parse an image, whose data may be a complete data URL."""
    data, mime_type = string(part, "data"), string(part, "mimeType")
    url = data_url.match(data)
    if url:
        data, mime_type = data[url.end() :], mime_type or url[1]
    return Image(data, mime_type or "image/png")


def string(fields: dict[str, Any], name: str) -> str:
    found = fields.get(name)
    return found if isinstance(found, str) else ""


def number(fields: dict[str, Any], name: str) -> int | float:
    found = fields.get(name)
    return found if type(found) is int or type(found) is float else 0
