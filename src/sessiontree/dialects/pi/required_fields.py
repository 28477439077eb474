"""Fields that Pi and oh-my-pi require in a message: without them they fail to open or send it.

Both need the content of responses and results as blocks. oh-my-pi adds up the cost of every response with token counts.
Pi sends redacted thinking only in its own form.
"""

from __future__ import annotations

from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.pi.encoder import EncodedLine

_NO_COST = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}


def with_required_fields(entry: CanonicalEntry, message: dict[str, Any], *, redacted_is_thinking: bool) -> EncodedLine:
    if message.get("role") not in ("assistant", "toolResult"):
        return EncodedLine(entry.kind, entry.fields)
    required: dict[str, Any] = {}
    content, usage = message.get("content"), message.get("usage")
    if not isinstance(content, list):
        required["content"] = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
    elif redacted_is_thinking and any(map(_is_redacted, content)):
        required["content"] = [_as_thinking(block) if _is_redacted(block) else block for block in content]
    if isinstance(usage, dict) and not isinstance(usage.get("cost"), dict):
        required["usage"] = {**usage, "cost": _NO_COST}
    if not required:
        return EncodedLine(entry.kind, entry.fields)
    return EncodedLine(entry.kind, {**entry.fields, "message": {**message, **required}})


def _is_redacted(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "redactedThinking"


def _as_thinking(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "thinking", "thinking": "", "thinkingSignature": block.get("data", ""), "redacted": True}
