"""Convert OpenCode's messages to canonical messages.

An answer and the results of its tool calls are one message of OpenCode, with one part per call. It becomes an assistant
message, followed by a result for each call that has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sessiontree.core.ids import iso_time
from sessiontree.core.messages import (
    Assistant,
    Block,
    Cost,
    Image,
    Message,
    OtherBlock,
    OtherMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)

REQUEST = "What did we do so far?"
"""The prompt that the client sends for a request to compact."""
INTERRUPTED = "[Tool execution was interrupted]"
CLEARED = "[Old tool result content cleared]"
SUBTASK = "The following tool was executed by the user"
_STOP_REASONS = {"stop": "stop", "tool-calls": "toolUse", "length": "length", "error": "error"}
_NOT_SENT = ("text/plain", "application/x-directory")
"""Files whose content is also stored as a text part."""
_data_url = re.compile(r"data:([\w.+/-]*)(?:;[\w=.-]+)*;base64,", re.ASCII)


def info_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    info = fields.get("info")
    return info if isinstance(info, dict) else {}


def parts_of(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts = fields.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def string(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def mapping(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def number(fields: Mapping[str, Any], name: str) -> int | float:
    value = fields.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def created_at(info: Mapping[str, Any]) -> str:
    created = mapping(info, "time").get("created")
    return iso_time(created) if isinstance(created, int | float) and not isinstance(created, bool) else ""


def is_request(fields: Mapping[str, Any]) -> bool:
    """Whether a message asks for a compaction."""
    return info_of(fields).get("role") == "user" and any(part.get("type") == "compaction" for part in parts_of(fields))


def is_summary(fields: Mapping[str, Any]) -> bool:
    """Whether a message is the summary of a complete compaction."""
    info = info_of(fields)
    return isinstance(fields.get("compaction"), dict) and bool(info.get("finish")) and not info.get("error")


def summary_text(fields: Mapping[str, Any]) -> str:
    return "\n".join(string(part, "text") for part in parts_of(fields) if part.get("type") == "text")


def messages_of(fields: Mapping[str, Any]) -> list[Message]:
    """The messages of a line as they were recorded."""
    info, parts = info_of(fields), parts_of(fields)
    match info.get("role"):
        case "user":
            blocks = [block for part in parts for block in _user_blocks(part, is_sent=False)]
            return [User(timestamp=_milliseconds(info), content=tuple(blocks))]
        case "assistant":
            calls = _once(parts)
            results = [result for part in calls if (result := _result(part, info)) is not None]
            return [_assistant(info, calls), *results]
        case _:
            return [OtherMessage()]


def sent_messages(fields: Mapping[str, Any], until: str | None = None) -> list[Message]:
    """The messages that the client sends to a model for a line, up to the part `until`."""
    info, parts = info_of(fields), parts_of(fields)
    if until is not None:
        parts = [part for part in parts if string(part, "id") < until]
    if info.get("role") == "user":
        blocks = [block for part in parts for block in _user_blocks(part, is_sent=True)]
        return [User(timestamp=_milliseconds(info), content=tuple(blocks))] if blocks else []
    if info.get("role") != "assistant" or not _is_sent(info, parts):
        return []
    calls = _once(parts)
    message = _assistant(info, calls)
    return [message, *(_sent_result(part, info) for part in calls if part.get("type") == "tool")]


def _is_sent(info: Mapping[str, Any], parts: list[dict[str, Any]]) -> bool:
    """Whether an answer is sent: not one that failed, unless the user aborted it after it had some content."""
    types = {string(part, "type") for part in parts}
    if info.get("error") and not (
        mapping(info, "error").get("name") == "MessageAbortedError" and types - {"step-start", "reasoning"}
    ):
        return False
    return bool(types & {"text", "tool", "reasoning"})


def _once(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts without repeated calls: a provider refuses an id that occurs twice, although OpenCode sends it."""
    seen: set[str] = set()
    kept = []
    for part in parts:
        id = string(part, "callID") if part.get("type") == "tool" else ""
        if id and id in seen:
            continue
        seen.add(id)
        kept.append(part)
    return kept


def _user_blocks(part: Mapping[str, Any], *, is_sent: bool) -> Iterator[Block]:
    match part.get("type"):
        case "text":
            if part.get("ignored") is not True and part.get("text") != "":
                yield Text(string(part, "text"))
        case "file":
            if part.get("mime") not in _NOT_SENT:
                yield _file(part)
        case "compaction" if is_sent:
            yield Text(REQUEST)
        case "subtask":
            yield Text(SUBTASK if is_sent else string(part, "prompt"))
        case _:
            return


def _file(part: Mapping[str, Any]) -> Block:
    mime, url = string(part, "mime"), string(part, "url")
    found = _data_url.match(url)
    if found and mime.startswith("image/"):
        return Image(data=url[found.end() :], mime_type=mime)
    return OtherBlock("file", dict(part))


def _assistant(info: Mapping[str, Any], parts: list[dict[str, Any]]) -> Assistant:
    error = mapping(info, "error")
    reason = _STOP_REASONS.get(string(info, "finish"))
    if error:
        reason = "aborted" if error.get("name") == "MessageAbortedError" else "error"
    return Assistant(
        timestamp=_milliseconds(info),
        content=tuple(block for part in parts for block in _answer_blocks(part)),
        provider=string(info, "providerID") or None,
        model=string(info, "modelID") or None,
        usage=usage_of(info),
        stop_reason=reason,
        error_message=string(mapping(error, "data"), "message") or string(error, "name") or None,
    )


def _answer_blocks(part: Mapping[str, Any]) -> Iterator[Block]:
    match part.get("type"):
        case "text":
            yield Text(string(part, "text"))
        case "reasoning":
            signature = mapping(mapping(part, "metadata"), "anthropic").get("signature")
            yield Thinking(string(part, "text"), signature if isinstance(signature, str) else None)
        case "tool":
            given = mapping(part, "state").get("input")
            arguments = given if isinstance(given, dict) else {} if given is None else {"input": given}
            yield ToolCall(id=string(part, "callID"), name=string(part, "tool"), arguments=arguments)
        case "file":
            yield _file(part)
        case _:
            return


def usage_of(info: Mapping[str, Any]) -> Usage | None:
    tokens = mapping(info, "tokens")
    if not tokens:
        return None
    cache, cost = mapping(tokens, "cache"), number(info, "cost")
    input, read, write = number(tokens, "input"), number(cache, "read"), number(cache, "write")
    output = number(tokens, "output") + number(tokens, "reasoning")
    if not (input or output or read or write):
        return None  # of an answer that was never completed
    total = number(tokens, "total") or input + output + read + write
    return Usage(input, output, read, write, total, Cost(total=cost) if cost else None)


def _result(part: Mapping[str, Any], info: Mapping[str, Any]) -> ToolResult | None:
    """The result of a call; None without one."""
    if part.get("type") != "tool":
        return None
    state = mapping(part, "state")
    match state.get("status"):
        case "completed":
            return _tool_result(part, info, string(state, "output"), is_error=False)
        case "error":
            interrupted = mapping(state, "metadata")
            output = interrupted.get("output") if interrupted.get("interrupted") is True else None
            if isinstance(output, str):
                return _tool_result(part, info, output, is_error=False)
            return _tool_result(part, info, string(state, "error"), is_error=True)
        case _:
            return None


def _sent_result(part: Mapping[str, Any], info: Mapping[str, Any]) -> ToolResult:
    if mapping(mapping(part, "state"), "time").get("compacted"):
        return _tool_result({**part, "state": {}}, info, CLEARED, is_error=False)
    return _result(part, info) or _tool_result(part, info, INTERRUPTED, is_error=True)


def _tool_result(part: Mapping[str, Any], info: Mapping[str, Any], text: str, *, is_error: bool) -> ToolResult:
    state = mapping(part, "state")
    attached = state.get("attachments")
    files = [_file(file) for file in attached if isinstance(file, dict)] if isinstance(attached, list) else []
    end = mapping(state, "time").get("end")
    return ToolResult(
        timestamp=end if isinstance(end, int | float) else _milliseconds(info),
        tool_call_id=string(part, "callID"),
        tool_name=string(part, "tool"),
        content=(Text(text), *files),
        is_error=is_error,
    )


def _milliseconds(info: Mapping[str, Any]) -> int | float | None:
    return number(mapping(info, "time"), "created") or None
