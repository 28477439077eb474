"""Decode a line of a transcript into its messages: as JSON in the native form, as values, or as an entry.

`decode_messages` is the only decoder of messages. `parse_line` builds entries from it, `context` and `decode` join the
shards of a response (its lines, one content block each) and decide what a model receives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec
from msgspec import Struct

from sessiontree.core.entries import Compaction, Entry, MessageEntry, Unknown, milliseconds, parse_entry
from sessiontree.core.jsonio import parse_object
from sessiontree.core.messages import (
    Assistant,
    Block,
    Content,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
    blocks_of,
)
from sessiontree.dialects.claude.content import (
    API,
    PROVIDER,
    decode_content,
    decode_stop_reason,
    decode_usage,
    parse_content,
)
from sessiontree.dialects.claude.records import (
    SYNTHETIC,
    Fields,
    chain_id,
    entry_type,
    is_tool_result,
    number_in,
    object_in,
    string_in,
    timestamp_in,
)
from sessiontree.dialects.passthrough import PASSTHROUGH

NO_CONTENT = "(no content)"
"""The text that the client sends instead of a message without content."""

_NOTIFICATION = "<system-reminder>\nThis is an automatic notification. The user did not write it.\n\n"
_NOTIFICATION_END = "\n</system-reminder>"

SENT_TYPES = frozenset({"message", "attachment"})
"""Types of entries that can hold a message for the model."""


# Decoding a line


def decode_messages(
    line: Fields,
    content: Callable[[Any], Any] = decode_content,
    tool_names: Mapping[str, str] = {},
) -> list[Fields]:
    """Return the messages on a line as native fields; at least one.

    Only lines of the canonical type "message" hold any. `content` converts the client's content, and `tool_names` maps
    the ids of tool calls to their tools, as results do not name them.
    """
    time = line_time(line)
    match line.get("type"):
        case "assistant":
            return [_decode_assistant(line, content, time)]
        case "system":
            return [_decode_user(string_in(line, "content") or "", time)]
        case "attachment":
            attachment = object_in(line, "attachment")
            return [_decode_user(content(_sent_content(attachment, attachment.get("prompt"))), time)]
    found = _sent_content(line, raw_content(line))
    blocks = found if isinstance(found, list) else ()
    results = [_decode_result(block, content, time, tool_names) for block in blocks if is_tool_result(block)]
    if not results:
        return [_decode_user(content(found), time)]
    # The client sends results first, in their order, and the user's own text after them.
    rest = [block for block in blocks if not is_tool_result(block)]
    return [*results, _decode_user(content(rest), time)] if rest else results


def _sent_content(fields: Fields, content: Any) -> Any:
    """Return content as the client sends it.

    It marks a notification of a background task, which nobody typed, so that a model does not take it for the user's
    words or consent. So do we, with words of our own.
    """
    if object_in(fields, "origin").get("kind") != "task-notification":
        return content
    if isinstance(content, list):
        return [
            {**block, "text": _as_notification(block.get("text"))} if _is_text(block) else block for block in content
        ]
    return _as_notification(content)


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


def _as_notification(text: object) -> object:
    if not isinstance(text, str) or is_reminder_text(text):
        return text
    return f"{_NOTIFICATION}{text}{_NOTIFICATION_END}"


def _decode_user(content: Any, time: int | None) -> Fields:
    return without_none({"role": "user", "content": content, "timestamp": time})


def _decode_result(
    block: Fields, content: Callable[[Any], Any], time: int | None, tool_names: Mapping[str, str]
) -> Fields:
    call = string_in(block, "tool_use_id") or ""
    return without_none(
        {
            "role": "toolResult",
            "toolCallId": call,
            "toolName": tool_names.get(call, ""),
            "content": content(block.get("content")),
            "isError": block.get("is_error") is True,
            "timestamp": time,
        }
    )


def _decode_assistant(line: Fields, content: Callable[[Any], Any], time: int | None) -> Fields:
    message = object_in(line, "message")
    is_error = line.get("isApiErrorMessage") is True
    reason = decode_stop_reason(string_in(message, "stop_reason"))
    return without_none(
        {
            "role": "assistant",
            "content": content(raw_content(line)),
            "api": API,
            "provider": PROVIDER,
            "model": string_in(message, "model"),
            "usage": decode_usage(message.get("usage")),
            "stopReason": "error" if is_error else reason,
            "responseId": string_in(message, "id") or None,
            "timestamp": time,
            "errorMessage": string_in(line, "error") if is_error else None,
        }
    )


def raw_content(line: Fields) -> Any:
    """Return the content on a user or assistant line, as the client wrote it."""
    message = line.get("message")
    return message.get("content") if isinstance(message, dict) else message


def line_time(line: Fields) -> int | None:
    """Return the time of a line in milliseconds."""
    return milliseconds(timestamp_in(line))


def without_none(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}


# Entries


class _MessageLine(Struct, gc=False, omit_defaults=True):
    """The fields of a line that its messages need. The others, often most of its bytes, are not built."""

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
    origin: Any = None


class _Tokens(Struct, gc=False):
    input_tokens: int | float = 0
    output_tokens: int | float = 0
    cache_read_input_tokens: int | float = 0
    cache_creation_input_tokens: int | float = 0


class _Response(Struct, gc=False):
    usage: _Tokens
    model: str | None = None
    id: str | None = None


class _UsageLine(Struct, gc=False):
    """The fields of a line that counting its usage needs."""

    type: Literal["assistant"]
    uuid: str
    message: _Response


_decode_line = msgspec.json.Decoder(_MessageLine).decode
_decode_usage_line = msgspec.json.Decoder(_UsageLine).decode


def parse_line(raw: bytes) -> Entry:
    """Return the entry on a line, whatever the line holds."""
    try:
        line: Fields = msgspec.structs.asdict(_decode_line(raw))
        if entry_type(line) == "message":
            return _parse_message_line(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass  # damaged, or another type of line: decoded with all its fields
    return parse_fields(parse_object(raw))


def parse_usage(raw: bytes) -> Entry:
    """Return the entry on a line; of a response, only what its usage needs. Listings read thousands of them."""
    try:
        line = _decode_usage_line(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return parse_line(raw)
    response, tokens = line.message, msgspec.structs.astuple(line.message.usage)
    usage = Usage(*tokens)
    usage = msgspec.structs.replace(usage, total_tokens=sum(tokens))
    return MessageEntry(
        line.uuid, message=Assistant(usage=usage, model=response.model, response_id=response.id or None)
    )


def parse_fields(line: Fields) -> Entry:
    """Return the entry of a decoded line."""
    kind, id = entry_type(line), chain_id(line)
    if kind == "message":
        return _parse_message_line(line)
    parent = string_in(line, "parentUuid") if id else None
    timestamp = timestamp_in(line)
    if line.get("type") == PASSTHROUGH and kind != PASSTHROUGH:
        envelope = {"id": string_in(line, "id") or "", "parentId": None, "timestamp": timestamp}
        return parse_entry({**object_in(line, "entry"), **envelope})
    if kind == "compaction":
        metadata = object_in(line, "compactMetadata")
        return Compaction(
            id,
            parent,
            timestamp,
            tokens_before=number_in(metadata, "preTokens") or 0,
            tokens_after=None if metadata.get("postTokens") is None else number_in(metadata, "postTokens") or 0,
            details=metadata,
        )
    return Unknown(id, parent, timestamp, kind, line)


def _parse_message_line(line: Fields) -> MessageEntry:
    id = chain_id(line)
    parent = string_in(line, "parentUuid") if id else None
    first, *more = map(_message_value, decode_messages(line, parse_content))
    return MessageEntry(id, parent, timestamp_in(line), first, tuple(more))


def _message_value(message: Fields) -> Message:
    time, content = message.get("timestamp"), message["content"]
    match message["role"]:
        case "assistant":
            usage = message.get("usage")
            return Assistant(
                time,
                content,
                api=API,
                provider=PROVIDER,
                model=message.get("model"),
                usage=None if usage is None else Usage(*usage.values()),
                stop_reason=message.get("stopReason"),
                error_message=message.get("errorMessage"),
                response_id=message.get("responseId"),
            )
        case "toolResult":
            return ToolResult(time, message["toolCallId"], content=content, is_error=message["isError"])
        case _:
            return User(time, content)


# What a model receives


def context_messages(entry: Entry) -> Sequence[Message]:
    """Return the messages of an entry that are part of the context.

    The client builds its own system text and reminders for each request, and its notes about failed requests are
    never sent, so none of them are history.
    """
    match entry:
        case MessageEntry():
            return [message for message in entry.messages if not is_from_client(message)]
        case Unknown(kind="attachment"):
            return _attachment_messages(entry.fields)
        case _:
            return ()


def _attachment_messages(line: Fields) -> list[Message]:
    rendered = line.get("rendered")
    if not isinstance(rendered, list):  # clients before about 2.1.3xx did not record the text they sent
        text = _file_text(object_in(line, "attachment"))
        return [User(line_time(line), text)] if text else []
    if line.get("renderedRole") == "system":
        return []
    texts = [Text(text) for part in rendered if isinstance(part, dict) and (text := string_in(part, "content"))]
    content = tuple(text for text in texts if not is_reminder(text))
    return [User(line_time(line), content)] if content else []


def _file_text(attachment: Fields) -> str | None:
    file = object_in(object_in(attachment, "content"), "file")
    text = string_in(file, "content")
    if attachment.get("type") != "file" or text is None:
        return None
    path = string_in(file, "filePath") or string_in(attachment, "filename") or ""
    return f"The file {path} was attached, which held:\n\n{text}"


def prepare_message(message: Message, tools: Mapping[str, str]) -> Message | None:
    """Return a message as the client sends it; None when it sends none. Results get the names of their tools."""
    match message:
        case ToolResult():
            call, tool = message.tool_call_id, tools.get(message.tool_call_id, "")
            return ToolResult(message.timestamp, call, tool, message.content, message.is_error, message.usage)
        case User(content=()) | Assistant(content=()):
            return msgspec.structs.replace(message, content=NO_CONTENT)
        case Assistant() if is_blank(message.content):
            return None
        case _:
            return message


def join_shards(shards: Sequence[Message]) -> Message:
    """Join the shards of a response into one message; a single message is returned unchanged."""
    joined, *others = shards
    for shard in others:
        assert isinstance(joined, Assistant)
        assert isinstance(shard, Assistant)
        joined = msgspec.structs.replace(
            joined,
            content=blocks_of(joined.content) + blocks_of(shard.content),
            usage=_larger_usage(joined.usage, shard.usage),
            stop_reason=shard.stop_reason or joined.stop_reason,
            model=shard.model or joined.model,
        )
    return joined


def with_calls_last(message: Message) -> Message:
    """Return a message with its calls after its other blocks, as the client sends it.

    It stays as it is if blocks of thinking would come together that a call separates.
    """
    if not isinstance(message, Assistant) or isinstance(message.content, str):
        return message
    blocks = message.content
    others = [at for at, block in enumerate(blocks) if not isinstance(block, ToolCall)]
    if not others or others[-1] < len(others):
        return message  # the usual case: nothing follows a call
    for before, after in pairwise(others):
        if after > before + 1 and isinstance(blocks[before], Thinking) and isinstance(blocks[after], Thinking):
            return message
    calls = [block for block in blocks if isinstance(block, ToolCall)]
    return msgspec.structs.replace(message, content=(*(blocks[at] for at in others), *calls))


def _larger_usage(earlier: Usage | None, later: Usage | None) -> Usage | None:
    # Older clients wrote partial counts on early shards.
    if earlier is None or later is None:
        return earlier or later
    return earlier if earlier.total_tokens > later.total_tokens else later


def without_usage(message: Message) -> Message:
    """Clear the token counts of an assistant message: those from before a compaction do not apply after it."""
    if isinstance(message, Assistant) and message.usage is not None:
        return msgspec.structs.replace(message, usage=Usage())
    return message


def is_from_client(message: Message) -> bool:
    """Whether the client made a message itself: a note about a failed request, or a reminder."""
    if isinstance(message, User):
        return bool(message.content) and all(map(is_reminder, blocks_of(message.content)))
    return isinstance(message, Assistant) and message.model == SYNTHETIC and message.stop_reason == "error"


def is_reminder(block: Block) -> bool:
    """Whether a block is a reminder that the client makes anew for each request; a notification is history."""
    return isinstance(block, Text) and is_reminder_text(block.text) and not block.text.startswith(_NOTIFICATION)


def is_reminder_text(text: str) -> bool:
    return text.lstrip().startswith("<system-reminder>")


def is_blank(content: Content) -> bool:
    """Whether content is empty or only whitespace."""
    return all(isinstance(block, Text) and is_blank_text(block.text) for block in blocks_of(content))


def is_blank_text(text: str) -> bool:
    return not text.strip()
