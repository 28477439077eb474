"""Convert contents in the form of the Gemini API, which Qwen Code records, to messages, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

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
    User,
    message_text,
)
from sessiontree.dialects.canonical import LossNote

JsonDict: TypeAlias = dict[str, Any]

_UNSUPPORTED = "Qwen Code cannot store them"


class EncodedContent(Struct, frozen=True):
    """A content, and the positions of blocks that it does not hold."""

    content: JsonDict
    left_out: tuple[int, ...] = ()
    notes: tuple[LossNote, ...] = ()


# Decoding


def parse_content(content: object, time: int | None) -> list[Message]:
    """The messages of a content: one for each result, then one for everything else."""
    if not isinstance(content, dict):
        return []
    parts = [part for part in list_of(content.get("parts")) if isinstance(part, dict)]
    if content.get("role") == "model":
        blocks = tuple(_joined_texts(map(_block, parts)))
        return [Assistant(time, blocks)] if blocks else []
    results: list[Message] = [_result(part["functionResponse"], time) for part in parts if _is_result(part)]
    rest = tuple(_block(part) for part in parts if not _is_result(part))
    return [*results, *([User(time, rest)] if rest else [])]


def _is_result(part: JsonDict) -> bool:
    return isinstance(part.get("functionResponse"), dict)


def _joined_texts(blocks: Iterator[Block]) -> Iterator[Block]:
    """Blocks with adjacent texts joined, as Qwen Code sends those of an answer."""
    text: str | None = None
    for block in blocks:
        if isinstance(block, Text):
            text = (text or "") + block.text
            continue
        if text is not None:
            yield Text(text)
            text = None
        yield block
    if text is not None:
        yield Text(text)


def _block(part: JsonDict) -> Block:
    call, inline = part.get("functionCall"), part.get("inlineData")
    if isinstance(call, dict):
        arguments = call.get("args")
        given = arguments if isinstance(arguments, dict) else {} if arguments is None else {"input": arguments}
        return ToolCall(string(call, "id"), string(call, "name"), given, string(part, "thoughtSignature") or None)
    if isinstance(part.get("text"), str):
        if part.get("thought") is True:
            return Thinking(part["text"], string(part, "thoughtSignature") or None)
        return Text(part["text"])
    if isinstance(inline, dict) and string(inline, "mimeType").startswith("image/"):
        return Image(string(inline, "data"), string(inline, "mimeType"))
    return OtherBlock(next(iter(part), ""), {"type": next(iter(part), ""), **part})


def _result(response: JsonDict, time: int | None) -> ToolResult:
    found = response.get("response")
    blocks: list[Block] = []
    is_error = isinstance(found, dict) and "error" in found and "output" not in found
    value = found.get("error" if is_error else "output", found) if isinstance(found, dict) else found
    if value is not None:
        blocks.append(Text(value if isinstance(value, str) else render_json(value).decode("utf-8", "replace")))
    blocks += [_block(part) for part in list_of(response.get("parts")) if isinstance(part, dict)]
    return ToolResult(
        time,
        tool_call_id=string(response, "id"),
        tool_name=string(response, "name"),
        content=tuple(blocks),
        is_error=is_error,
    )


def summary_of(payload: dict[str, Any]) -> str:
    """The contents that replace the history, as one text."""
    found = [
        message for content in list_of(payload.get("compressedHistory")) for message in parse_content(content, None)
    ]
    texts = [message_text(message) for message in found if not isinstance(message, Assistant)]
    return "\n\n".join(text for text in texts if text)


# Encoding


def encode_user(message: Mapping[str, Any]) -> EncodedContent:
    return _encode("user", message, frozenset({"text", "image"}))


def encode_assistant(message: Mapping[str, Any]) -> EncodedContent:
    return _encode("model", message, frozenset({"text", "thinking", "toolCall"}))


def encode_result(message: Mapping[str, Any]) -> EncodedContent:
    """Encode a tool result as a function response; images become parts of it."""
    encoded = _encode("user", message, frozenset({"text", "image"}))
    parts = encoded.content["parts"]
    text = "\n".join(part["text"] for part in parts if "text" in part)
    media = [part for part in parts if "text" not in part]
    response: JsonDict = {
        "id": sent_id(string(message, "toolCallId")),
        "name": string(message, "toolName"),
        "response": {"error" if message.get("isError") is True else "output": text},
    }
    if media:
        response["parts"] = media
    content = {"role": "user", "parts": [{"functionResponse": response}]}
    return EncodedContent(content, encoded.left_out, encoded.notes)


def sent_id(call: str) -> str:
    """Return the id of a call as a record has it: Qwen Code sends no result of a call without an id."""
    return call or "_"


def encode_text(role: str, text: str) -> JsonDict:
    return {"role": role, "parts": [{"text": text}]}


def _encode(role: str, message: Mapping[str, Any], allowed: frozenset[str]) -> EncodedContent:
    parts: list[JsonDict] = []
    left_out: list[int] = []
    notes: list[LossNote] = []
    for at, block in enumerate(blocks_of(message)):
        kind = block.get("type") if isinstance(block, dict) else None
        if role == "model" and kind == "text" and block.get("text") == "":
            left_out.append(at)  # Qwen Code sends no answer with an empty text, and none next to it
            continue
        part = _encode_block(block, kind) if isinstance(kind, str) and kind in allowed else None
        if part is None:
            left_out.append(at)
            notes.append(LossNote("aside", f"blocks of type {kind}", _UNSUPPORTED))
        else:
            parts.append(part)
    return EncodedContent({"role": role, "parts": parts}, tuple(left_out), tuple(notes))


def _encode_block(block: JsonDict, kind: object) -> JsonDict | None:
    match kind:
        case "text":
            return {"text": block["text"]} if isinstance(block.get("text"), str) else None
        case "thinking":
            text = block.get("thinking")
            return {"text": text, "thought": True} if isinstance(text, str) else None
        case "toolCall":
            id, name, arguments = block.get("id"), block.get("name"), block.get("arguments")
            if not isinstance(id, str) or not isinstance(name, str):
                return None
            args = arguments if isinstance(arguments, dict) else {} if arguments is None else {"input": arguments}
            return {"functionCall": {"id": sent_id(id), "name": name, "args": args}}
        case _:
            data = block.get("data")
            if not isinstance(data, str):
                return None
            return {"inlineData": {"mimeType": string(block, "mimeType") or "image/png", "data": data}}


def blocks_of(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def calls_of(content: object) -> dict[str, str]:
    """The calls of a content: id -> name of the tool."""
    parts = list_of(content.get("parts")) if isinstance(content, dict) else []
    calls = [
        part["functionCall"] for part in parts if isinstance(part, dict) and isinstance(part.get("functionCall"), dict)
    ]
    return {string(call, "id"): string(call, "name") for call in calls}


def results_of(content: object) -> set[str]:
    """The ids of the calls that a content answers."""
    parts = list_of(content.get("parts")) if isinstance(content, dict) else []
    return {string(part["functionResponse"], "id") for part in parts if isinstance(part, dict) and _is_result(part)}


def list_of(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def string(fields: Mapping[str, Any], name: str) -> str:
    found = fields.get(name)
    return found if isinstance(found, str) else ""
