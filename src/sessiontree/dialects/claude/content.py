"""The parts of a message between the client's form and the canonical form, both ways. Decoded JSON in and out.

`told_` goes from the client's form to the native shape, `written_` back. Nothing here knows of lines or items.
"""

from __future__ import annotations

import re
from typing import Any

from sessiontree.dialects.claude.records import STOP_REASONS, Fields, object_in, string_in

TOLD_API, TOLD_PROVIDER = "anthropic-messages", "anthropic"
SHARED_BLOCKS = frozenset({"text", "thinking", "redactedThinking", "image", "toolCall"})
_WRITTEN_REASONS = {told: reason for reason, told in reversed(STOP_REASONS.items())}

# Blocks that a user, a result or an answer may hold beside those that have canonical form.
_OWN_BLOCKS = frozenset(
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

# What canonical form say of each block. One that has more than this is not told in full.
_SAID = {
    "text": frozenset({"type", "text"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
}
_SAID_OF_USAGE = frozenset({"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"})
_tool_word = re.compile(r"[a-zA-Z0-9_-]+\Z")


def told_block(block: Any) -> Any:
    """A block in canonical form; one of a kind that has none stays as it is."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    match block:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "thinking", "thinking": str(thinking)}:
            signature = string_in(block, "signature")
            signed = {"thinkingSignature": signature} if signature else {}
            return {"type": "thinking", "thinking": thinking, **signed}
        case {"type": "redacted_thinking", "data": str(data)}:
            return {"type": "redactedThinking", "data": data}
        case {"type": "tool_use", "id": str(id), "name": str(name)}:
            return {"type": "toolCall", "id": id, "name": name, "arguments": object_in(block, "input")}
        case {"type": "image", "source": {"type": "base64", "data": str(data), "media_type": str(mime_type)}}:
            return {"type": "image", "data": data, "mimeType": mime_type}
        case _:
            return block


def told_blocks(content: Any) -> list[Any]:
    """Content as a list of blocks in canonical form, whichever way it stands there."""
    if content is None or content == "":
        return []
    return [told_block(block) for block in content] if isinstance(content, list) else [told_block(content)]


def told_content(content: Any) -> Any:
    """Content in canonical form; a text stays a text."""
    return content if isinstance(content, str) else told_blocks(content)


def is_told_in_full(content: Any) -> bool:
    """Whether canonical form say everything that stands in some content."""
    return not isinstance(content, list) or all(map(_is_block_told_in_full, content))


def _is_block_told_in_full(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    said = _SAID.get(kind) if isinstance(kind, str) else None
    if said is None:
        return True
    return said.issuperset(block) and (block["type"] != "tool_result" or is_told_in_full(block.get("content")))


def told_usage(usage: Any) -> Fields | None:
    """Tokens in canonical form; None when the line has none."""
    if not isinstance(usage, dict):
        return None
    fresh, output = _number(usage.get("input_tokens")), _number(usage.get("output_tokens"))
    read, made = _number(usage.get("cache_read_input_tokens")), _number(usage.get("cache_creation_input_tokens"))
    total = fresh + output + read + made
    return {"input": fresh, "output": output, "cacheRead": read, "cacheWrite": made, "totalTokens": total}


def is_usage_told_in_full(usage: Any) -> bool:
    return not isinstance(usage, dict) or _SAID_OF_USAGE.issuperset(usage)


def written_usage(usage: Any) -> Fields:
    """Tokens as the client counts them; it has no place for none."""
    found = usage if isinstance(usage, dict) else {}
    return {
        "input_tokens": _number(found.get("input")),
        "output_tokens": _number(found.get("output")),
        "cache_read_input_tokens": _number(found.get("cacheRead")),
        "cache_creation_input_tokens": _number(found.get("cacheWrite")),
    }


def told_reason(reason: str | None) -> str | None:
    return STOP_REASONS.get(reason, reason) if reason else None


def written_reason(message: Fields, calls: bool) -> str | None:
    """Why an answer ended, in the client's words. Failures have none: what is there counts as said."""
    reason = string_in(message, "stopReason")
    if not reason:
        return None
    if reason in _WRITTEN_REASONS:
        return _WRITTEN_REASONS[reason]
    if is_of_anthropic(message) and reason not in ("error", "aborted"):
        return reason
    return "tool_use" if calls else "end_turn"


def is_of_anthropic(message: Fields) -> bool:
    """Whether an answer came from the provider whose signatures the client sends on."""
    return message.get("provider") == TOLD_PROVIDER or message.get("api") == TOLD_API


def written_spoken(block: Any) -> Fields | None:
    """A block of a user or of a result in the client's form; None when it has none."""
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
        case {"type": str(kind)} if kind in _OWN_BLOCKS:
            return block
        case _:
            return None


def written_answered(block: Any, message: Fields) -> Fields | None:
    """A block of an answer in the client's form, but for calls; None when it has none.

    Thinking counts only with a signature of the provider: the provider refuses any other, and the client does not look.
    """
    if not isinstance(block, dict):
        return None
    match block:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "thinking", "thinkingSignature": str(signature)} if signature and is_of_anthropic(message):
            if block.get("redacted") is True:
                return {"type": "redacted_thinking", "data": signature}
            return {"type": "thinking", "thinking": string_in(block, "thinking") or "", "signature": signature}
        case {"type": "redactedThinking", "data": str(data)} if is_of_anthropic(message):
            return {"type": "redacted_thinking", "data": data}
        case {"type": str(kind)} if kind in _OWN_BLOCKS or (kind not in SHARED_BLOCKS and is_of_anthropic(message)):
            return block
        case _:
            return None


def tool_word(text: str) -> str:
    """An id or name of a tool as the provider takes it: letters, digits, `_` and `-`, and at least one of them."""
    if _tool_word.match(text):
        return text
    return re.sub(r"[^a-zA-Z0-9_-]", "_", text) or "_"


def text_of(content: Any) -> str:
    """The text of some content in canonical form or in the client's form, which spell it alike."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(text for part in parts if isinstance(part, dict) and (text := string_in(part, "text")))


def _number(found: object) -> int | float:
    if type(found) is int:
        return found
    return found if isinstance(found, int | float) and not isinstance(found, bool) else 0
