"""Single lines of a transcript, or the few that belong together, as items in canonical form.

What canonical form have no place for rides along under the name of this dialect: the fields of the line that nobody
could work out again, one set for each line of the item. Nothing here looks at more of a session than the lines it is
given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from msgspec import Struct

from sessiontree.core.context import milliseconds
from sessiontree.core.messages import Text, User
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.claude import context_messages
from sessiontree.dialects.claude.content import (
    TOLD_API,
    TOLD_PROVIDER,
    is_told_in_full,
    is_usage_told_in_full,
    text_of,
    told_blocks,
    told_content,
    told_reason,
    told_usage,
)
from sessiontree.dialects.claude.differences import put_back
from sessiontree.dialects.claude.records import (
    SYNTHETIC,
    Fields,
    is_result,
    object_in,
    parse_fields,
    string_in,
    type_of_line,
)
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of

NAME = "claude"
"""Under which the fields of a line ride along, and with which the types of our custom entries begin."""

VERSION = "2.1.325"
"""The client whose lines we write like: those rules were measured."""

MADE_RESPONSE = "msg_sessiontree_"
"""How ids of responses begin that a encoder made up."""

# Fields of a line that follow from where it stands, or from what is said on it, or that mean nothing elsewhere.
DERIVED = frozenset(
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
_DERIVED_WITH_REQUEST = DERIVED | {"requestId"}
_COMMON = frozenset({"cwd", "gitBranch", "version"})
_SAID_OF_MESSAGE = frozenset({"role", "content", "id", "type", "model", "stop_reason", "stop_sequence", "usage"})
_bash_input = re.compile(r"<bash-input>(?P<command>.*)</bash-input>\s*\Z", re.DOTALL)
_bash_output = re.compile(
    r"<bash-stdout>(?P<out>.*)</bash-stdout>\s*<bash-stderr>(?P<err>.*)</bash-stderr>\s*\Z", re.DOTALL
)


class Base(Struct, frozen=True):
    """What the first line of a chain says of all of them."""

    uuid: str = ""
    cwd: str = ""
    version: str = ""
    git_branch: str = ""


def base_of(first: Fields) -> Base:
    names = ("uuid", "cwd", "version", "gitBranch")
    return Base(*(string_in(first, name) or "" for name in names))


def request_of(response: str) -> str:
    """The id of the request that we write for a response: nothing but its own id in other words."""
    return "req_" + response.removeprefix("msg_")


# Answers


def told_response(shards: Sequence[Fields], base: Base) -> CanonicalEntry:
    """The shards of one response as one item, called what its last line is."""
    first, messages = shards[0], [object_in(shard, "message") for shard in shards]
    is_error = first.get("isApiErrorMessage") is True
    content = [block for message in messages for block in told_blocks(message.get("content"))]
    told: Fields = {"role": "assistant", "content": content, "api": TOLD_API, "provider": TOLD_PROVIDER}
    model = _last([message.get("model") for message in messages])
    usage = _largest([told_usage(message.get("usage")) for message in messages])
    reason = told_reason(_last([message.get("stop_reason") for message in messages]))
    response = _last([message.get("id") for message in messages])
    if model is not None:
        told["model"] = model
    if usage is not None:
        told["usage"] = usage
    if is_error or reason is not None:
        told["stopReason"] = "error" if is_error else reason
    if response is not None and not response.startswith(MADE_RESPONSE):
        told["responseId"] = response
    if (time := _time(first)) is not None:
        told["timestamp"] = time
    if is_error:
        error = string_in(first, "error")
        if model == SYNTHETIC:
            # The client shows such a line and does not send it. As content it would be sent by others.
            told["content"] = []
            error = text_of(content) or error
        if error is not None:
            told["errorMessage"] = error
    *others, last = [string_in(shard, "uuid") or "" for shard in shards]
    entry = CanonicalEntry("message", {"message": told}, last, _timestamp(first), tuple(others))
    return _riding(entry, shards, [_response_rest(shard, base) for shard in shards])


def _response_rest(shard: Fields, base: Base) -> Fields:
    message = object_in(shard, "message")
    is_made = shard.get("requestId") == request_of(string_in(message, "id") or "")
    rest = _rest(shard, base, _DERIVED_WITH_REQUEST if is_made else DERIVED)
    reason = string_in(message, "stop_reason")
    is_said = message.keys() <= _SAID_OF_MESSAGE
    more = {} if is_said else {name: value for name, value in message.items() if name not in _SAID_OF_MESSAGE}
    if not is_usage_told_in_full(message.get("usage")):
        more["usage"] = message["usage"]
    if reason == "stop_sequence" or message.get("stop_sequence") is not None:
        more |= {"stop_reason": reason, "stop_sequence": message.get("stop_sequence")}
    if more:
        rest["message"] = more
    return rest | _content_rest(message)


def _content_rest(message: Fields) -> Fields:
    content = message.get("content")
    return {} if is_told_in_full(content) else {"content": content}


def _last(found: Sequence[object]) -> str | None:
    for value in reversed(found):
        if isinstance(value, str) and value:
            return value
    return None


def _largest(counts: Sequence[Fields | None]) -> Fields | None:
    """Early shards may count only a part of what the response used."""
    known = [count for count in counts if count is not None]
    if len(known) == 1:
        return known[0]
    return max(reversed(known), key=lambda count: count["totalTokens"], default=None)


# What users say, and what is said in their place


def told_results(line: Fields, base: Base, names: Mapping[str, str]) -> list[CanonicalEntry]:
    """The results on a line, an item each, and what the user says beside them. The first is called what the line is."""
    content = object_in(line, "message").get("content")
    blocks: list[Any] = content if isinstance(content, list) else []
    id, time = string_in(line, "uuid") or "", _time(line)
    spoken_beside = [block for block in blocks if not is_result(block)]
    messages = [_result(block, time, names) for block in blocks if is_result(block)]
    if spoken_beside:
        messages.append(_but_none({"role": "user", "content": told_blocks(spoken_beside), "timestamp": time}))
    first, *more = messages
    rest = _rest(line, base) | _content_rest(object_in(line, "message"))
    if "toolUseResult" in rest and rest["toolUseResult"] == text_of(first.get("content")):
        del rest["toolUseResult"]
    entry = _riding(CanonicalEntry("message", {"message": first}, id, _timestamp(line)), [line], [rest])
    others = [
        CanonicalEntry("message", {"message": message}, f"{id}.{number}", _timestamp(line), (id,))
        for number, message in enumerate(more, 2)
    ]
    return [entry, *others]


def _result(block: Fields, time: int | None, names: Mapping[str, str]) -> Fields:
    call = string_in(block, "tool_use_id") or ""
    return _but_none(
        {
            "role": "toolResult",
            "toolCallId": call,
            "toolName": names.get(call, ""),
            "content": told_blocks(block.get("content")),
            "isError": block.get("is_error") is True,
            "timestamp": time,
        }
    )


def told_spoken(line: Fields, base: Base) -> CanonicalEntry:
    """A line of the chain that is neither an answer, nor results, nor a boundary."""
    kind = line.get("type")
    is_heard = bool(said_by(line)) if kind in ("user", "attachment") else type_of_line(line) == "message"
    if not is_heard:
        return told_silent(line, base)
    is_meta = line.get("isMeta") is True if kind == "user" else type_of_line(line) != "message"
    return told_meta(line, base) if is_meta else told_user(line, base)


def told_user(line: Fields, base: Base) -> CanonicalEntry:
    """A line that speaks as the user: a prompt, or what the client put in the user's place."""
    kind = line.get("type")
    message = object_in(line, "message")
    rest = _rest(line, base)
    match kind:
        case "system":
            content: Any = string_in(line, "content") or ""
            rest = {"type": kind, **rest}
            rest.pop("content", None)
        case "attachment":
            content = told_content(object_in(line, "attachment").get("prompt"))
            rest = {"type": kind, **rest}
        case _:
            content = told_content(message.get("content"))
            rest |= _content_rest(message)
    told = _but_none({"role": "user", "content": content, "timestamp": _time(line)})
    return _riding(_item("message", line, {"message": told}), [line], [rest])


def told_meta(line: Fields, base: Base) -> CanonicalEntry:
    """What the client tells the model by itself, as an attachment or in the user's place."""
    rest = _rest(line, base)
    if line.get("type") == "attachment":
        custom_type, content = "attachment", _attached(line)
        rest = {"type": "attachment", **rest}
    else:
        custom_type, content = "meta", told_content(object_in(line, "message").get("content"))
        rest |= _content_rest(object_in(line, "message"))
        rest.pop("isMeta", None)
    fields = {"customType": f"{NAME}.{custom_type}", "content": content, "display": False}
    return _riding(_item("custom_message", line, fields), [line], [rest])


def _attached(line: Fields) -> Any:
    """What the model sees of an attachment."""
    said = [message.content for message in said_by(line) if isinstance(message, User)]
    if len(said) == 1 and isinstance(said[0], str):
        return said[0]
    blocks = (block for content in said if not isinstance(content, str) for block in content)
    return [{"type": "text", "text": block.text} for block in blocks if isinstance(block, Text)]


def said_by(line: Fields) -> Sequence[object]:
    """The messages by which a line reaches the model; none for what the client keeps to itself."""
    return context_messages.messages_of(parse_fields(line))


def told_silent(line: Fields, base: Base) -> CanonicalEntry:
    """A line that the model does not see, whole."""
    kind = string_in(line, "type") or ""
    message = {"message": line["message"]} if "message" in line else {}
    data = {"type": kind, **message, **_rest(line, base)}
    entry = _item("custom", line, {"customType": f"{NAME}.{kind}", "data": data})
    return put_back(entry, passthrough_of(line))


def told_command(entered: Fields, printed: Fields, base: Base) -> CanonicalEntry | None:
    """A shell command the user ran and what it printed, of two lines; None when that is not what they say."""
    command = _bash_input.match(_text_on(entered))
    output = _bash_output.match(_text_on(printed))
    if command is None or output is None:
        return None
    texts = [text for text in (output["out"], output["err"]) if text]
    message = {
        "role": "bashExecution",
        "command": command["command"],
        "output": "\n".join(texts),
        "cancelled": False,
        "truncated": False,
        "timestamp": _time(entered),
    }
    rests = [_rest(entered, base), _rest(printed, base)]
    if output["err"]:
        rests[1]["content"] = _text_on(printed)
    also = (string_in(printed, "uuid") or "",)
    fields = {"message": _but_none(message)}
    entry = CanonicalEntry("message", fields, string_in(entered, "uuid") or "", _timestamp(entered), also)
    return _riding(entry, [entered], rests)


def is_command(line: Fields) -> bool:
    """Whether a line may be the first of the two that a shell command stands on."""
    return line.get("type") == "user" and _text_on(line).startswith("<bash-input>")


def _text_on(line: Fields) -> str:
    content = object_in(line, "message").get("content")
    return content if isinstance(content, str) else ""


# Compactions, and asides of our own


def told_compaction(
    boundary: Fields, summary: Fields | None, base: Base, first_kept: str | None = None
) -> CanonicalEntry:
    """A boundary and the summary behind it. What is kept is for the caller to know."""
    about = object_in(boundary, "compactMetadata")
    before, after = about.get("preTokens"), about.get("postTokens")
    fields: Fields = {
        "summary": _summary(summary),
        "firstKeptEntryId": first_kept,
        "tokensBefore": _number(before) or 0,
    }
    fields |= {"tokensAfter": _number(after), "details": _details(about)}
    also = ((string_in(summary, "uuid") or ""),) if summary else ()
    entry = CanonicalEntry(
        "compaction", _but_none(fields), string_in(boundary, "uuid") or "", _timestamp(boundary), also
    )
    lines = [boundary, summary] if summary else [boundary]
    return _riding(entry, [boundary], [_compaction_rest(line, base) for line in lines])


def told_left_branch(boundary: Fields, summary: Fields | None, base: Base, left_at: str | None) -> CanonicalEntry:
    """A boundary that kept all that its path has before it: the summary tells of what was taken off the path."""
    fields = _but_none(
        {"fromId": left_at, "summary": _summary(summary), "details": _details(object_in(boundary, "compactMetadata"))}
    )
    also = ((string_in(summary, "uuid") or ""),) if summary else ()
    entry = CanonicalEntry("branch_summary", fields, string_in(boundary, "uuid") or "", _timestamp(boundary), also)
    rests = [_compaction_rest(line, base) for line in (boundary, summary) if line]
    if summary:
        rests[-1]["content"] = object_in(summary, "message").get("content")
    return _riding(entry, [boundary], rests)


def _summary(line: Fields | None) -> str:
    return text_of(object_in(line, "message").get("content")) if line else ""


def _details(about: Fields) -> Fields | None:
    kept = ("preTokens", "postTokens", "preservedSegment", "preservedMessages")
    details = {name: value for name, value in about.items() if name not in kept}
    return None if details in ({}, {"trigger": "manual"}) else details


def _compaction_rest(line: Fields, base: Base) -> Fields:
    said = ("subtype", "content", "isMeta", "level", "compactMetadata", "isCompactSummary", "isVisibleInTranscriptOnly")
    return {name: value for name, value in _rest(line, base).items() if name not in said}


def told_aside(line: Fields, id: str) -> CanonicalEntry:
    """An entry that stands beside the chain because the client has no line for it."""
    entry = object_in(line, "entry")
    fields = {name: value for name, value in entry.items() if name != "type"}
    own = string_in(line, "id") or id
    also = (id,) if own != id else ()
    return put_back(
        CanonicalEntry(string_in(entry, "type") or "", fields, own, _timestamp(line), also), passthrough_of(line)
    )


# Shared


def _item(kind: str, line: Fields, fields: Fields) -> CanonicalEntry:
    return CanonicalEntry(kind, fields, string_in(line, "uuid") or "", _timestamp(line))


def _riding(entry: CanonicalEntry, lines: Sequence[Fields], rests: Sequence[Fields]) -> CanonicalEntry:
    """The item with the rest of its lines on it, and what rode along on them put back."""
    if any(rests):
        riding = rests[0] if len(rests) == 1 and entry.aliases == () else list(rests)
        entry = CanonicalEntry(
            entry.kind, {**entry.fields, PASSTHROUGH: {NAME: riding}}, entry.id, entry.timestamp, entry.aliases
        )
    found = next((found for line in reversed(lines) if (found := passthrough_of(line))), {})
    return put_back(entry, found)


def _rest(line: Fields, base: Base, derived: Set[str] = DERIVED) -> Fields:
    """The fields of a line that cannot be worked out again."""
    if (
        line.keys() - derived == _COMMON
        and line.get("cwd") == base.cwd
        and line.get("version") == base.version
        and line.get("gitBranch") == base.git_branch
        and line.get("uuid") != base.uuid
    ):
        return {}
    rest = {name: value for name, value in line.items() if name not in derived}
    common = {"cwd": base.cwd, "gitBranch": base.git_branch, "version": base.version}
    if line.get("uuid") == base.uuid:
        common["version"] = VERSION  # said once for all lines
    for name, value in common.items():
        if rest.get(name) == value:
            del rest[name]
    return rest


def _but_none(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}


def _timestamp(line: Fields) -> str:
    return string_in(line, "timestamp") or ""


def _time(line: Fields) -> int | None:
    return milliseconds(_timestamp(line))


def _number(found: object) -> int | float | None:
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None
