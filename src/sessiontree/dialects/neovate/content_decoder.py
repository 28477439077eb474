"""The words of Neovate's lines in canonical form: messages as plain objects in the native shape.

A *body* is a line without its envelope (uuids, type, time, session). What a body says beyond canonical form is not
heard here; `telling` finds it by saying the message again and looking at what differs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.neovate.records import image, is_compaction, milliseconds, number, string

ENVELOPE = frozenset({"parentUuid", "uuid", "type", "timestamp", "sessionId", "sessiontree"})

_command = re.compile(r"<bash-input>(.*)</bash-input>\Z", re.DOTALL)
_output = re.compile(r"<bash-(stdout|stderr)>(.*)</bash-(stdout|stderr)>\Z", re.DOTALL)
_between_outputs = re.compile(r"</bash-stdout>\s*<bash-stderr>")


def body_of(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in ENVELOPE}


def hear_item(bodies: Sequence[dict[str, Any]], id: str, timestamp: str, *, is_root: bool) -> CanonicalEntry:
    """The entry that one body says, or a command's body with those of its output."""
    first = bodies[0]
    if is_root and is_compaction(first):
        return CanonicalEntry("compaction", hear_summary(first), id, timestamp)
    return heard_message(hear_command(bodies) if is_command(first) else hear(first), id, timestamp)


def heard_message(message: dict[str, Any], id: str, timestamp: str) -> CanonicalEntry:
    """The entry of a message that was just heard; it gets the time of its line."""
    time = milliseconds(timestamp)
    if time is not None:
        message["timestamp"] = time
    return CanonicalEntry("message", {"message": message}, id, timestamp)


def hear(body: dict[str, Any]) -> dict[str, Any]:
    """One message, unless the body holds results or belongs to a command."""
    role, content = body.get("role"), body.get("content")
    match role:
        case "user" | "system":
            return {"role": role, "content": _content(content)}
        case "assistant":
            return _assistant(body)
        case _:
            return {**body, "role": role if isinstance(role, str) else ""}


def hear_result(part: dict[str, Any]) -> dict[str, Any]:
    """The message of one result, of the new form."""
    result = part.get("result")
    fields = result if isinstance(result, dict) else {"llmContent": result}
    given = fields.get("llmContent")
    content = _content(given)
    return {
        "role": "toolResult",
        "toolCallId": string(part, "toolCallId"),
        "toolName": string(part, "toolName"),
        "content": [{"type": "text", "text": content}] if isinstance(content, str) else content,
        "isError": fields.get("isError") is True,
    }


def in_new_form(part: dict[str, Any]) -> dict[str, Any]:
    """A result as it is written since 0.15, whichever form it has."""
    if part.get("type") != "tool_result":
        return part
    rest = {name: value for name, value in part.items() if name not in ("type", "id", "name")}
    return {"type": "tool-result", "toolCallId": string(part, "id"), "toolName": string(part, "name"), **rest}


def hear_summary(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a compaction."""
    content = _content(body.get("content"))
    texts = content if isinstance(content, str) else "\n".join(_text(block) for block in content)
    return {"summary": texts, "tokensBefore": 0}


def hear_command(bodies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A command the user ran, from the line that has it and those that have its output."""
    command, *outputs = bodies
    found = _command.match(string(command, "content"))
    return {
        "role": "bashExecution",
        "command": found[1] if found else "",
        "output": "\n".join(_printed(output) for output in outputs),
        "cancelled": False,
        "truncated": False,
    }


def is_command(body: dict[str, Any]) -> bool:
    return body.get("role") == "user" and _command.match(string(body, "content")) is not None


def is_output(body: dict[str, Any]) -> bool:
    return body.get("role") == "user" and _output.match(string(body, "content")) is not None


def _printed(body: dict[str, Any]) -> str:
    found = _output.match(string(body, "content"))
    if not found:
        return ""
    return found[2] if found[1] == found[3] else _between_outputs.sub("\n", found[2])


def _assistant(body: dict[str, Any]) -> dict[str, Any]:
    content, text = body.get("content"), body.get("text")
    heard = _content(content if content or not isinstance(text, str) or not text else text)
    provider, slash, model = string(body, "model").partition("/")
    if not slash:
        provider, model = "", provider
    found: dict[str, Any] = {"role": "assistant", "content": heard}
    if provider:
        found["provider"] = provider
    if model:
        found["model"] = model
    usage = body.get("usage")
    if isinstance(usage, dict):
        found["usage"] = hear_usage(usage)
    blocks = heard if isinstance(heard, list) else []
    has_calls = any(isinstance(block, dict) and block.get("type") == "toolCall" for block in blocks)
    found["stopReason"] = "toolUse" if has_calls else "stop"
    return found


def hear_usage(fields: dict[str, Any]) -> dict[str, Any]:
    """The tokens that an answer used."""
    read, written = number(fields, "input_tokens"), number(fields, "output_tokens")
    return {
        "input": read,
        "output": written,
        "cacheRead": number(fields, "cache_read_input_tokens"),
        "cacheWrite": number(fields, "cache_creation_input_tokens"),
        "totalTokens": read + written,
    }


def _content(content: Any) -> str | list[Any]:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return [_block(part) for part in content]
    return [] if content is None else [_block(content)]


def _block(part: Any) -> Any:
    if not isinstance(part, dict):
        return {"type": "text", "text": part} if isinstance(part, str) else part
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": string(part, "text")}
    if kind == "tool_use":
        given = part.get("input")
        arguments = given if isinstance(given, dict) else {} if given is None else {"input": given}
        return {"type": "toolCall", "id": string(part, "id"), "name": string(part, "name"), "arguments": arguments}
    if kind == "reasoning":
        return {"type": "thinking", "thinking": string(part, "text")}
    if kind == "image":
        found = image(part)
        return {"type": "image", "data": found.data, "mimeType": found.mime_type}
    return part


def _text(block: Any) -> str:
    return string(block, "text") if isinstance(block, dict) else ""
