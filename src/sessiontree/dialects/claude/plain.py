"""Messages of an ordinary shape: composed at once, and their riders worked out without telling their lines again.

Nearly all that is written is of this shape: texts, images, thinking and calls, each block with the fields it always has
and perhaps some more. What its lines say is known before they are there, and what they have no place for are the fields
that are not among those. Whatever is not surely of this shape is given back as None, to be looked at closely
(`composing`, `differences`); both ways come to the same lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sessiontree.core.context import milliseconds
from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.claude.content import (
    TOLD_API,
    TOLD_PROVIDER,
    is_of_anthropic,
    told_reason,
    told_usage,
    written_reason,
)
from sessiontree.dialects.claude.content_builder import Composed, dropped, written_call
from sessiontree.dialects.claude.decode_lines import MADE_RESPONSE, NAME
from sessiontree.dialects.claude.differences import PARTS
from sessiontree.dialects.claude.line_summary import is_reminder_text
from sessiontree.dialects.claude.records import Fields
from sessiontree.dialects.passthrough import RIDER

_TEXT = frozenset({"type", "text"})
_IMAGE = frozenset({"type", "data", "mimeType"})
_CALL = frozenset({"type", "id", "name", "arguments"})
_THINKING = frozenset({"type", "thinking", "thinkingSignature"})
_TOLD_TOKENS = len(told_usage({}) or ())
_NO_PARTS = PARTS | {NAME}

SAID_OF_ANSWERS = ("role", "content", "model", "stopReason")
"""The fields that the shards of an ordinary answer say as they are."""

# Why answers end, as far as the client's word for it is told as the same again.
_REASONS = frozenset(
    reason
    for reason in ("stop", "toolUse", "length")
    if told_reason(written_reason({"stopReason": reason}, False)) == reason
)


# Content


def composed_spoken(content: Any) -> Composed | None:
    """What a user or a tool says in texts and images."""
    if type(content) is not list:
        return None
    more: list[list[Any]] = []
    composed = Composed([], [], [], [], more)
    for at, block in enumerate(content):
        if type(block) is not dict:
            return None
        kind = block.get("type")
        if kind == "text":
            text = block.get("text")
            if type(text) is not str or not text:
                return None
            form: Fields = {"type": "text", "text": text}
            said = _TEXT
        elif kind == "image":
            data, mime_type = block.get("data"), block.get("mimeType")
            if type(data) is not str or type(mime_type) is not str or not mime_type:
                return None
            form = {"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}}
            said = _IMAGE
        else:
            return None
        composed.blocks.append(form)
        composed.places.append(at)
        if len(block) != len(said):
            more.append([at, {name: value for name, value in block.items() if name not in said}])
    return composed if composed.blocks else None


def composed_answer(message: Fields, name_call: Callable[[Fields], str]) -> Composed | None:
    """What the assistant says in texts, thinking and calls; `name_call` gives each call the id it shall have."""
    content = message.get("content")
    if type(content) is not list or not all(map(_is_plain_answered, content)):
        return None
    is_signed = is_of_anthropic(message)
    more: list[list[Any]] = []
    composed = Composed([], [], [], [], more)
    renamed: list[LossNote] = []
    for at, block in enumerate(content):
        kind = block["type"]
        if kind == "text":
            form: Fields = {"type": "text", "text": block["text"]}
            said = _TEXT
        elif kind == "toolCall":
            form, notes = written_call(block, name_call)
            said = _CALL
            if notes:
                renamed += notes
                said = _CALL - {name for name in ("id", "name") if form[name] != block[name]}
        elif is_signed and block.get("thinkingSignature"):
            form = {"type": "thinking", "thinking": block["thinking"], "signature": block["thinkingSignature"]}
            said = _THINKING
        else:
            composed.left_out.append(at)
            composed.notes.append(dropped(block))
            continue
        composed.blocks.append(form)
        composed.places.append(at)
        if len(block) != len(said):
            more.append([at, {name: value for name, value in block.items() if name not in said}])
    composed.notes += renamed
    return composed


def _is_plain_answered(block: Any) -> bool:
    if type(block) is not dict:
        return False
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        return type(text) is str and text != ""
    if kind == "toolCall":
        return type(block.get("arguments")) is dict and type(block.get("id")) is str and type(block.get("name")) is str
    if kind == "thinking":
        is_signed = type(block.get("thinkingSignature", "")) is str
        return type(block.get("thinking")) is str and is_signed and block.get("redacted") is not True
    return False


def is_heard(content: str | list[Fields]) -> bool:
    """Whether a prompt surely reaches the model as what it is: no reminder, and nothing that looks like a command."""
    if type(content) is str:
        return content != "" and not content.startswith("<bash-") and not is_reminder_text(content)
    first: Any = content[0]
    return first["type"] != "text" or not is_reminder_text(first["text"])


# Riders


def rides_plainly(item: CanonicalEntry) -> bool:
    """Whether nothing rides along with an item that would be read from its lines or put on them."""
    if RIDER not in item.fields:
        return True
    on = item.fields[RIDER]
    return type(on) is dict and _NO_PARTS.isdisjoint(on)


def is_plain_answer(message: Fields) -> bool:
    """Whether the shards of an answer say of it what they seem to: it ended well, and a model is named."""
    reason, model = message.get("stopReason"), message.get("model")
    return type(reason) is str and reason in _REASONS and type(model) is str and model != ""


def said_of_answer(message: Fields, common: Fields, time: str) -> Fields:
    """What the shards of such an answer say of it in words that need not be its own."""
    usage = _said_of_usage(message.get("usage"), common["usage"])
    said: Fields = {"api": TOLD_API, "provider": TOLD_PROVIDER, "usage": usage}
    if not common["id"].startswith(MADE_RESPONSE):
        said["responseId"] = common["id"]
    return _timed(said, time)


def _said_of_usage(usage: object, written: Fields) -> Fields | None:
    """Tokens as they are told; None where that is surely something else than what the message says."""
    if type(usage) is dict and len(usage) != _TOLD_TOKENS:
        return None
    return told_usage(written)


def said_of_result(call: str, tool: str, is_error: bool, time: str) -> Fields:
    return _timed({"toolCallId": call, "toolName": tool, "isError": is_error}, time)


def said_of_prompt(time: str) -> Fields:
    return _timed({}, time)


def _timed(said: Fields, time: str) -> Fields:
    ms = milliseconds(time)
    if ms is not None:
        said["timestamp"] = ms
    return said


def plain_rider(
    item: CanonicalEntry, id: str, said: Fields, composed: Composed, as_it_is: Sequence[str] = ("role", "content")
) -> Fields:
    """What the lines of a message do not say of it, when they say some fields as they are and of the rest only `said`.

    `composed` tells of the content.
    """
    fields = item.fields
    message = fields["message"]
    found: Fields = {}
    if item.id and item.id != id:
        found["id"] = item.id
    on = fields.get(RIDER)
    if len(fields) > (2 if on is not None else 1):
        found["fields"] = {name: value for name, value in fields.items() if name not in ("message", RIDER)}
    rest, missing = message.copy(), []
    for name in as_it_is:
        del rest[name]
    for name, told in said.items():
        if name not in rest:
            missing.append(name)
            continue
        value = rest[name]
        if told is value or (told == value and (type(told) is bool) is (type(value) is bool)):
            del rest[name]
    if rest:
        found["message"] = rest
    if composed.left_out:
        content = message["content"]
        found["insert"] = [(at, content[at]) for at in composed.left_out]
    if on:
        found |= on
    if composed.more:
        found["merge"] = composed.more
    if missing:
        found["without"] = {"message": missing}
    return found
