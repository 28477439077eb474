"""Decode the lines of one entry into a canonical entry.

Fields of a line that the canonical form does not have become passthrough data under `claude`, so that an encoder can
write them again: one object for each line of the entry. Fields that can be derived from the line's position or content
are left out. Nothing here reads other lines of the session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from msgspec import Struct

from sessiontree.core.messages import Message, Text, User
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.claude.content import (
    decode_blocks,
    decode_content,
    is_decoded_in_full,
    is_usage_decoded_in_full,
    text_of,
)
from sessiontree.dialects.claude.messages import (
    context_messages,
    decode_messages,
    line_time,
    parse_fields,
    without_none,
)
from sessiontree.dialects.claude.records import (
    SYNTHETIC,
    Fields,
    entry_type,
    number_in,
    object_in,
    string_in,
    timestamp_in,
    without,
)
from sessiontree.dialects.passthrough import PASSTHROUGH, carried_data, passthrough_of, restore_entry

NAME = "claude"
"""The key of client fields in passthrough data, and the prefix of custom types for the client's own lines."""

VERSION = "2.1.325"
"""The client version that is written on lines: the one whose rules were measured."""

GENERATED_RESPONSE = "msg_sessiontree_"
"""The prefix of response ids that an encoder generated."""

# Fields that can be derived from a line's position or content, or that have no meaning in another file.
DERIVED_FIELDS = frozenset(
    {
        "apiBlockIndex",
        "entrypoint",
        "forkedFrom",
        "isSidechain",
        "logicalParentUuid",
        "message",
        "parentUuid",
        "sessionId",
        "session_id",
        "sourceToolAssistantUUID",
        "timestamp",
        "type",
        "userType",
        "uuid",
        PASSTHROUGH,
    }
)
_DERIVED_WITH_REQUEST = DERIVED_FIELDS | {"requestId"}
_COMMON_NAMES = frozenset({"cwd", "gitBranch", "version"})
_DECODED_OF_MESSAGE = frozenset({"role", "content", "id", "type", "model", "stop_reason", "stop_sequence", "usage"})
_DECODED_OF_COMPACTION = (
    "subtype",
    "content",
    "isMeta",
    "level",
    "compactMetadata",
    "isCompactSummary",
    "isVisibleInTranscriptOnly",
)
_bash_input = re.compile(r"<bash-input>(?P<command>.*)</bash-input>\s*\Z", re.DOTALL)
_bash_output = re.compile(
    r"<bash-stdout>(?P<out>.*)</bash-stdout>\s*<bash-stderr>(?P<err>.*)</bash-stderr>\s*\Z", re.DOTALL
)


class CommonFields(Struct, frozen=True):
    """Fields of the first chain line that nearly all lines repeat. They become passthrough data only where they differ.

    The first line itself, identified by its uuid, carries the version for all of them.
    """

    uuid: str = ""
    cwd: str = ""
    version: str = ""
    git_branch: str = ""

    @classmethod
    def of(cls, first: Fields) -> CommonFields:
        return cls(*(string_in(first, name) or "" for name in ("uuid", "cwd", "version", "gitBranch")))


def request_id(response: str) -> str:
    """Return the request id that is written for a response, derived from the response's own id."""
    return "req_" + response.removeprefix("msg_")


# Assistant messages


def decode_response(shards: Sequence[Fields], common: CommonFields) -> CanonicalEntry:
    """Decode the shards of one response. The entry has the id of the last line."""
    decoded = [decode_messages(shard, decode_blocks)[0] for shard in shards]
    first = decoded[0]
    content = [block for message in decoded for block in message["content"]]
    model, response = _last_value(decoded, "model"), _last_value(decoded, "responseId")
    is_error, error = shards[0].get("isApiErrorMessage") is True, first.get("errorMessage")
    if is_error and model == SYNTHETIC:
        # The client shows its line for a failed request and does not send it. As content, other clients would.
        content, error = [], text_of(content) or error
    message = {
        "role": "assistant",
        "content": content,
        "api": first["api"],
        "provider": first["provider"],
        "model": model,
        "usage": _largest_usage(decoded),
        "stopReason": "error" if is_error else _last_value(decoded, "stopReason"),
        "responseId": None if response is None or response.startswith(GENERATED_RESPONSE) else response,
        "timestamp": first.get("timestamp"),
        "errorMessage": error,
    }
    *aliases, last = [string_in(shard, "uuid") or "" for shard in shards]
    fields = {"message": without_none(message)}
    entry = CanonicalEntry("message", fields, last, _timestamp(shards[0]), tuple(aliases))
    return _with_client_fields(entry, shards, [_response_fields(shard, common) for shard in shards])


def _last_value(messages: Sequence[Fields], name: str) -> str | None:
    return next((value for message in reversed(messages) if (value := message.get(name))), None)


def _largest_usage(messages: Sequence[Fields]) -> Fields | None:
    # Older clients wrote partial counts on early shards. Of equal counts the last one is taken.
    known = [message["usage"] for message in messages if "usage" in message]
    return max(reversed(known), key=lambda usage: usage["totalTokens"], default=None)


def _response_fields(shard: Fields, common: CommonFields) -> Fields:
    message = object_in(shard, "message")
    is_generated = shard.get("requestId") == request_id(string_in(message, "id") or "")
    fields = _client_fields(shard, common, _DERIVED_WITH_REQUEST if is_generated else DERIVED_FIELDS)
    reason = string_in(message, "stop_reason")
    more = {} if message.keys() <= _DECODED_OF_MESSAGE else without(message, *_DECODED_OF_MESSAGE)
    if not is_usage_decoded_in_full(message.get("usage")):
        more["usage"] = message["usage"]
    if reason == "stop_sequence" or message.get("stop_sequence") is not None:
        more |= {"stop_reason": reason, "stop_sequence": message.get("stop_sequence")}
    if more:
        fields["message"] = more
    return fields | _content_field(message)


def _content_field(message: Fields) -> Fields:
    content = message.get("content")
    return {} if is_decoded_in_full(content) else {"content": content}


# User messages, and the client's own lines that are sent as user messages


def decode_results(line: Fields, common: CommonFields, tool_names: Mapping[str, str]) -> list[CanonicalEntry]:
    """Decode a line with tool results: an entry for each, and one for the user's own text. The first has its id."""
    first, *more = decode_messages(line, decode_blocks, tool_names)
    id = string_in(line, "uuid") or ""
    fields = _client_fields(line, common) | _content_field(object_in(line, "message"))
    if "toolUseResult" in fields and fields["toolUseResult"] == text_of(first["content"]):
        del fields["toolUseResult"]  # the client's own copy of the result
    entry = _with_client_fields(_entry("message", line, {"message": first}), [line], [fields])
    others = [
        CanonicalEntry("message", {"message": message}, f"{id}.{number}", _timestamp(line), (id,))
        for number, message in enumerate(more, 2)
    ]
    return [entry, *others]


def decode_user_line(line: Fields, common: CommonFields) -> CanonicalEntry:
    """Decode a chain line that is neither an assistant line, nor results, nor a boundary."""
    kind, is_message = line.get("type"), entry_type(line) == "message"
    if not (visible_messages(line) if kind in ("user", "attachment") else is_message):
        return decode_hidden(line, common)
    is_injected = line.get("isMeta") is True if kind == "user" else not is_message
    return _decode_injected(line, common) if is_injected else decode_prompt(line, common)


def decode_prompt(line: Fields, common: CommonFields) -> CanonicalEntry:
    """Decode a line that is sent as a user message: a prompt, or a local command's output."""
    message = decode_messages(line)[-1]
    fields = _client_fields(line, common)
    match line.get("type"):
        case "system" as kind:
            fields = {"type": kind, **without(fields, "content")}
        case "attachment" as kind:
            fields = {"type": kind, **fields}
        case _:
            fields |= _content_field(object_in(line, "message"))
    return _with_client_fields(_entry("message", line, {"message": message}), [line], [fields])


def _decode_injected(line: Fields, common: CommonFields) -> CanonicalEntry:
    """Decode a message that the client itself sends to the model: an attachment, or a user line with `isMeta`."""
    fields = _client_fields(line, common)
    if line.get("type") == "attachment":
        custom_type, content = "attachment", _attachment_content(line)
        fields = {"type": "attachment", **fields}
    else:
        custom_type, content = "meta", decode_content(object_in(line, "message").get("content"))
        fields |= _content_field(object_in(line, "message"))
        fields.pop("isMeta", None)
    custom = {"customType": f"{NAME}.{custom_type}", "content": content, "display": False}
    return _with_client_fields(_entry("custom_message", line, custom), [line], [fields])


def _attachment_content(line: Fields) -> Any:
    contents = [message.content for message in visible_messages(line) if isinstance(message, User)]
    if len(contents) == 1 and isinstance(contents[0], str):
        return contents[0]
    blocks = (block for content in contents if not isinstance(content, str) for block in content)
    return [{"type": "text", "text": block.text} for block in blocks if isinstance(block, Text)]


def visible_messages(line: Fields) -> Sequence[Message]:
    """Return the messages of a line that the model receives."""
    return context_messages(parse_fields(line))


def decode_hidden(line: Fields, common: CommonFields) -> CanonicalEntry:
    """Decode a line that the model does not receive: a `custom` entry with all its fields."""
    kind = string_in(line, "type") or ""
    message = {"message": line["message"]} if "message" in line else {}
    data = {"type": kind, **message, **_client_fields(line, common)}
    entry = _entry("custom", line, {"customType": f"{NAME}.{kind}", "data": data})
    return restore_entry(entry, passthrough_of(line))


def decode_command(input_line: Fields, output_line: Fields, common: CommonFields) -> CanonicalEntry | None:
    """Decode the two lines of a shell command that the user ran; None if they are something else."""
    command = _bash_input.match(_text_on(input_line))
    output = _bash_output.match(_text_on(output_line))
    if command is None or output is None:
        return None
    message = {
        "role": "bashExecution",
        "command": command["command"],
        "output": "\n".join(text for text in (output["out"], output["err"]) if text),
        "cancelled": False,
        "truncated": False,
        "timestamp": line_time(input_line),
    }
    fields = [_client_fields(input_line, common), _client_fields(output_line, common)]
    if output["err"]:  # the native form has no separate error output
        fields[1]["content"] = _text_on(output_line)
    aliases = (string_in(output_line, "uuid") or "",)
    entry = _entry("message", input_line, {"message": without_none(message)}, aliases)
    return _with_client_fields(entry, [input_line], fields)


def is_command_input(line: Fields) -> bool:
    """Whether a line may be the first of the two lines of a shell command."""
    return line.get("type") == "user" and _text_on(line).startswith("<bash-input>")


def _text_on(line: Fields) -> str:
    content = object_in(line, "message").get("content")
    return content if isinstance(content, str) else ""


# Compactions, and entries on metadata lines


def decode_compaction(
    boundary: Fields, summary: Fields | None, common: CommonFields, first_kept: str | None = None
) -> CanonicalEntry:
    """Decode a boundary and the summary after it. The caller determines the first kept entry."""
    metadata = object_in(boundary, "compactMetadata")
    fields: Fields = {
        "summary": _summary_text(summary),
        "firstKeptEntryId": first_kept,
        "tokensBefore": number_in(metadata, "preTokens") or 0,
        "tokensAfter": number_in(metadata, "postTokens"),
        "details": _compaction_details(metadata),
    }
    entry = _entry("compaction", boundary, without_none(fields), _summary_alias(summary))
    lines = [boundary, summary] if summary else [boundary]
    return _with_client_fields(entry, [boundary], [_compaction_fields(line, common) for line in lines])


def decode_branch_summary(
    boundary: Fields, summary: Fields | None, common: CommonFields, left_at: str | None
) -> CanonicalEntry:
    """Decode a boundary that keeps its complete path: its summary describes an abandoned branch."""
    details = _compaction_details(object_in(boundary, "compactMetadata"))
    fields = without_none({"fromId": left_at, "summary": _summary_text(summary), "details": details})
    entry = _entry("branch_summary", boundary, fields, _summary_alias(summary))
    client_fields = [_compaction_fields(line, common) for line in (boundary, summary) if line]
    if summary:
        client_fields[-1]["content"] = object_in(summary, "message").get("content")
    return _with_client_fields(entry, [boundary], client_fields)


def _summary_text(line: Fields | None) -> str:
    return text_of(object_in(line, "message").get("content")) if line else ""


def _summary_alias(line: Fields | None) -> tuple[str, ...]:
    return (string_in(line, "uuid") or "",) if line else ()


def _compaction_details(metadata: Fields) -> Fields | None:
    details = without(metadata, "preTokens", "postTokens", "preservedSegment", "preservedMessages")
    return None if details in ({}, {"trigger": "manual"}) else details


def _compaction_fields(line: Fields, common: CommonFields) -> Fields:
    return without(_client_fields(line, common), *_DECODED_OF_COMPACTION)


def decode_metadata_entry(line: Fields, id: str) -> CanonicalEntry:
    """Decode an entry on a metadata line of ours, which the client has no line type for."""
    stored = object_in(line, "entry")
    own_id = string_in(line, "id") or id
    aliases = (id,) if own_id != id else ()
    kind = string_in(stored, "type") or ""
    entry = CanonicalEntry(kind, without(stored, "type"), own_id, _timestamp(line), aliases)
    return restore_entry(entry, passthrough_of(line))


# Client fields


def _entry(kind: str, line: Fields, fields: Fields, aliases: tuple[str, ...] = ()) -> CanonicalEntry:
    return CanonicalEntry(kind, fields, string_in(line, "uuid") or "", _timestamp(line), aliases)


def _timestamp(line: Fields) -> str:
    return timestamp_in(line)


def _with_client_fields(
    entry: CanonicalEntry, lines: Sequence[Fields], client_fields: Sequence[Fields]
) -> CanonicalEntry:
    """Return an entry with the client fields of its lines, and with the passthrough data on those lines restored."""
    if any(client_fields):
        stored = client_fields[0] if len(client_fields) == 1 and entry.aliases == () else list(client_fields)
        fields = {**entry.fields, PASSTHROUGH: {NAME: stored}}
        entry = CanonicalEntry(entry.kind, fields, entry.id, entry.timestamp, entry.aliases)
    found = next((found for line in reversed(lines) if (found := passthrough_of(line))), {})
    return restore_entry(entry, found)


def client_fields_of(entry: CanonicalEntry, count: int) -> Sequence[Fields]:
    """Return the client fields for each line of an entry; empty ones if the number of lines has changed."""
    found = carried_data(entry, NAME)
    if not found:
        return [{}] * count
    fields = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
    return fields if len(fields) == count else [{} for _ in range(count)]


def _client_fields(line: Fields, common: CommonFields, derived: Set[str] = DERIVED_FIELDS) -> Fields:
    """Return the fields of a line that cannot be derived again."""
    is_first = line.get("uuid") == common.uuid
    if (
        not is_first
        and line.keys() - derived == _COMMON_NAMES
        and line.get("cwd") == common.cwd
        and line.get("version") == common.version
        and line.get("gitBranch") == common.git_branch
    ):
        return {}  # nearly all lines
    fields = {name: value for name, value in line.items() if name not in derived}
    version = VERSION if is_first else common.version  # the first line states the version for all of them
    expected = {"cwd": common.cwd, "gitBranch": common.git_branch, "version": version}
    return {name: value for name, value in fields.items() if name not in expected or value != expected[name]}
