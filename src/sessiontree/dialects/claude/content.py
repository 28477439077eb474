"""Content blocks, usage and stop reasons: the client's form to the native form (`decode_*`), and back (`encode_*`).

This is the only mapping of content blocks. `decode_content` returns decoded JSON in the native form, `parse_content`
the same as values. Nothing here depends on lines or entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from sessiontree.core.messages import (
    Block,
    Content,
    Image,
    OtherBlock,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
)
from sessiontree.dialects.canonical import LossNote
from sessiontree.dialects.claude.records import Fields, number_in, object_in, string_in

API, PROVIDER = "anthropic-messages", "anthropic"

_STOP_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "toolUse", "max_tokens": "length"}
_CLIENT_STOP_REASONS = {native: reason for reason, native in reversed(_STOP_REASONS.items())}
_NATIVE_BLOCKS = frozenset({"text", "thinking", "redactedThinking", "image", "toolCall"})

# Blocks that have no native form and that the provider accepts unchanged.
_PROVIDER_BLOCKS = frozenset(
    {
        "code_execution_tool_result",
        "container_upload",
        "document",
        "mcp_tool_result",
        "mcp_tool_use",
        "search_result",
        "server_tool_use",
        "tool_reference",
        "web_fetch_tool_result",
        "web_search_tool_result",
    }
)

# The fields of each block that its native form preserves.
_DECODED_FIELDS = {
    "text": frozenset({"type", "text"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
}
_DECODED_USAGE = frozenset({"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"})
_TOOL_IDENTIFIER = r"[a-zA-Z0-9_-]+\Z"

_UNSIGNED = "thinking without a signature of this provider"
_NO_SUCH_BLOCK = "Claude Code has no such block there"
_CHANGED_ID = LossNote("changed", "ids of tool calls", "letters, digits, _ and - only, and each id only once")
_CHANGED_NAME = LossNote("changed", "names of tools", "the provider takes letters, digits, _ and - only")


# Decoding


def decode_block(block: Any) -> Any:
    """Return a block in the native form; the same object when there is none for it."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if not isinstance(block, dict):
        return block
    # Every message passes here: comparing the type first takes half the time of matching each form completely.
    match block.get("type"):
        case "text":
            text = block.get("text")
            return {"type": "text", "text": text} if isinstance(text, str) else block
        case "tool_use":
            id, name = block.get("id"), block.get("name")
            if isinstance(id, str) and isinstance(name, str):
                return {"type": "toolCall", "id": id, "name": name, "arguments": object_in(block, "input")}
        case "thinking":
            thinking, signature = block.get("thinking"), string_in(block, "signature")
            if isinstance(thinking, str):
                signed = {"thinkingSignature": signature} if signature else {}
                return {"type": "thinking", "thinking": thinking, **signed}
        case "redacted_thinking":
            data = block.get("data")
            return {"type": "redactedThinking", "data": data} if isinstance(data, str) else block
        case "image":
            match block.get("source"):
                case {"type": "base64", "data": str(data), "media_type": str(mime_type)}:
                    return {"type": "image", "data": data, "mimeType": mime_type}
    return block


def decode_content(content: Any) -> Any:
    """Return content in the native form: a string stays a string, everything else becomes a list of blocks."""
    return content if isinstance(content, str) else decode_blocks(content)


def decode_blocks(content: Any) -> list[Any]:
    """Return content as a list of native blocks, also where it is a string."""
    if content is None or content == "":
        return []
    return [decode_block(block) for block in content] if isinstance(content, list) else [decode_block(content)]


_BLOCK_VALUES: dict[str, Callable[[Fields], Block]] = {
    "text": lambda block: Text(block["text"]),
    "thinking": lambda block: Thinking(block["thinking"], block.get("thinkingSignature")),
    "redactedThinking": lambda block: RedactedThinking(block["data"]),
    "toolCall": lambda block: ToolCall(block["id"], block["name"], block["arguments"]),
    "image": lambda block: Image(block["data"], block["mimeType"]),
}


def parse_content(content: Any) -> Content:
    """Return content as values: a string stays a string, None becomes no blocks."""
    if isinstance(content, str):
        return content
    if content is None:
        return ()
    return tuple([_parse_block(block) for block in (content if isinstance(content, list) else [content])])


def _parse_block(block: Any) -> Block:
    native = decode_block(block)
    if native is not block:
        return _BLOCK_VALUES[native["type"]](native)
    if isinstance(block, dict):
        return OtherBlock(str(block.get("type") or ""), block)
    return OtherBlock(type(block).__name__, block)


def is_decoded_in_full(content: Any) -> bool:
    """Whether the native form preserves every field of some content."""
    return not isinstance(content, list) or all(map(_is_block_decoded_in_full, content))


def _is_block_decoded_in_full(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    decoded = _DECODED_FIELDS.get(kind) if isinstance(kind, str) else None
    if decoded is None:
        return True
    return decoded.issuperset(block) and (block["type"] != "tool_result" or is_decoded_in_full(block.get("content")))


def decode_usage(usage: Any) -> Fields | None:
    """Return token counts in the native form; None when the line has none."""
    if not isinstance(usage, dict):
        return None
    fresh, output = number_in(usage, "input_tokens") or 0, number_in(usage, "output_tokens") or 0
    read, made = number_in(usage, "cache_read_input_tokens") or 0, number_in(usage, "cache_creation_input_tokens") or 0
    total = fresh + output + read + made
    return {"input": fresh, "output": output, "cacheRead": read, "cacheWrite": made, "totalTokens": total}


def is_usage_decoded_in_full(usage: Any) -> bool:
    return not isinstance(usage, dict) or _DECODED_USAGE.issuperset(usage)


def decode_stop_reason(reason: str | None) -> str | None:
    return _STOP_REASONS.get(reason, reason) if reason else None


# Encoding


class EncodedContent(Struct):
    """Content in the client's form, and what it leaves out of the native content."""

    blocks: list[Fields] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    """The position of each block in the native content."""
    omitted: list[int] = field(default_factory=list)
    """The positions of native blocks that have no encoded block."""
    notes: list[LossNote] = field(default_factory=list)


def native_blocks(content: Any) -> list[Any]:
    """Return native content as a list, also where it is a string."""
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else []


def encode_content(content: Any) -> EncodedContent:
    """Encode the content of a user message or a tool result."""
    return _encode_blocks(content, _encode_user_block)


def encode_assistant_content(message: Fields, assign_call_id: Callable[[Fields], str]) -> EncodedContent:
    """Encode the content of an assistant message; `assign_call_id` returns the id that each tool call gets."""
    renamed: list[LossNote] = []

    def encode(block: Any) -> Fields | None:
        if not isinstance(block, dict) or block.get("type") != "toolCall":
            return _encode_assistant_block(block, message)
        call, notes = _encode_call(block, assign_call_id)
        renamed.extend(notes)
        return call

    encoded = _encode_blocks(message.get("content"), encode)
    encoded.notes += renamed
    return encoded


def _encode_blocks(content: Any, encode: Callable[[Any], Fields | None]) -> EncodedContent:
    encoded = EncodedContent()
    found = [(at, block, encode(block)) for at, block in enumerate(native_blocks(content))]
    # The provider rejects empty texts. A message with nothing else is left out by the client itself.
    has_more = any(form is not None and not _is_empty_text(form) for _, _, form in found)
    for at, block, form in found:
        if form is None:
            encoded.omitted.append(at)
            encoded.notes.append(_dropped_block(block))
        elif has_more and _is_empty_text(form):
            encoded.omitted.append(at)
        else:
            encoded.blocks.append(form)
            encoded.positions.append(at)
    return encoded


def _is_empty_text(block: Fields) -> bool:
    return block.get("type") == "text" and not block.get("text")


def _dropped_block(block: Any) -> LossNote:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in ("thinking", "redactedThinking"):
        return LossNote("dropped", "thinking blocks", _UNSIGNED)
    return LossNote("dropped", f"{kind} blocks" if isinstance(kind, str) else "blocks without a type", _NO_SUCH_BLOCK)


def _encode_user_block(block: Any) -> Fields | None:
    if not isinstance(block, dict):
        return None
    match block:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image", "data": str(data)}:
            mime_type = string_in(block, "mimeType") or "image/png"
            return {"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}}
        case {"type": "image", "source": dict()}:
            return block
        case {"type": str(kind)} if kind in _PROVIDER_BLOCKS:
            return block
        case _:
            return None


def _encode_assistant_block(block: Any, message: Fields) -> Fields | None:
    # The client sends thinking as recorded, and the provider rejects any that it did not sign itself. So thinking is
    # written only with a signature, and only if the message came from this provider.
    if not isinstance(block, dict):
        return None
    match block:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "thinking", "thinkingSignature": str(signature)} if signature and is_from_anthropic(message):
            if block.get("redacted") is True:
                return {"type": "redacted_thinking", "data": signature}
            return {"type": "thinking", "thinking": string_in(block, "thinking") or "", "signature": signature}
        case {"type": "redactedThinking", "data": str(data)} if is_from_anthropic(message):
            return {"type": "redacted_thinking", "data": data}
        case {"type": str(kind)} if kind in _PROVIDER_BLOCKS or (
            kind not in _NATIVE_BLOCKS and is_from_anthropic(message)
        ):
            return block
        case _:
            return None


def _encode_call(block: Fields, assign_call_id: Callable[[Fields], str]) -> tuple[Fields, Sequence[LossNote]]:
    id, name = assign_call_id(block), string_in(block, "name") or ""
    accepted = tool_identifier(name)
    call = {"type": "tool_use", "id": id, "name": accepted, "input": object_in(block, "arguments")}
    if id == block.get("id") and accepted == name:
        return call, ()
    notes = [_CHANGED_ID] if id != block.get("id") else []
    return call, notes if accepted == name else [*notes, _CHANGED_NAME]


def is_from_anthropic(message: Fields) -> bool:
    """Whether a message came from the provider whose signatures the client sends back."""
    return message.get("provider") == PROVIDER or message.get("api") == API


def tool_identifier(text: str) -> str:
    """Return a tool name or call id that the provider accepts: letters, digits, `_` and `-`, and at least one."""
    if re.match(_TOOL_IDENTIFIER, text):
        return text
    return re.sub(r"[^a-zA-Z0-9_-]", "_", text) or "_"


def encode_usage(usage: Any) -> Fields:
    """Return token counts in the client's form, where they are required."""
    found = usage if isinstance(usage, dict) else {}
    return {
        "input_tokens": number_in(found, "input") or 0,
        "output_tokens": number_in(found, "output") or 0,
        "cache_read_input_tokens": number_in(found, "cacheRead") or 0,
        "cache_creation_input_tokens": number_in(found, "cacheWrite") or 0,
    }


def encode_stop_reason(message: Fields, *, has_calls: bool) -> str | None:
    reason = string_in(message, "stopReason")
    if not reason:
        return None
    if reason in _CLIENT_STOP_REASONS:
        return _CLIENT_STOP_REASONS[reason]
    if is_from_anthropic(message) and reason not in ("error", "aborted"):
        return reason
    return "tool_use" if has_calls else "end_turn"  # the client has no reason for a failure


def encode_result_content(encoded: EncodedContent) -> str | list[Fields]:
    """Return a tool result's content; a single text as a string, as the client writes it."""
    blocks = encoded.blocks
    if not blocks:
        return ""
    if len(blocks) == 1 and blocks[0].get("type") == "text" and isinstance(blocks[0].get("text"), str):
        text: str = blocks[0]["text"]
        return text
    return blocks


def encode_command(message: Fields) -> tuple[str, str]:
    """Return the texts of the two lines for a shell command the user ran: its input, and its output."""
    command, output = string_in(message, "command") or "", string_in(message, "output") or ""
    return (
        f"<bash-input>{command}</bash-input>",
        f"<bash-stdout>{output}</bash-stdout><bash-stderr></bash-stderr>",
    )


def text_of(content: Any) -> str:
    """Return the text of some content, in the client's form or the native form: both have the same text blocks."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(text for part in parts if isinstance(part, dict) and (text := string_in(part, "text")))
