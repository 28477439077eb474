"""Items of the OpenAI Agents SDK as entries: the messages that other programs read, and the items for their messages.

Each entry that the adapter writes holds the original item as passthrough data, `{"item": ..., "texts": ...}`. Texts
that the message holds as well are left out of the item: `texts` names the field and the parts they belong to, or True
if the field is a text itself. `images` means that the item may hold images, which the engine stores in blobs. These
names must never change, because they are in users' files. Nothing here imports the SDK.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from sessiontree.core.entries import CONVERSATION_TYPES, ContextEdit
from sessiontree.core.jsonio import JsonObject, render_json
from sessiontree.core.messages import (
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
    message_blocks,
    parse_message,
)
from sessiontree.dialects.passthrough import passthrough_of
from sessiontree.session.blob_refs import BLOB_POINTERS
from sessiontree.session.journal import Journal
from sessiontree.session.session import Session

Item: TypeAlias = Any
"""An input item of the SDK: a dict, typed there as a union of many."""

NAME = "openai-agents"
"""The name under which passthrough data holds an item."""
_CONTEXT_CHANGES = CONVERSATION_TYPES - {"message"} | {"context_edit"}
"""Types of entries that change the context in other ways than by adding a message."""


class _Carried(Struct, frozen=True, gc=False):
    item: Any = UNSET
    texts: dict[str, Any] | None = None
    images: bool = False


class _Passthrough(Struct, frozen=True, gc=False):
    carried: _Carried = msgspec.field(default=_Carried(), name=NAME)


class _Block(Struct, gc=False):
    text: str = ""


class _Message(Struct, gc=False):
    content: list[_Block]


class _Line(Struct, gc=False):
    message: _Message
    sessiontree: _Passthrough = _Passthrough()
    blobs: Any = msgspec.field(default=None, name=BLOB_POINTERS)


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_lines = msgspec.json.Decoder(_Line).decode_lines
_IMAGE = b'"image'
"""Part of every line whose images the engine moves to blobs without listing them."""
_TEXT_FIELDS = ("content", "output")
_NOT_OURS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError, AttributeError)
"""Exceptions raised by decoding an entry that this module did not write."""


def carried_item(item: Any, message: JsonObject) -> JsonObject:
    """Passthrough data for an item: without the texts that its message holds."""
    found: JsonObject = {"item": item}
    blocks = message["content"]
    for field in _TEXT_FIELDS if isinstance(item, dict) else ():
        value = item.get(field)
        if isinstance(value, str) and blocks == [{"type": "text", "text": value}]:
            found = {"item": {name: other for name, other in item.items() if name != field}, "texts": {field: True}}
        elif isinstance(value, list) and len(value) == len(blocks):
            parts, held = list(value), [at for at, part in enumerate(value) if _is_text(part, blocks[at])]
            for at in held:
                parts[at] = {name: other for name, other in value[at].items() if name != "text"}
            found = {"item": {**item, field: parts}, "texts": {field: held}}
    if _may_be_nested(item) and _IMAGE in render_json(found):
        found["images"] = True
    return found


def _may_be_nested(item: Any) -> bool:
    """Whether an item may hold images: one of texts and numbers alone does not, unless it is a generated image."""
    if not isinstance(item, dict):
        return True
    return "result" in item or any(isinstance(value, dict | list) for value in item.values())


def _is_text(part: Any, block: JsonObject) -> bool:
    return (
        isinstance(part, dict) and isinstance(part.get("text"), str) and block == {"type": "text", "text": part["text"]}
    )


def _with_texts(item: Any, texts: Any, blocks: Sequence[Any]) -> Item:
    """Undo `carried_item`, with the message's blocks."""
    for field, held in texts.items():
        if held is True:
            item[field] = blocks[0].text
        else:
            for at in held:
                item[field][at]["text"] = blocks[at].text
    return item


def latest_items(session: Session, leaf: str | None, limit: int | None) -> list[tuple[str, Item]]:
    """At least `limit` last items before an entry, oldest first, with the ids of their entries; None: all items."""
    journal = session.journal
    parents, types, node = journal.tree.parents(), journal.types, session.node_of(leaf)
    nodes: list[int] = []
    while node is not None and (limit is None or len(nodes) < limit):
        if types[node] == "message":
            nodes.append(node)
        elif types[node] in _CONTEXT_CHANGES:
            return _context_items(session, leaf)
        node = parents[node]
    nodes.reverse()
    ids = journal.tree.ids
    found: list[tuple[str, Item]] = []
    for at, item in zip(nodes, _decode_items(journal, nodes), strict=True):
        if item is not UNSET:
            found.append((ids[at], item))
        else:  # large content, or an entry of another program
            (fields,) = journal.resolved_fields([at])
            found += [(ids[at], item) for item in items_of(session, ids[at], fields)]
    if node is not None and limit is not None and len(found) < limit:  # entries without items do not count
        return latest_items(session, leaf, 2 * limit)
    return found


def _context_items(session: Session, leaf: str | None) -> list[tuple[str, Item]]:
    """The items of a context with compactions or edits: those of unchanged entries, and messages for the others."""
    context = session.context(leaf)
    plain = [id for id in context.path if session.type_of(id) == "message"]
    fields = dict(zip(plain, session.journal.resolved_fields([session.node_of(id) or 0 for id in plain]), strict=True))
    edited = {entry.target_id for entry in session.path(leaf) if isinstance(entry, ContextEdit)}
    found: list[tuple[str, Item]] = []
    for id, message in zip(context.sources, context.messages, strict=True):
        if id in fields and id not in edited:
            found += [(id, item) for item in items_of(session, id, fields[id])]
        else:
            found += [(id, item) for item in _rendered_items(message)]
    return found


def _decode_items(journal: Journal, nodes: Sequence[int]) -> list[Item]:
    """The items of entries, without decoding more of them; `UNSET` for one that has none, or may refer to blobs."""
    try:
        return [_item_of(line) for line in _decode_lines(journal.read_joined(nodes))]
    except _NOT_OURS:
        pass  # another program wrote one of the lines: decode them one by one
    found: list[Item] = []
    for raw in journal.iter_raw(nodes):
        try:
            found.append(_item_of(_decode_line(raw)))
        except _NOT_OURS:
            found.append(UNSET)
    return found


def _item_of(line: _Line) -> Item:
    carried = line.sessiontree.carried
    if line.blobs is not None or carried.images:
        return UNSET
    return _with_texts(carried.item, carried.texts, line.message.content) if carried.texts else carried.item


def items_of(session: Session, id: str, fields: JsonObject) -> list[Item]:
    """The items of an entry: the one it was written for, or those for a message of another program."""
    carried = passthrough_of(fields).get(NAME)
    message = fields.get("message")
    if isinstance(carried, dict) and "item" in carried and isinstance(message, dict):
        with suppress(*_NOT_OURS):  # another program may have changed the line
            return [_with_texts(carried["item"], carried.get("texts") or {}, message_blocks(parse_message(message)))]
    found = getattr(session.entry(id), "message", None)
    return [] if found is None else _rendered_items(found)


def _rendered_items(message: Message) -> list[Item]:
    """Items for a message that another program wrote."""
    if isinstance(message, ToolResult):
        return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": message.text}]
    role = "assistant" if message.role == "assistant" else "user"
    items: list[Item] = []
    for block in message_blocks(message):
        match block:
            case ToolCall():
                arguments = json.dumps(block.arguments, ensure_ascii=False)
                items.append({"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments})
            case Text(text=text) if text:
                kind = "output_text" if role == "assistant" else "input_text"
                items.append({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})
            case Image() if isinstance(message, User):
                url = f"data:{block.mime_type};base64,{block.data}"
                items.append(
                    {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": url}]}
                )
            case Thinking() | _:
                pass  # the API accepts no reasoning that it did not write itself
    return items


# Messages for items

_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,([A-Za-z0-9+/=]+)\Z")
_CALLS_WITH_OUTPUT = frozenset(
    {"function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"}
)
"""Types of calls whose result is a separate item. Hosted tools have their results in the call."""
_CALL_FIELDS = frozenset({"type", "id", "call_id", "status", "name", "namespace", "arguments", "input"})
_OPAQUE_FIELDS = frozenset({"encrypted_content", "result", "status", "id"})


def message_of(item: Any) -> JsonObject:
    """The ordinary message that shows an item to all other programs."""
    if not isinstance(item, dict):
        return _custom("item", json.dumps(item, ensure_ascii=False))
    kind, role = str(item.get("type") or "message"), item.get("role")
    if kind == "message" and role == "user":
        return {"role": "user", "content": _blocks(item.get("content"))}
    if kind == "message" and role == "assistant":
        return {"role": "assistant", "content": _blocks(item.get("content")), "stopReason": "stop"}
    if kind == "message" and isinstance(role, str):
        return _custom(role, _blocks(item.get("content")))
    if kind == "reasoning":
        parts = [*_list(item.get("summary")), *_list(item.get("content"))]
        text = "\n\n".join([str(part.get("text") or "") for part in parts if isinstance(part, dict)])
        return {"role": "assistant", "content": [{"type": "thinking", "thinking": text}], "stopReason": "toolUse"}
    call = item.get("call_id")
    if kind in _CALLS_WITH_OUTPUT and isinstance(call, str) and call:
        block = {"type": "toolCall", "id": call, "name": _tool_name(kind, item), "arguments": _arguments(item)}
        return {"role": "assistant", "content": [block], "stopReason": "toolUse"}
    if kind.endswith("_output") and kind.removesuffix("_output") in _CALLS_WITH_OUTPUT and isinstance(call, str):
        return {
            "role": "toolResult",
            "toolCallId": call,
            "toolName": "" if kind in ("function_call_output", "custom_tool_call_output") else kind[: -len("_output")],
            "content": _blocks(item.get("output")),
            "isError": item.get("status") in ("failed", "incomplete"),
        }
    shown = {name: value for name, value in item.items() if name not in _OPAQUE_FIELDS}
    return _custom(kind, json.dumps(shown, ensure_ascii=False))


def _custom(kind: str, content: str | list[JsonObject]) -> JsonObject:
    content = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {"role": "custom", "customType": f"{NAME}.{kind}", "content": content, "display": True}


def _blocks(content: Any) -> list[JsonObject]:
    """Content blocks for the parts of an item."""
    parts = [{"text": content}] if isinstance(content, str) else _list(content)
    if isinstance(content, dict):
        parts = [content]
    blocks: list[JsonObject] = []
    for part in parts:
        if not isinstance(part, dict):
            blocks.append({"type": "text", "text": part if isinstance(part, str) else json.dumps(part)})
            continue
        text = part.get("text", part.get("refusal"))
        image = part.get("image_url")
        data = _DATA_URL.match(image) if isinstance(image, str) else None
        if isinstance(text, str):
            blocks.append({"type": "text", "text": text})
        elif data is not None:
            blocks.append({"type": "image", "mimeType": data[1], "data": data[2]})
        else:
            shown = {name: value for name, value in part.items() if name not in ("file_data", "data")}
            blocks.append({"type": "text", "text": json.dumps(shown, ensure_ascii=False)})
    return blocks


def _tool_name(kind: str, item: Mapping[str, Any]) -> str:
    name = item.get("name")
    return name if isinstance(name, str) and name else kind


def _arguments(item: Mapping[str, Any]) -> JsonObject:
    given = item.get("arguments", item.get("input"))
    if isinstance(given, str):
        try:
            found = json.loads(given)
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {"input": given}
    if isinstance(given, dict):
        return given
    return {name: value for name, value in item.items() if name not in _CALL_FIELDS}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
