"""What an entry says to the model, and how messages become what is sent.

Said is what users and the assistant say, commands run beside the conversation, messages typed during a turn, and the
text of attachments that speaks as the user. The client's own system text and reminders are not history and are left
out, as are its notes about failed requests and answers of nothing but white space. The shards of a response are one
message. Calls without results stay as they are: `providers` completes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sessiontree.core.context import milliseconds
from sessiontree.core.entries import Entry, MessageEntry, Unknown
from sessiontree.core.messages import (
    Assistant,
    Message,
    Text,
    ToolResult,
    Usage,
    User,
    blocks_of,
)
from sessiontree.dialects.claude.line_summary import is_blank, is_of_the_client, is_reminder
from sessiontree.dialects.claude.records import Fields, object_in, string_in

NO_CONTENT = "(no content)"
SPEAKING_TYPES = frozenset({"message", "attachment"})


def settled(message: Message, tools: Mapping[str, str]) -> Message | None:
    """A message as it is sent; None when it says nothing. Results are told the names of their tools."""
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


def joined(parts: Sequence[Message]) -> Message:
    """The message that some parts are: one, or the shards of a response."""
    whole, *shards = parts
    for shard in shards:
        assert isinstance(whole, Assistant)
        assert isinstance(shard, Assistant)
        whole = _joined(whole, shard)
    return whole


def _joined(earlier: Assistant, later: Assistant) -> Assistant:
    """Two shards of a response. Early shards may count only a part of what the response used."""
    return msgspec.structs.replace(
        earlier,
        content=blocks_of(earlier.content) + blocks_of(later.content),
        usage=_larger(earlier.usage, later.usage),
        stop_reason=later.stop_reason or earlier.stop_reason,
        model=later.model or earlier.model,
    )


def _larger(one: Usage | None, other: Usage | None) -> Usage | None:
    if one is None or other is None:
        return one or other
    return one if one.total_tokens > other.total_tokens else other


def without_usage(message: Message) -> Message:
    """What was used before a compaction says nothing about the context after it."""
    if isinstance(message, Assistant) and message.usage is not None:
        return msgspec.structs.replace(message, usage=Usage())
    return message


def messages_of(entry: Entry) -> Sequence[Message]:
    """What an entry says to the model."""
    match entry:
        case MessageEntry():
            return [message for message in entry.messages if not is_of_the_client(message)]
        case Unknown(kind="attachment"):
            return _attachment_messages(entry.fields)
        case _:
            return ()


def _attachment_messages(fields: Fields) -> list[Message]:
    attachment = object_in(fields, "attachment")
    rendered = fields.get("rendered")
    if not isinstance(rendered, list):
        text = _file_text(attachment)
        return [User(_time(fields), text)] if text else []
    if fields.get("renderedRole") == "system":
        return []
    texts = [Text(text) for part in rendered if isinstance(part, dict) and (text := string_in(part, "content"))]
    said = tuple(text for text in texts if not is_reminder(text))
    return [User(_time(fields), said)] if said else []


def _file_text(attachment: Fields) -> str | None:
    """A file as clients attached it that did not record the text they sent."""
    file = object_in(object_in(attachment, "content"), "file")
    text = string_in(file, "content")
    if attachment.get("type") != "file" or text is None:
        return None
    path = string_in(file, "filePath") or string_in(attachment, "filename") or ""
    return f"The file {path} was attached, which held:\n\n{text}"


def _time(fields: Fields) -> int | None:
    return milliseconds(string_in(fields, "timestamp") or "")
