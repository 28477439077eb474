"""What Pi and oh-my-pi must find in a message, or they stumble when they open or send it.

Both want the content of answers and results in blocks; oh-my-pi adds up the cost of every answer that has counted
tokens; Pi sends hidden thinking only in its own form. What stood there rides along.
"""

from __future__ import annotations

from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.pi.encoder import Said, riding

_NO_COST = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}


def with_needs(entry: CanonicalEntry, message: dict[str, Any], *, redacted_is_thinking: bool) -> Said:
    """A message item whose message has what its reader needs."""
    if message.get("role") not in ("assistant", "toolResult"):
        return Said(entry.kind, entry.fields)
    needed: dict[str, Any] = {}
    was: dict[str, Any] = {}
    content, usage = message.get("content"), message.get("usage")
    if not isinstance(content, list):
        needed["content"] = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
        if content is not None:
            was["content"] = content
    if isinstance(usage, dict) and not isinstance(usage.get("cost"), dict):
        needed["usage"], was["usage"] = {**usage, "cost": _NO_COST}, usage
    blocks: list[Any] = content if isinstance(content, list) else []
    hidden = _redacted(blocks) if redacted_is_thinking else []
    if hidden:
        needed["content"] = [_as_thinking(block) if at in hidden else block for at, block in enumerate(blocks)]
    if not needed:
        return Said(entry.kind, entry.fields)
    fields = {**entry.fields, "message": {**message, **needed}}
    return Said(entry.kind, riding(entry, fields, message=was, replace=[(at, blocks[at]) for at in hidden]))


def _redacted(content: list[Any]) -> list[int]:
    return [
        at for at, block in enumerate(content) if isinstance(block, dict) and block.get("type") == "redactedThinking"
    ]


def _as_thinking(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "thinking", "thinking": "", "thinkingSignature": block.get("data", ""), "redacted": True}
