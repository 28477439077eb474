"""Convert response items, which Codex sends to the model, to messages and to canonical content, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.core.messages import (
    Assistant,
    Block,
    Content,
    Image,
    Message,
    OtherBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from sessiontree.dialects.canonical import LossNote

Item: TypeAlias = dict[str, Any]

CALL_TYPES = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})
"""Items that a later item answers."""
OUTPUT_TYPES = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
ANSWER_TYPES = frozenset(
    {
        *("reasoning", "web_search_call", "image_generation_call"),
        *("compaction", "compaction_summary", "context_compaction", "agent_message"),
    }
)
"""Other items of the assistant, which Codex sends to the model as they are."""

PREAMBLES = (
    "<environment_context",
    "<user_instructions",
    "# AGENTS.md instructions",
    "<skills_instructions",
    "<permissions instructions",
)
"""Beginnings of texts in the user's role that Codex writes at the start of each session for the model."""
INSERTED = (*PREAMBLES, "<turn_aborted", "<user_shell_command", "<subagent_notification", "<skill>")
"""Beginnings of texts in the user's role that the user did not write."""

ABORTED = "aborted"
"""The output that Codex sends for a call without one."""
SUMMARY_PREFIX = (
    "Another language model started to solve this problem and produced a summary of its thinking process. You also "
    "have access to the state of the tools that were used by that language model. Use this to build on the work that "
    "has already been done and avoid duplicating work. Here is the summary produced by the other language model, use "
    "the information in this summary to assist with your own analysis:"
)
"""The beginning of a message with a summary, as Codex 0.166 writes it. It is part of the format."""

LOCAL_SHELL = "local_shell"
CUSTOM_TOOLS = frozenset({"apply_patch"})
"""Tools whose input is a text and not JSON."""

_SIGNATURE = LossNote("aside", "signatures of thinking", "Codex accepts only those of its own provider")
_THINKING = LossNote("aside", "thinking blocks", "Codex shows them, but sends only the reasoning of its own provider")
_UNSUPPORTED = "Codex cannot store them"
_data_url = re.compile(r"data:([^;,]*)[^,]*;base64,", re.IGNORECASE)


class EncodedItems(Struct, frozen=True):
    """The items of a message, and how they differ from it."""

    items: list[Item]
    left_out: tuple[int, ...] = ()
    """Positions of blocks that no item holds."""
    thinking: tuple[str, ...] = ()
    """Thinking that is only shown."""
    notes: tuple[LossNote, ...] = ()


# Decoding


def is_preamble(text: str) -> bool:
    return text.lstrip().startswith(PREAMBLES)


def is_inserted(text: str) -> bool:
    """Whether a text in the user's role was written by a program."""
    return text.lstrip().startswith(INSERTED)


def parse_item(item: Item, time: int | None, *, is_ours: bool = False) -> Message | None:
    """The message of an item; None if it is not part of the conversation, or not known to Codex.

    Items that we wrote are never preambles, whatever their texts start with.
    """
    kind = string(item, "type")
    if kind == "message":
        return _parse_message(item, time, is_ours)
    if kind in OUTPUT_TYPES:
        return ToolResult(time, tool_call_id=string(item, "call_id"), content=_output_content(item))
    if kind in CALL_TYPES or kind in ANSWER_TYPES:
        return Assistant(time, (_assistant_block(kind, item),))
    return None


def _parse_message(item: Item, time: int | None, is_ours: bool) -> Message | None:
    content = item.get("content")
    match item.get("role"):
        case "assistant":
            return Assistant(time, tuple(map(_text_block, list_of(content))))
        case "user":
            blocks = tuple(_text_block(part) for part in list_of(content) if is_ours or not _is_preamble_part(part))
            return User(time, blocks) if blocks or is_ours else None
        case _:
            return None


def _is_preamble_part(part: object) -> bool:
    return is_preamble(part if isinstance(part, str) else string(part, "text") if isinstance(part, dict) else "")


def _text_block(part: object) -> Block:
    if not isinstance(part, dict):
        return Text(part) if isinstance(part, str) else OtherBlock(type(part).__name__, part)
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return Text(string(part, "text"))
        case "input_image":
            return _image(part)
        case kind:
            return OtherBlock(str(kind or ""), part)


def _image(part: Item) -> Block:
    url = string(part, "image_url")
    found = _data_url.match(url)
    return Image(url[found.end() :], found[1] or "image/png") if found else OtherBlock("input_image", part)


def _assistant_block(kind: str, item: Item) -> Block:
    match kind:
        case "reasoning":
            return Thinking(reasoning_text(item), string(item, "encrypted_content") or None)
        case "function_call":
            return ToolCall(string(item, "call_id"), string(item, "name"), _arguments(item.get("arguments")))
        case "custom_tool_call":
            return ToolCall(string(item, "call_id"), string(item, "name"), {"input": item.get("input")})
        case "local_shell_call":
            action = item.get("action")
            id = string(item, "call_id") or string(item, "id")
            return ToolCall(id, LOCAL_SHELL, action if isinstance(action, dict) else {})
        case "tool_search_call":
            return ToolCall(string(item, "call_id"), "tool_search", _arguments(item.get("arguments")))
        case _:
            return OtherBlock(kind, item)


def reasoning_text(item: Item) -> str:
    parts = [*list_of(item.get("summary")), *list_of(item.get("content"))]
    return "\n\n".join(text for part in parts if isinstance(part, dict) and (text := string(part, "text")))


def _arguments(given: object) -> dict[str, Any]:
    value = given
    if isinstance(given, str):
        try:
            value = parse_json(given.encode("utf-8", "surrogatepass"))
        except ValueError:
            value = given
    return value if isinstance(value, dict) else {"input": value}


def _output_content(item: Item) -> Content:
    output = item.get("output", item.get("tools"))
    if isinstance(output, str):
        return (Text(output),)
    if isinstance(output, list):
        return tuple(map(_text_block, output))
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        return (Text(output["content"]),)
    return () if output is None else (Text(render_json(output).decode("utf-8", "replace")),)


def summary_of(message: str) -> str:
    """The summary in the message of a compaction, without the words before it."""
    return message.removeprefix(SUMMARY_PREFIX).removeprefix("\n")


def replacement_items(payload: Item) -> list[Item] | None:
    """The items that replace all before a compaction; None in a file of an old version."""
    found = payload.get("replacement_history")
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else None


def summary_with_prompts(payload: Item) -> str:
    """The summary of a compaction, with the earlier messages of the user that the compaction keeps."""
    summary = summary_of(string(payload, "message"))
    kept = [text for item in replacement_items(payload) or () if (text := _kept_text(item, payload))]
    if not kept:
        return summary
    listed = "\n\n".join(kept)
    return f"{summary}\n\n<earlier_user_messages>\n{listed}\n</earlier_user_messages>"


def _kept_text(item: Item, payload: Item) -> str:
    """The text of a kept message of the user; empty for any other item."""
    message = parse_item(item, None)
    if not isinstance(message, User):
        return ""
    text = message.text
    return "" if text == string(payload, "message") or text.startswith(SUMMARY_PREFIX) or is_inserted(text) else text


# Encoding


def encode_user(message: Mapping[str, Any]) -> EncodedItems:
    parts, left_out, notes = _encode_parts(message, "input_text")
    return EncodedItems([{"type": "message", "role": "user", "content": parts}], left_out, notes=notes)


def encode_text(text: str) -> Item:
    """A message of the user with one text."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def encode_assistant(message: Mapping[str, Any], *, is_own: bool) -> EncodedItems:
    """One item for each call, and for each run of texts between them.

    Reasoning is encoded only for a message that Codex itself wrote: its provider refuses that of others.
    """
    found = _AssistantItems()
    for at, block in enumerate(blocks_of(message)):
        item = _encode_block(block, is_own=is_own) if isinstance(block, dict) else None
        if item is not None:
            found.add(item)
            continue
        found.left_out.append(at)
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "thinking" and isinstance(block.get("thinking"), str):
            found.thinking.append(block["thinking"])
            found.notes.append(_SIGNATURE if block.get("thinkingSignature") else _THINKING)
        else:
            found.notes.append(LossNote("aside", f"blocks of type {kind}", _UNSUPPORTED))
    return EncodedItems(found.items, tuple(found.left_out), tuple(found.thinking), tuple(found.notes))


class _AssistantItems:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.left_out: list[int] = []
        self.thinking: list[str] = []
        self.notes: list[LossNote] = []

    def add(self, item: Item) -> None:
        if self.items and item["type"] == "message" == self.items[-1]["type"]:
            self.items[-1]["content"] += item["content"]
        else:
            self.items.append(item)


def _encode_block(block: dict[str, Any], *, is_own: bool) -> Item | None:
    """Encode one block of the assistant; None if Codex has no such item."""
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        content = [{"type": "output_text", "text": block["text"]}]
        return {"type": "message", "role": "assistant", "content": content}
    if kind == "toolCall" and isinstance(block.get("id"), str) and isinstance(block.get("name"), str):
        return _encode_call(block["id"], block["name"], block.get("arguments"))
    if not is_own:
        return None
    if kind == "thinking" and isinstance(block.get("thinking"), str):
        summary = [{"type": "summary_text", "text": block["thinking"]}] if block["thinking"] else []
        return {"type": "reasoning", "summary": summary, "encrypted_content": block.get("thinkingSignature")}
    return {**block} if isinstance(kind, str) and kind in ANSWER_TYPES else None


def _encode_call(id: str, name: str, arguments: object) -> Item:
    if name in CUSTOM_TOOLS and isinstance(arguments, dict) and [*arguments] == ["input"]:
        given = arguments["input"]
        if isinstance(given, str):
            return {"type": "custom_tool_call", "status": "completed", "call_id": id, "name": name, "input": given}
    text = render_json({} if arguments is None else arguments).decode("utf-8", "replace")
    return {"type": "function_call", "name": name, "arguments": text, "call_id": id}


def encode_output(message: Mapping[str, Any], *, is_custom: bool) -> EncodedItems:
    parts, left_out, notes = _encode_parts(message, "input_text")
    texts = [part["text"] for part in parts if part["type"] == "input_text"]
    output: Any = parts
    if len(texts) == len(parts) <= 1:
        output = "".join(texts)
    kind = "custom_tool_call_output" if is_custom else "function_call_output"
    return EncodedItems(
        [{"type": kind, "call_id": string(message, "toolCallId"), "output": output}], left_out, notes=notes
    )


def _encode_parts(
    message: Mapping[str, Any], text_type: str
) -> tuple[list[dict[str, Any]], tuple[int, ...], tuple[LossNote, ...]]:
    parts: list[dict[str, Any]] = []
    left_out: list[int] = []
    notes: list[LossNote] = []
    for at, block in enumerate(blocks_of(message)):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text" and isinstance(block.get("text"), str):
            parts.append({"type": text_type, "text": block["text"]})
        elif kind == "image" and isinstance(block.get("data"), str):
            data, mime_type = block["data"], string(block, "mimeType") or "image/png"
            url = data if data.startswith("data:") else f"data:{mime_type};base64,{data}"
            parts.append({"type": "input_image", "image_url": url})
        else:
            left_out.append(at)
            notes.append(LossNote("aside", f"blocks of type {kind}", _UNSUPPORTED))
    return parts, tuple(left_out), tuple(notes)


def blocks_of(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def texts_of(items: Iterable[Item]) -> str:
    """The texts of messages, joined."""
    parts = [part for item in items for part in list_of(item.get("content"))]
    return "\n".join(string(part, "text") for part in parts if isinstance(part, dict) and "text" in part)


def images_of(items: Sequence[Item]) -> list[str]:
    parts = [part for item in items for part in list_of(item.get("content"))]
    return [string(part, "image_url") for part in parts if isinstance(part, dict) and "image_url" in part]


def list_of(value: object) -> list[Any]:
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, str) and value else []


def string(fields: Mapping[str, Any], name: str) -> str:
    found = fields.get(name)
    return found if isinstance(found, str) else ""
