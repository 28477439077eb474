"""Message content, both ways: canonical messages <-> bodies of Neovate's lines.

A *body* is a line without its envelope (uuids, type, timestamp, session). Encoding also returns notes about what it had
to leave out or change. An entry that no line of the tree can hold encodes to None and is stored on a metadata line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.neovate.records import (
    COMPACTION_MARK,
    INTERRUPTION,
    image,
    is_compaction,
    milliseconds,
    number,
    result_fields,
    string,
    token_counts,
)

_ENVELOPE = frozenset({"parentUuid", "uuid", "type", "timestamp", "sessionId", "sessiontree"})
_BLOCK_RANKS = {
    "user": {"text": 0, "image": 0},
    "assistant": {"thinking": 0, "text": 1, "toolCall": 2},
    "toolResult": {"text": 0, "image": 0},
}
"""The blocks a role may have, and their order: Neovate fails on others, and writes an assistant's in this order."""

_BRANCH = "Another branch of this conversation was followed for a while and then left. This happened on it:"
_UNSUPPORTED = "Neovate cannot store them"
_SIGNATURE = LossNote("aside", "signatures of thinking", _UNSUPPORTED)
_REORDERED = LossNote("changed", "orders of blocks", "Neovate has thinking first, then text, then calls")

_command = re.compile(r"<bash-input>(.*)</bash-input>\Z", re.DOTALL)
_output = re.compile(r"<bash-(stdout|stderr)>(.*)</bash-(stdout|stderr)>\Z", re.DOTALL)
_between_outputs = re.compile(r"</bash-stdout>\s*<bash-stderr>")


class EncodedBodies(Struct, frozen=True, gc=False):
    """The bodies of an entry, and how they differ from it."""

    bodies: list[dict[str, Any]]
    order: tuple[int, ...] = ()
    """For each encoded block its position in the entry's content."""
    left_out: tuple[int, ...] = ()
    """Positions of the blocks that could not be encoded."""
    notes: tuple[LossNote, ...] = ()
    is_reworded: bool = False
    """Whether the bodies only paraphrase the entry."""


_BlockChanges: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[LossNote, ...]]
"""`order`, `left_out` and `notes` of encoded content."""


class Call(Struct, frozen=True, gc=False):
    """The fields of a tool call that its result repeats."""

    name: str = ""
    input: Any = None


# Encoding


def encode_entry(entry: CanonicalEntry) -> EncodedBodies | None:
    """Encode any entry except a tool result; None when no line of the tree can hold it."""
    fields = entry.fields
    match entry.kind:
        case "message" if isinstance(fields.get("message"), dict):
            return _encode_message(fields["message"])
        case "custom_message":
            return _encode_custom(fields)
        case "branch_summary" if string(fields, "summary").strip():
            return _encode_branch_summary(fields)
        case "compaction" | "reset_boundary":  # a reset is a compaction with a blank summary
            text = {"type": "text", "text": string(fields, "summary")}
            return EncodedBodies([{"role": "user", "content": [text], "uiContent": COMPACTION_MARK}])
        case _:
            return None


def _encode_message(message: dict[str, Any]) -> EncodedBodies | None:
    match message.get("role"):
        case "user":
            content, changes = _encode_content(message, "user")
            return EncodedBodies([{"role": "user", "content": content}], *changes)
        case "assistant":
            return _encode_assistant(message)
        case "system" if isinstance(message.get("content"), str) and message.keys() <= {"role", "content", "timestamp"}:
            return EncodedBodies([{"role": "system", "content": message["content"]}])
        case "bashExecution" if not message.get("excludeFromContext"):
            return _encode_command(message)
        case "custom":
            return _encode_custom(message)
        case _:
            return None


def _encode_assistant(message: dict[str, Any]) -> EncodedBodies:
    content, changes = _encode_content(message, "assistant")
    text = content if isinstance(content, str) else "".join([part["text"] for part in content if _is_text(part)])
    provider, model = string(message, "provider"), string(message, "model")
    body = {
        "role": "assistant",
        "content": content,
        "text": text,
        "model": f"{provider}/{model}" if provider and model else model or provider,
        "usage": _encode_usage(message.get("usage")),
    }
    return EncodedBodies([body], *changes)


def encode_result(message: dict[str, Any], call: Call) -> EncodedBodies:
    """Encode a tool result as one part of a message of the role `tool`."""
    content, changes = _encode_content(message, "toolResult")
    if isinstance(content, list) and len(content) == 1 and _is_text(content[0]):
        content = content[0]["text"]
    result: dict[str, Any] = {"llmContent": content}
    if message.get("isError") is True:
        result["isError"] = True
    part = {
        "type": "tool-result",
        "toolCallId": string(message, "toolCallId"),
        "toolName": string(message, "toolName") or call.name,
        "input": {} if call.input is None else call.input,
        "result": result,
    }
    return EncodedBodies([part], *changes)


def interrupted_result(id: str, call: Call) -> dict[str, Any]:
    """The part that Neovate writes for a call that was interrupted."""
    display = "Tool execution was canceled by user."
    return {
        "type": "tool-result",
        "toolCallId": id,
        "toolName": call.name,
        "input": {} if call.input is None else call.input,
        "result": {"llmContent": INTERRUPTION, "returnDisplay": display, "isError": True},
    }


def encode_stray_result(message: dict[str, Any]) -> EncodedBodies:
    """Encode a tool result without an open call before it, as a user message."""
    content, (_, _, notes) = _encode_content(message, "toolResult")
    given = [{"type": "text", "text": content}] if isinstance(content, str) else content
    opening = {"type": "text", "text": f"The tool {string(message, 'toolName') or 'that was called'} gave this result:"}
    why = "the call they answer is not before them, and Neovate cannot send a result without its call"
    notes = (*notes, LossNote("changed", "tool results", why))
    return EncodedBodies([{"role": "user", "content": [opening, *given]}], notes=notes, is_reworded=True)


def _encode_command(message: dict[str, Any]) -> EncodedBodies | None:
    command, output, code = message.get("command"), message.get("output", ""), message.get("exitCode")
    if not isinstance(command, str) or not isinstance(output, str):
        return None
    stream = "bash-stderr" if code else "bash-stdout"
    bodies = [{"role": "user", "content": f"<bash-input>{command}</bash-input>"}]
    if output:
        bodies.append({"role": "user", "content": f"<{stream}>{output}</{stream}>"})
    return EncodedBodies(bodies)


def _encode_custom(fields: dict[str, Any]) -> EncodedBodies:
    content, (_, _, notes) = _encode_content(fields, "user")
    if fields.get("display") is False:
        shown = [{"type": "text", "text": content}] if isinstance(content, str) else content
        content = [{**part, "hidden": True} if _is_text(part) else part for part in shown]
    notes = (*notes, LossNote("mapped", "messages of extensions", "they are user messages in Neovate"))
    return EncodedBodies([{"role": "user", "content": content}], notes=notes, is_reworded=True)


def _encode_branch_summary(fields: dict[str, Any]) -> EncodedBodies:
    text = f"{_BRANCH}\n\n<summary>\n{string(fields, 'summary')}\n</summary>"
    body = {"role": "user", "content": [{"type": "text", "text": text, "hidden": True}]}
    notes = (LossNote("mapped", "summaries of branches", "they are hidden user messages in Neovate"),)
    return EncodedBodies([body], notes=notes, is_reworded=True)


def _encode_content(message: dict[str, Any], role: str) -> tuple[Any, _BlockChanges]:
    content = message.get("content")
    if isinstance(content, str):
        return content, ((), (), ())
    blocks = content if isinstance(content, list) else []
    ranks = _BLOCK_RANKS[role]
    parts: list[tuple[int, int, dict[str, Any]]] = []
    left_out: list[int] = []
    notes: list[LossNote] = []
    for at, block in enumerate(blocks):
        part = _encode_block(block, ranks)
        if part is None:
            left_out.append(at)
            notes.append(LossNote("aside", f"blocks of type {_block_type(block)}", _UNSUPPORTED))
            continue
        parts.append((ranks[block["type"]], at, part))
        if block.get("thinkingSignature"):
            notes.append(_SIGNATURE)
    ordered = sorted(parts, key=lambda part: part[0])
    if ordered != parts:
        notes.append(_REORDERED)
    return [part for _, _, part in ordered], (tuple(at for _, at, _ in ordered), tuple(left_out), tuple(notes))


def _encode_block(block: Any, allowed: dict[str, int]) -> dict[str, Any] | None:
    """Encode one block as a part; None when the role has no such part, or the block is malformed."""
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str) or kind not in allowed:
        return None
    if kind == "text":
        text = block.get("text")
        return {"type": "text", "text": text} if isinstance(text, str) else None
    if kind == "toolCall":
        id, name = block.get("id"), block.get("name")
        if not isinstance(id, str) or not isinstance(name, str):
            return None
        return {"type": "tool_use", "id": id, "name": name, "input": block.get("arguments")}
    if kind == "thinking":
        text = block.get("thinking")
        return {"type": "reasoning", "text": text} if isinstance(text, str) and not block.get("redacted") else None
    data, mime_type = block.get("data"), string(block, "mimeType") or "image/png"
    if not isinstance(data, str):
        return None
    url = data if data.startswith("data:") else f"data:{mime_type};base64,{data}"
    return {"type": "image", "data": url, "mimeType": mime_type}


def _encode_usage(usage: Any) -> dict[str, Any]:
    # Always written: Neovate adds up the tokens of the last response to see whether it must compact.
    fields = usage if isinstance(usage, dict) else {}
    found = {"input_tokens": number(fields, "input"), "output_tokens": number(fields, "output")}
    if read := number(fields, "cacheRead"):
        found["cache_read_input_tokens"] = read
    if written := number(fields, "cacheWrite"):
        found["cache_creation_input_tokens"] = written
    return found


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"


def _block_type(block: Any) -> str:
    return str(block.get("type") or "") if isinstance(block, dict) else type(block).__name__


# Decoding


def body_of(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in _ENVELOPE}


def decode_bodies(bodies: Sequence[dict[str, Any]], id: str, timestamp: str, *, is_root: bool) -> CanonicalEntry:
    """Decode one body, or a command's body followed by those of its output, into an entry."""
    first = bodies[0]
    if is_root and is_compaction(first):
        return CanonicalEntry("compaction", _decode_summary(first), id, timestamp)
    return message_entry(_decode_command(bodies) if is_command(first) else _decode_message(first), id, timestamp)


def message_entry(message: dict[str, Any], id: str, timestamp: str) -> CanonicalEntry:
    """The entry of a decoded message, which gets the timestamp of its line."""
    time = milliseconds(timestamp)
    if time is not None:
        message["timestamp"] = time
    return CanonicalEntry("message", {"message": message}, id, timestamp)


def _decode_message(body: dict[str, Any]) -> dict[str, Any]:
    role, content = body.get("role"), body.get("content")
    match role:
        case "user" | "system":
            return {"role": role, "content": _decode_content(content)}
        case "assistant":
            return _decode_assistant(body)
        case _:
            return {**body, "role": role if isinstance(role, str) else ""}


def decode_result(part: dict[str, Any]) -> dict[str, Any]:
    """Decode one result in the current form into a message."""
    fields = result_fields(part)
    content = _decode_content(fields.get("llmContent"))
    return {
        "role": "toolResult",
        "toolCallId": string(part, "toolCallId"),
        "toolName": string(part, "toolName"),
        "content": [{"type": "text", "text": content}] if isinstance(content, str) else content,
        "isError": fields.get("isError") is True,
    }


def normalize_result(part: dict[str, Any]) -> dict[str, Any]:
    """Convert a result part to the form that Neovate has written since 0.15."""
    if part.get("type") != "tool_result":
        return part
    rest = {name: value for name, value in part.items() if name not in ("type", "id", "name")}
    return {"type": "tool-result", "toolCallId": string(part, "id"), "toolName": string(part, "name"), **rest}


def calls_of(body: dict[str, Any]) -> dict[str, Call]:
    """The tool calls of an assistant's body, by id."""
    content = body.get("content")
    if body.get("role") != "assistant" or not isinstance(content, list):
        return {}
    return {
        string(part, "id"): Call(string(part, "name"), part.get("input"))
        for part in content
        if isinstance(part, dict) and part.get("type") == "tool_use"
    }


def is_command(body: dict[str, Any]) -> bool:
    return body.get("role") == "user" and _command.match(string(body, "content")) is not None


def is_output(body: dict[str, Any]) -> bool:
    return body.get("role") == "user" and _output.match(string(body, "content")) is not None


def _decode_summary(body: dict[str, Any]) -> dict[str, Any]:
    content = _decode_content(body.get("content"))
    blocks = [] if isinstance(content, str) else content
    texts = [string(block, "text") if isinstance(block, dict) else "" for block in blocks]
    return {"summary": content if isinstance(content, str) else "\n".join(texts), "tokensBefore": 0}


def _decode_command(bodies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Decode a command the user ran, from its body and those of its output."""
    command, *outputs = bodies
    found = _command.match(string(command, "content"))
    return {
        "role": "bashExecution",
        "command": found[1] if found else "",
        "output": "\n".join(_output_text(output) for output in outputs),
        "cancelled": False,
        "truncated": False,
    }


def _output_text(body: dict[str, Any]) -> str:
    found = _output.match(string(body, "content"))
    if not found:
        return ""
    return found[2] if found[1] == found[3] else _between_outputs.sub("\n", found[2])


def _decode_assistant(body: dict[str, Any]) -> dict[str, Any]:
    content, text = body.get("content"), body.get("text")
    decoded = _decode_content(content if content or not isinstance(text, str) or not text else text)
    provider, slash, model = string(body, "model").partition("/")
    if not slash:
        provider, model = "", provider
    message: dict[str, Any] = {"role": "assistant", "content": decoded}
    if provider:
        message["provider"] = provider
    if model:
        message["model"] = model
    usage = body.get("usage")
    if isinstance(usage, dict):
        message["usage"] = _decode_usage(usage)
    blocks = decoded if isinstance(decoded, list) else []
    has_calls = any(isinstance(block, dict) and block.get("type") == "toolCall" for block in blocks)
    message["stopReason"] = "toolUse" if has_calls else "stop"
    return message


def _decode_usage(fields: dict[str, Any]) -> dict[str, Any]:
    read, written = token_counts(fields)
    return {
        "input": read,
        "output": written,
        "cacheRead": number(fields, "cache_read_input_tokens"),
        "cacheWrite": number(fields, "cache_creation_input_tokens"),
        "totalTokens": read + written,
    }


def _decode_content(content: Any) -> str | list[Any]:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return [_decode_block(part) for part in content]
    return [] if content is None else [_decode_block(content)]


def _decode_block(part: Any) -> Any:
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
