"""Convert Gemini CLI's messages to canonical messages.

The results of a call are stored in the call. An answer becomes an assistant message, followed by its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sessiontree.core.entries import milliseconds
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import (
    Assistant,
    Block,
    Image,
    Message,
    OtherBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from sessiontree.dialects.gemini.records import call_id, content_parts, plain_text, response_of
from sessiontree.dialects.passthrough import passthrough_of

PROVIDER = "google"
UNANSWERED = "unanswered"
"""Marks a call whose result is not recorded: its response only states that."""
COMMANDS = ("/", "?")
"""How texts begin that Gemini CLI takes for commands and does not send."""


def string(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def messages_of(record: Mapping[str, Any]) -> list[Message]:
    time = milliseconds(string(record, "timestamp"))
    if record.get("type") == "gemini":
        return [_answer(record, time), *_results(record, time)]
    parts = content_parts(record.get("content"))
    responses = [response for part in parts if (response := response_of(part)) is not None]
    results: list[Message] = [_result(response, [], time) for response in responses]
    blocks = tuple(block for part in parts if response_of(part) is None for block in _blocks(part))
    return [*results, User(timestamp=time, content=blocks)] if blocks or not results else results


def is_command(record: Mapping[str, Any]) -> bool:
    return record.get("type") == "user" and plain_text(record.get("content")).lstrip().startswith(COMMANDS)


def sent_messages(record: Mapping[str, Any]) -> list[Message]:
    """The messages that Gemini CLI sends: without thoughts, and without an answer that has nothing else."""
    found: list[Message] = []
    for message in messages_of(record):
        if isinstance(message, Assistant):
            blocks = tuple(
                block
                for block in message.content
                if not isinstance(block, Thinking | str) and not (isinstance(block, Text) and not block.text)
            )
            if blocks:
                found.append(Assistant(**{**_fields(message), "content": blocks}))
        elif not isinstance(message, User) or message.content:
            found.append(message)
    return found


def _fields(message: Assistant) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__struct_fields__}


def _answer(record: Mapping[str, Any], time: int | None) -> Assistant:
    parts = content_parts(record.get("content") or [])
    blocks: list[Block] = []
    if not any(part.get("thought") for part in parts):
        blocks += _thoughts(record.get("thoughts"))
    blocks += [block for part in parts for block in _blocks(part)]
    if not any("functionCall" in part for part in parts):
        blocks += [
            ToolCall(call_id(call.get("id"), call.get("name")), string(call, "name"), _object(call.get("args")))
            for call in _calls(record)
        ]
    is_calling = any(isinstance(block, ToolCall) for block in blocks)
    return Assistant(
        timestamp=time,
        content=tuple(blocks),
        provider=PROVIDER,
        model=string(record, "model") or None,
        usage=usage_of(record),
        stop_reason="toolUse" if is_calling else "stop",
    )


def _thoughts(thoughts: object) -> Iterator[Thinking]:
    for thought in thoughts if isinstance(thoughts, list) else ():
        if isinstance(thought, dict):
            subject, text = string(thought, "subject"), string(thought, "description")
            yield Thinking(f"**{subject}** {text}" if subject else text)


def _blocks(part: Mapping[str, Any]) -> Iterator[Block]:
    call, data = part.get("functionCall"), part.get("inlineData")
    if isinstance(call, dict):
        id = call_id(call.get("id"), call.get("name"))
        yield ToolCall(id, string(call, "name"), _object(call.get("args")))
    elif isinstance(data, dict) and string(data, "mimeType").startswith("image/"):
        yield Image(string(data, "data"), string(data, "mimeType"))
    elif part.get("thought") and isinstance(part.get("text"), str):
        yield Thinking(string(part, "text"))
    elif isinstance(part.get("text"), str):
        yield Text(string(part, "text"))
    else:
        yield OtherBlock("part", dict(part))


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {} if value is None else {"input": value}


def _calls(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = record.get("toolCalls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _results(record: Mapping[str, Any], time: int | None) -> Iterator[ToolResult]:
    for call in _calls(record):
        result = call.get("result")
        if not result or passthrough_of(call).get(UNANSWERED):
            continue
        ended = milliseconds(string(call, "timestamp")) or time
        parts = content_parts(result)
        responses = [response for part in parts if (response := response_of(part)) is not None]
        rest = [part for part in parts if response_of(part) is None]
        if not responses:  # a text, or parts without a wrapper
            responses, rest = [{"response": {"output": plain_text(result)}}], [p for p in rest if "text" not in p]
        # After a resume, each of parallel calls has the responses of all of them.
        id = call_id(call.get("id"), call.get("name"))
        own = (found for found in responses if call_id(found.get("id"), found.get("name")) == id)
        response = {**next(own, responses[0]), "id": call.get("id"), "name": call.get("name")}
        yield _result(response, rest, ended, is_error=call.get("status") in ("error", "cancelled"))


def _result(
    response: Mapping[str, Any], others: list[dict[str, Any]], time: int | None, *, is_error: bool = False
) -> ToolResult:
    content = response.get("response")
    body = content if isinstance(content, dict) else {"output": content}
    shown = body["output"] if "output" in body else body.get("error", body)
    text = shown if isinstance(shown, str) else render_json(shown).decode("utf-8", "replace")
    inner = response.get("parts")
    files = [*others, *(part for part in inner if isinstance(part, dict))] if isinstance(inner, list) else others
    return ToolResult(
        timestamp=time,
        tool_call_id=call_id(response.get("id"), response.get("name")),
        tool_name=string(response, "name"),
        content=(Text(text), *(block for part in files for block in _blocks(part))),
        is_error=is_error or ("error" in body and "output" not in body),
    )


def usage_of(record: Mapping[str, Any]) -> Usage | None:
    tokens = record.get("tokens")
    if not isinstance(tokens, dict):
        return None

    def count(name: str) -> int | float:
        value = tokens.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else 0

    cached = count("cached")
    return Usage(max(count("input") - cached, 0), count("output") + count("thoughts"), cached, 0, count("total"))
