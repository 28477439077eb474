"""Riders of ordinary messages, without hearing their lines again.

What a line does not say of its item is found by hearing the line and comparing the two (`riding`). Of nearly all
messages it is known beforehand: texts, thinking and calls are heard as they were said but for the fields that a part
has no place for, and of the rest of a line only few fields are heard. Whatever is not surely of this shape is given
back as None, to be compared; both ways come to the same rider.
"""

from __future__ import annotations

from typing import Any

from sessiontree.dialects.neovate.asides import MARKS
from sessiontree.dialects.neovate.hearing import hear_usage
from sessiontree.dialects.neovate.saying import Said
from sessiontree.dialects.neovate.wire import milliseconds
from sessiontree.dialects.riders import RIDER
from sessiontree.dialects.scribe import Item

_HEARD_OF_BLOCKS = {
    "text": frozenset({"type", "text"}),
    "thinking": frozenset({"type", "thinking"}),
    "toolCall": frozenset({"type", "id", "name", "arguments"}),
}
"""The fields that are heard of a part, by the block it was said for. Images, which change on their way, are missing."""

_HEARD_TOKENS = len(hear_usage({}))


def plain_rider(item: Item, said: Said, id: str, timestamp: str, marks: dict[str, Any]) -> dict[str, Any] | None:
    """What `riding.rider_for` gives for a message that was said in one line of this id and time; None if unsure.

    Neither the item nor its line has extras.
    """
    fields = item.fields
    message = fields.get("message")
    if item.kind != "message" or type(message) is not dict or said.left_out or said.is_reworded:
        return None
    heard = _heard_beside_content(message, said.bodies[0])
    blocks = None if heard is None else _more_of_blocks(message.get("content"), said.order)
    riding = fields.get(RIDER)
    if heard is None or blocks is None or (RIDER in fields and type(riding) is not dict):
        return None
    time = milliseconds(timestamp)
    if time is not None:
        heard["timestamp"] = time
    # What follows keeps the order of names of `rider_for`, so that the bytes are the same.
    rider: dict[str, Any] = dict(riding) if riding else {}
    marks = dict(marks)
    if item.id and item.id != id:
        rider["id"] = item.id
    if item.timestamp and item.timestamp != timestamp:
        marks["timestamp"] = item.timestamp
    if len(fields) > 1 + (RIDER in fields):
        rider["fields"] = {name: value for name, value in fields.items() if name not in ("message", RIDER)}
    changed: dict[str, Any] = {}
    shared = 0
    for name, value in message.items():
        if name in heard:
            shared += 1
            told = heard[name]
            if told is not value and (told != value or type(told) is not type(value)):
                changed[name] = value
        elif name != "content":
            changed[name] = value
    if changed:
        rider["message"] = changed
    if shared < len(heard):
        marks["without"] = sorted(heard.keys() - message.keys())
    if blocks:
        marks["blocks"] = blocks
    if marks:
        rider[MARKS] = marks
    return rider


def _heard_beside_content(message: dict[str, Any], body: dict[str, Any]) -> dict[str, Any] | None:
    """What is heard of a line but for its content and its time."""
    role, content = message.get("role"), message.get("content")
    if role == "toolResult":
        if type(content) is not list:  # it is heard as a list
            return None
        is_error = body["result"].get("isError") is True
        return {"role": role, "toolCallId": body["toolCallId"], "toolName": body["toolName"], "isError": is_error}
    if role == "assistant":
        return _heard_of_answer(message, body)
    if role != "user" or (type(content) is str and content.startswith("<bash-")):  # perhaps a command, or its output
        return None
    return {"role": role}


def _heard_of_answer(message: dict[str, Any], body: dict[str, Any]) -> dict[str, Any] | None:
    provider, model, usage = message.get("provider"), message.get("model"), message.get("usage")
    if type(provider) is not str or type(model) is not str or not provider or not model or "/" in provider:
        return None
    # Usage with more than tokens, such as costs, is surely heard differently.
    is_more = type(usage) is dict and len(usage) != _HEARD_TOKENS
    content = body["content"]
    has_calls = type(content) is list and content != [] and content[-1]["type"] == "tool_use"  # calls come last
    return {
        "role": "assistant",
        "provider": provider,
        "model": model,
        "usage": None if is_more else hear_usage(body["usage"]),
        "stopReason": "toolUse" if has_calls else "stop",
    }


def _more_of_blocks(content: Any, order: tuple[int, ...]) -> list[Any] | None:
    """What blocks say beyond what is heard of them, as deltas with their positions; all of them were said."""
    if type(content) is str:
        return []
    if type(content) is not list or order != tuple(range(len(content))):
        return None
    found: list[Any] = []
    for at, block in enumerate(content):
        heard = _HEARD_OF_BLOCKS.get(block["type"])
        if heard is None or (block["type"] == "toolCall" and type(block.get("arguments")) is not dict):
            return None
        if len(block) != len(heard):
            found.append([at, {"set": {name: value for name, value in block.items() if name not in heard}}])
    return found
