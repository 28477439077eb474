"""A line of a Claude Code transcript -> its envelope and its entry.

Five types of lines form the chain and carry `uuid` and `parentUuid`; every other line is an aside, also if it has a
uuid, and so is a chain line without one. The types of our entries are the canonical form: what says something is a
"message", a boundary is a "compaction", the rest keeps its own name. A foreign name that is one of the canonical form
gets a prefix, so that nobody takes the line for what it is not. An aside that we wrote ourselves holds an entry in the
native shape, and is that entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.core.context import milliseconds
from sessiontree.core.entries import ENTRY_TYPES, Compaction, Entry, MessageEntry, Unknown, parse_entry
from sessiontree.core.jsonio import parse_json
from sessiontree.core.messages import (
    Assistant,
    Block,
    Content,
    Image,
    Message,
    OtherBlock,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from sessiontree.dialects.contract import Envelope
from sessiontree.dialects.passthrough import PASSTHROUGH

Fields: TypeAlias = dict[str, Any]

CHAIN_TYPES = frozenset({"user", "assistant", "system", "attachment", "progress"})
METADATA_TYPES = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "api-request",
        "api-request-blob",
        "api-request-shape",
        "atis-latch",
        "attribution-snapshot",
        "bridge-session",
        "content-replacement",
        "cost-state",
        "custom-title",
        "file-history-delta",
        "file-history-snapshot",
        "fork-context-ref",
        "isolation-latch",
        "last-prompt",
        "marble-origami-commit",
        "marble-origami-snapshot",
        "mode",
        "permission-mode",
        "pr-link",
        "queue-operation",
        PASSTHROUGH,
        "summary",
        "tag",
        "tools-used",
        "worktree-state",
    }
)
SYNTHETIC = "<synthetic>"
STOP_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "toolUse", "max_tokens": "length"}

_FOREIGN_PREFIX = "claude:"
# An entry that speaks has its place in the chain; beside it, it is nothing that anyone should take for one.
SPEAKING_ENTRIES = frozenset({"message", "custom_message", "branch_summary", "compaction", "reset_boundary"})
_ASIDE_ENTRIES = frozenset(ENTRY_TYPES) - SPEAKING_ENTRIES


class _SpokenWire(Struct, gc=False, omit_defaults=True):
    """What counts in a line that says something: the rest, often most of its bytes, need not be built."""

    type: str
    uuid: str
    timestamp: str
    parentUuid: str | None = None  # noqa: N815 - the file's spelling
    subtype: str | None = None
    message: Any = None
    content: Any = None
    attachment: Any = None
    error: Any = None
    isApiErrorMessage: bool = False  # noqa: N815 - the file's spelling


_decode_spoken = msgspec.json.Decoder(_SpokenWire).decode


def envelope_of(fields: Fields) -> Envelope:
    """The outside of one decoded line."""
    kind, id = type_of_line(fields), chain_id(fields)
    if not id:
        return Envelope(kind, "", None, is_metadata=True)
    parent = fields.get("parentUuid")
    return Envelope(kind, id, parent if parent is None or isinstance(parent, str) else "")


def type_of_line(fields: Fields) -> str:
    """What the line is in canonical form."""
    inner = object_in(fields, "entry" if fields.get("type") == PASSTHROUGH else "attachment")
    return shared_type(fields.get("type"), fields.get("subtype"), inner.get("type"))


def chain_id(fields: Fields) -> str:
    """The id of a chain line; empty for an aside."""
    id, kind = fields.get("uuid"), fields.get("type")
    return id if isinstance(id, str) and isinstance(kind, str) and kind in CHAIN_TYPES else ""


def shared_type(kind: object, subtype: object, inner_type: object) -> str:
    """A line's type in canonical form; empty when it has none."""
    match kind:
        case "user" | "assistant":
            return "message"
        case "system" if subtype == "compact_boundary":
            return "compaction"
        case "system" if subtype == "local_command":
            return "message"
        case "attachment" if inner_type == "queued_command":
            return "message"
        case str() if kind == PASSTHROUGH:
            return inner_type if isinstance(inner_type, str) and inner_type in _ASIDE_ENTRIES else PASSTHROUGH
        case str():
            return _FOREIGN_PREFIX + kind if kind in ENTRY_TYPES else kind
        case _:
            return ""


def parse_line(raw: bytes) -> Entry:
    """The entry on a line, whatever the line is."""
    try:
        spoken: Fields = msgspec.structs.asdict(_decode_spoken(raw))
        if type_of_line(spoken) == "message":
            return parse_fields(spoken)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass  # odd, or of another kind: looked at as a whole
    try:
        fields = parse_json(raw)
    except ValueError:
        fields = None
    return parse_fields(fields if isinstance(fields, dict) else {})


def parse_fields(fields: Fields) -> Entry:
    """The entry of a decoded line."""
    kind, id = type_of_line(fields), chain_id(fields)
    parent = string_in(fields, "parentUuid") if id else None
    timestamp = string_in(fields, "timestamp") or ""
    if fields.get("type") == PASSTHROUGH and kind != PASSTHROUGH:
        inside = {"id": string_in(fields, "id") or "", "parentId": None, "timestamp": timestamp}
        return parse_entry({**object_in(fields, "entry"), **inside})
    if kind == "message":
        first, *more = parse_messages(fields)
        return MessageEntry(id, parent, timestamp, first, tuple(more))
    if kind == "compaction":
        about = object_in(fields, "compactMetadata")
        after = about.get("postTokens")
        return Compaction(
            id,
            parent,
            timestamp,
            tokens_before=_number(about.get("preTokens")),
            tokens_after=None if after is None else _number(after),
            details=about,
        )
    return Unknown(id, parent, timestamp, kind, fields)


def parse_messages(fields: Fields) -> list[Message]:
    """What a line says: at least one message. Only lines of the shared type "message" say anything."""
    time = milliseconds(string_in(fields, "timestamp") or "")
    match fields.get("type"):
        case "assistant":
            return [_assistant(fields, time)]
        case "system":
            return [User(time, string_in(fields, "content") or "")]
        case "attachment":
            return [User(time, parse_content(object_in(fields, "attachment").get("prompt")))]
        case _:
            return _user_messages(_content_of(fields), time)


def _user_messages(content: Any, time: int | None) -> list[Message]:
    """Results first, in their order; what the user says beside them comes after them."""
    blocks = content if isinstance(content, list) else []
    results: list[Message] = [_result(block, time) for block in blocks if is_result(block)]
    if not results:
        return [User(time, parse_content(content))]
    rest = parse_content([block for block in blocks if not is_result(block)])
    return [*results, User(time, rest)] if rest else results


def is_result(block: object) -> bool:
    """Whether a content block is the result of a tool call."""
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _result(block: Fields, time: int | None) -> ToolResult:
    return ToolResult(
        time,
        tool_call_id=string_in(block, "tool_use_id") or "",
        content=parse_content(block.get("content")),
        is_error=block.get("is_error") is True,
    )


def _assistant(fields: Fields, time: int | None) -> Assistant:
    message = object_in(fields, "message")
    reason = string_in(message, "stop_reason")
    is_error = fields.get("isApiErrorMessage") is True
    content = parse_content(_content_of(fields))
    return Assistant(
        time,
        content,
        api="anthropic-messages",
        provider="anthropic",
        model=string_in(message, "model"),
        usage=_usage(message.get("usage")),
        stop_reason="error" if is_error else STOP_REASONS.get(reason, reason) if reason else None,
        error_message=string_in(fields, "error") if is_error else None,
        response_id=string_in(message, "id") or None,
    )


def _usage(found: object) -> Usage | None:
    if not isinstance(found, dict):
        return None
    keys = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    fresh, output, cached, written = (_number(found.get(key)) for key in keys)
    return Usage(fresh, output, cached, written, fresh + output + cached + written)


def parse_content(content: Any) -> Content:
    """Content in canonical form: a string stays one, blocks become values, nothing becomes no blocks."""
    if isinstance(content, str):
        return content
    if content is None:
        return ()
    blocks: Sequence[Any] = content if isinstance(content, list) else [content]
    return tuple(map(_block, blocks))


def _block(block: Any) -> Block:
    if isinstance(block, str):
        return Text(block)
    if not isinstance(block, dict):
        return OtherBlock(type(block).__name__, block)
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "thinking", "thinking": str(thinking)}:
            return Thinking(thinking, string_in(block, "signature") or None)
        case {"type": "redacted_thinking", "data": str(data)}:
            return RedactedThinking(data)
        case {"type": "tool_use", "id": str(id), "name": str(name)}:
            return ToolCall(id, name, object_in(block, "input"))
        case {"type": "image", "source": {"type": "base64", "data": str(data), "media_type": str(mime_type)}}:
            return Image(data, mime_type)
        case _:
            return OtherBlock(str(block.get("type") or ""), block)


def _content_of(fields: Fields) -> Any:
    message = fields.get("message")
    return message.get("content") if isinstance(message, dict) else message


def object_in(fields: Fields, key: str) -> Fields:
    """An object inside an object; an empty one when it is not there."""
    found = fields.get(key)
    return found if isinstance(found, dict) else {}


def string_in(fields: Fields, key: str) -> str | None:
    found = fields.get(key)
    return found if isinstance(found, str) else None


def _number(found: object) -> int | float:
    return found if isinstance(found, int | float) and not isinstance(found, bool) else 0
