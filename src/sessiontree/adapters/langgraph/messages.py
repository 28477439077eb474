"""LangChain's messages as messages of a session."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

from langchain_core import messages as chat_messages

MESSAGE_CLASSES: dict[str, Any] = {
    cls.__name__: cls for cls in (chat_messages.HumanMessage, chat_messages.AIMessage, chat_messages.ToolMessage)
}
_ROLES = {"HumanMessage": "user", "AIMessage": "assistant", "ToolMessage": "toolResult"}


def role_of(value: Any) -> str:
    """The role of a message in a session; empty for values that are not shown as messages."""
    name = type(value).__name__
    if MESSAGE_CLASSES.get(name) is not type(value) or type(value.id) not in (str, type(None)):
        return ""
    return _ROLES[name]


def shown_message(message: Any) -> dict[str, Any]:
    text = message.text if isinstance(message.text, str) else message.text()
    content = message.content if type(message.content) is str else str(text)
    role = role_of(message)
    if role == "user":
        return {"role": role, "content": content}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if content else []
    if role == "toolResult":
        names = {"toolCallId": message.tool_call_id, "toolName": message.name or ""}
        return {"role": role, **names, "content": blocks, "isError": message.status == "error"}
    calls = [
        {"type": "toolCall", "id": call["id"] or "", "name": call["name"], "arguments": call["args"]}
        for call in message.tool_calls
        if is_json(call["args"])
    ]
    shown: dict[str, Any] = {"role": role, "content": [*blocks, *calls]}
    model = message.response_metadata.get("model_name")
    if isinstance(model, str):
        shown["model"] = model
    if message.usage_metadata:
        used = message.usage_metadata
        shown["usage"] = {"input": used["input_tokens"], "output": used["output_tokens"]}
    return {**shown, "stopReason": "toolUse" if calls else "stop"}


def copy_message(message: Any, id: str | None) -> Any:
    """A copy with another id that shares nothing mutable: three times as fast as creating the message again."""
    made = copy.copy(message)
    fields = made.__dict__
    for name, value in fields.items():
        kind = type(value)
        if kind is dict or kind is list:
            fields[name] = copy.deepcopy(value) if value else kind()
    if made.__pydantic_extra__:
        made.__pydantic_extra__.update(copy.deepcopy(made.__pydantic_extra__))
    fields["id"] = id
    return made


def is_same_message(message: Any, known: Any) -> bool:
    """Whether two messages are serialized to the same bytes except for their ids; False if that is not certain."""
    fields, others = message.__dict__, known.__dict__
    if type(message) is not type(known) or fields.keys() != others.keys():
        return False
    for name, value in fields.items():
        if value is not others[name] and name != "id" and not _is_same(value, others[name]):
            return False
    return _is_same(message.__pydantic_extra__, known.__pydantic_extra__)


def _is_same(one: Any, other: Any) -> bool:
    # Not `==`: 1 equals True and 1.0, and equal dicts may have another order.
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is str or kind is int:
        return bool(one == other)
    if kind is list or kind is dict:
        if len(one) != len(other) or not all(map(_is_same, one, other)):
            return False
        return not one or kind is list or all(map(_is_same, one.values(), other.values()))
    return one is other


def text_of(shown: Mapping[str, Any]) -> str:
    content = shown["content"]
    if isinstance(content, str):
        return content
    return next((str(block["text"]) for block in content if block["type"] == "text"), "")


def is_json(value: Any) -> bool:
    """Whether JSON returns exactly this value, of the same types."""
    if value is None or type(value) in (bool, str, int):
        return True
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is list:
        return all(map(is_json, value))
    return type(value) is dict and all(type(key) is str and is_json(item) for key, item in value.items())


def contains_message(value: Any) -> bool:
    if type(value) is list:
        return any(map(contains_message, value))
    if type(value) is dict:
        return all(type(key) is str for key in value) and any(map(contains_message, value.values()))
    return bool(role_of(value))
