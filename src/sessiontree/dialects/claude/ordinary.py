"""Ordinary user and assistant lines straight into values: the fast way for what nearly every line is.

The decoder builds only the fields that count. A line that is not exactly of the expected shape (a block of another
kind, a field of another type) is left to `wire`, which looks at anything; for ordinary lines both give the same entry.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.core.context import milliseconds
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import (
    Assistant,
    Block,
    Image,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)

STOP_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "toolUse", "max_tokens": "length"}


class _TextWire(Struct, gc=False, tag="text"):
    text: str


class _ThinkingWire(Struct, gc=False, tag="thinking"):
    thinking: str
    signature: str | None = None


class _RedactedWire(Struct, gc=False, tag="redacted_thinking"):
    data: str


class _SourceWire(Struct, gc=False, tag="base64"):
    data: str
    media_type: str


class _ImageWire(Struct, gc=False, tag="image"):
    source: _SourceWire


class _CallWire(Struct, gc=False, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class _ResultWire(Struct, gc=False, tag="tool_result"):
    tool_use_id: str
    content: str | list[_TextWire | _ImageWire]
    is_error: bool = False


_BlockWire: TypeAlias = _TextWire | _ThinkingWire | _RedactedWire | _ImageWire | _CallWire | _ResultWire


class _UsageWire(Struct, gc=False):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class _UserMessage(Struct, gc=False):
    content: str | list[_BlockWire]


class _AssistantMessage(Struct, gc=False):
    content: list[_BlockWire]
    id: str
    model: str
    usage: _UsageWire
    stop_reason: str | None = None


class _Line(Struct, gc=False, rename={"parent": "parentUuid"}, tag_field="type"):
    uuid: str
    timestamp: str
    parent: str | None


class _UserLine(_Line, gc=False, tag="user"):
    message: _UserMessage


class _AssistantLine(_Line, gc=False, tag="assistant"):
    message: _AssistantMessage
    isApiErrorMessage: None = None  # noqa: N815 - a line that has it is not ordinary


_decode = msgspec.json.Decoder(_UserLine | _AssistantLine).decode


def parse_ordinary(raw: bytes) -> MessageEntry | None:
    """The entry of an ordinary line; None when the line needs a closer look."""
    try:
        line = _decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    time = milliseconds(line.timestamp)
    if isinstance(line, _AssistantLine):
        message = _assistant(line.message, time)
        return None if message is None else MessageEntry(line.uuid, line.parent, line.timestamp, message)
    first, *more = _user(line.message.content, time)
    return MessageEntry(line.uuid, line.parent, line.timestamp, first, tuple(more))


def _assistant(message: _AssistantMessage, time: int | None) -> Assistant | None:
    blocks = message.content
    if _ResultWire in map(type, blocks):
        return None
    used = message.usage
    spent = used.input_tokens, used.output_tokens, used.cache_read_input_tokens, used.cache_creation_input_tokens
    reason = message.stop_reason
    return Assistant(
        time,
        tuple(map(_block, blocks)),
        api="anthropic-messages",
        provider="anthropic",
        model=message.model,
        usage=Usage(*spent, sum(spent)),
        stop_reason=STOP_REASONS.get(reason, reason) if reason else None,
        response_id=message.id or None,
    )


def _user(content: str | list[_BlockWire], time: int | None) -> list[Message]:
    """Results first, in their order; what the user says beside them comes after them."""
    if isinstance(content, str):
        return [User(time, content)]
    results: list[Message] = [_result(block, time) for block in content if isinstance(block, _ResultWire)]
    rest = tuple(_block(block) for block in content if not isinstance(block, _ResultWire))
    if not results:
        return [User(time, rest)]
    return [*results, User(time, rest)] if rest else results


def _result(block: _ResultWire, time: int | None) -> ToolResult:
    content = block.content if isinstance(block.content, str) else tuple(map(_block, block.content))
    return ToolResult(time, tool_call_id=block.tool_use_id, content=content, is_error=block.is_error)


def _block(block: _BlockWire) -> Block:
    match block:
        case _TextWire():
            return Text(block.text)
        case _ThinkingWire():
            return Thinking(block.thinking, block.signature or None)
        case _RedactedWire():
            return RedactedThinking(block.data)
        case _ImageWire():
            return Image(block.source.data, block.source.media_type)
        case _CallWire():
            return ToolCall(block.id, block.name, block.input)
        case _ResultWire():
            raise AssertionError("results are told apart before")
