"""Ordinary messages: the body of the line and its passthrough data at once, without saying, hearing and comparing.

What a line does not say of its item is found by hearing the line again and comparing the two (`drafts`). Of nearly all
messages it is known beforehand: texts, thinking and calls are heard as they were said but for the fields that a part
has no place for, and of the rest of a message only few fields are heard. Whatever is not surely of this shape is given
back as None, to be said and compared; both ways come to the same lines.
"""

from __future__ import annotations

from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.neovate.content import SIGNATURE, Call, say_usage
from sessiontree.dialects.neovate.content_decoder import hear_usage
from sessiontree.dialects.neovate.metadata_lines import MARKS
from sessiontree.dialects.neovate.records import milliseconds
from sessiontree.dialects.neovate.riding import EXTRAS, Draft
from sessiontree.dialects.passthrough import PASSTHROUGH

_HEARD_OF_BLOCKS = {
    "text": frozenset({"type", "text"}),
    "thinking": frozenset({"type", "thinking"}),
    "toolCall": frozenset({"type", "id", "name", "arguments"}),
}
"""The fields that are heard of a part, by the block it was said for: as many as the part has."""

_HEARD_TOKENS = len(hear_usage({}))
_NOTHING: dict[str, Any] = {}

_Deltas = list[list[Any]]
"""What blocks say beyond what is heard of them, with their positions."""


def plain_draft(
    entry: CanonicalEntry, id: str, timestamp: str, marks: dict[str, Any], call: Call | None = None
) -> Draft | None:
    """What `drafts` makes of an ordinary message for a line of this id and time; None if it is not surely one.

    With `call` it is the result of that call.
    """
    fields = entry.fields
    message, riding = fields.get("message"), fields.get(PASSTHROUGH, _NOTHING)
    if entry.kind != "message" or type(message) is not dict or type(message.get("timestamp")) is not int:
        return None
    if type(riding) is not dict or EXTRAS in riding:
        return None
    rest = message.copy()  # what is heard of the line is taken out of it
    deltas: _Deltas = []
    calls: dict[str, Call] = {}
    role = rest.pop("role", None)
    if role == "toolResult" and call is not None:
        body = _result(rest, call, deltas)
    elif role == "assistant" and call is None:
        body = _answer(rest, calls, deltas)
    elif role == "user" and call is None:
        body = _prompt(rest, deltas)
    else:
        return None
    if body is None:
        return None
    if rest["timestamp"] == milliseconds(timestamp):
        del rest["timestamp"]
    # What follows keeps the order of names of `build_passthrough`, so that the bytes are the same.
    passthrough = riding.copy()
    if entry.id and entry.id != id:
        passthrough["id"] = entry.id
    if len(fields) > 1 + (PASSTHROUGH in fields):
        passthrough["fields"] = {name: value for name, value in fields.items() if name not in ("message", PASSTHROUGH)}
    if rest:
        passthrough["message"] = rest
    if entry.timestamp and entry.timestamp != timestamp:
        marks = {**marks, "timestamp": entry.timestamp}
    if not deltas:
        if marks:
            passthrough[MARKS] = marks
        return Draft([body], [passthrough], (), calls)
    passthrough[MARKS] = {**marks, "blocks": deltas}
    notes = tuple([SIGNATURE for _, delta in deltas if delta["set"].get("thinkingSignature")])
    return Draft([body], [passthrough], notes, calls)


def _prompt(rest: dict[str, Any], deltas: _Deltas) -> dict[str, Any] | None:
    content = rest.pop("content", None)
    if type(content) is not str:
        content = _texts(content, deltas)
    elif content.startswith("<bash-"):  # perhaps a command, or its output
        return None
    return None if content is None else {"role": "user", "content": content}


def _result(rest: dict[str, Any], call: Call, deltas: _Deltas) -> dict[str, Any] | None:
    """One result as a part of a line."""
    id, name, is_error = rest.pop("toolCallId", None), rest.pop("toolName", None), rest.pop("isError", None)
    parts = _texts(rest.pop("content", None), deltas)
    if parts is None or type(id) is not str or type(name) is not str or not name or type(is_error) is not bool:
        return None
    result: dict[str, Any] = {"llmContent": parts[0]["text"] if len(parts) == 1 else parts}
    if is_error:
        result["isError"] = True
    given = {} if call.input is None else call.input
    return {"type": "tool-result", "toolCallId": id, "toolName": name, "input": given, "result": result}


def _answer(rest: dict[str, Any], calls: dict[str, Call], deltas: _Deltas) -> dict[str, Any] | None:
    content, provider, model = rest.pop("content", None), rest.pop("provider", None), rest.pop("model", None)
    if type(provider) is not str or type(model) is not str or not provider or not model or "/" in provider:
        return None
    if "usage" not in rest or "stopReason" not in rest:
        return None
    parts = content if type(content) is str else _parts(content, calls, deltas)
    if parts is None:
        return None
    text = parts if isinstance(parts, str) else "".join([part["text"] for part in parts if part["type"] == "text"])
    if rest["stopReason"] == ("toolUse" if calls else "stop"):
        del rest["stopReason"]
    given = rest["usage"]
    usage = say_usage(given)
    # Usage with more than tokens, such as costs, is surely heard differently.
    if type(given) is dict and len(given) == _HEARD_TOKENS and hear_usage(usage) == given:
        del rest["usage"]
    return {"role": "assistant", "content": parts, "text": text, "model": f"{provider}/{model}", "usage": usage}


def _texts(content: Any, deltas: _Deltas) -> list[dict[str, Any]] | None:
    """The parts of a content that is nothing but texts."""
    if type(content) is not list:
        return None
    parts: list[dict[str, Any]] = []
    for block in content:
        if type(block) is not dict or block.get("type") != "text" or type(block.get("text")) is not str:
            return None
        if len(block) != 2:
            deltas.append(_delta(len(parts), block))
        parts.append({"type": "text", "text": block["text"]})
    return parts


def _parts(content: Any, calls: dict[str, Call], deltas: _Deltas) -> list[dict[str, Any]] | None:
    """The parts of an answer that has thinking, then texts, then calls, which is the order of Neovate."""
    if type(content) is not list:
        return None
    parts: list[dict[str, Any]] = []
    is_thinking = True
    for block in content:
        kind = block.get("type") if type(block) is dict else None
        if kind == "toolCall":
            id, name, given = block.get("id"), block.get("name"), block.get("arguments")
            if type(id) is not str or type(name) is not str or type(given) is not dict:
                return None
            calls[id] = Call(name, given)
            part = {"type": "tool_use", "id": id, "name": name, "input": given}
        elif kind == "text" and not calls and type(block.get("text")) is str:
            is_thinking = False
            part = {"type": "text", "text": block["text"]}
        elif kind == "thinking" and is_thinking and not calls and type(block.get("thinking")) is str:
            if block.get("redacted"):
                return None
            part = {"type": "reasoning", "text": block["thinking"]}
        else:
            return None
        if len(block) != len(part):
            deltas.append(_delta(len(parts), block))
        parts.append(part)
    return parts


def _delta(at: int, block: dict[str, Any]) -> list[Any]:
    heard = _HEARD_OF_BLOCKS[block["type"]]
    return [at, {"set": {name: value for name, value in block.items() if name not in heard}}]
