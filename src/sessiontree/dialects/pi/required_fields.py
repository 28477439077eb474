"""Fields without which Pi or oh-my-pi fails to open a session or to send it, added to every line that is written.

* Both need the content of responses and results as blocks, and Pi that of system prompts.
* Pi adds up the tokens of every response, oh-my-pi the cost of every usage.

Counts nobody has reported are zero, as in the clients' own lines of aborted responses. `core.usage` ignores such
zeros, so they never reach statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.passthrough import PASSTHROUGH, build_passthrough

_NO_TOKENS = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
_NO_COST = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}


def _complete_message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message with its required fields; the same object if it has them."""
    role = message.get("role")
    if role == "user" and "usage" not in message:
        return message
    required: dict[str, Any] = {}
    content, usage = message.get("content"), message.get("usage")
    if role in ("assistant", "toolResult") and type(content) is not list:
        required["content"] = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
    elif role == "system" and not isinstance(content, str | list):
        required["content"] = ""
    if isinstance(usage, dict) or role == "assistant":
        completed = _complete_usage(usage)
        if completed is not usage:
            required["usage"] = completed
    return {**message, **required} if required else message


def complete_fields(kind: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a line with the required ones; the same object if it has them.

    Passthrough data restores the entry when the line is decoded.
    """
    completed = find_missing(kind, fields)
    if not completed:
        return fields
    decoded = {name: value for name, value in {**fields, **completed}.items() if name != PASSTHROUGH}
    passthrough = build_passthrough(CanonicalEntry(kind, {**fields}), CanonicalEntry(kind, decoded))
    return {**decoded, PASSTHROUGH: passthrough}


def find_missing(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a line that have to change, so that it has the required ones."""
    if kind == "message":
        message = fields.get("message")
        # Every append comes here, and isinstance is several times as fast for a dict as for a Mapping.
        if isinstance(message, dict) or isinstance(message, Mapping):  # noqa: SIM101
            found = _complete_message(message)
            return {} if found is message else {"message": found}
        return {}
    completed: dict[str, Any] = {}
    usage, system = fields.get("usage"), fields.get("systemMessage")
    if isinstance(usage, dict) and (counted := _complete_usage(usage)) is not usage:
        completed["usage"] = counted
    if isinstance(system, dict) and kind == "compaction":
        prompt = _complete_message({"role": "system", **system})
        if prompt != system:
            completed["systemMessage"] = prompt
    return completed


def _complete_usage(usage: Any) -> dict[str, Any]:
    if not isinstance(usage, dict):
        return {**_NO_TOKENS, "cost": _NO_COST}
    if isinstance(usage.get("cost"), dict) and _NO_TOKENS.keys() <= usage.keys():
        return usage
    counted = {**_NO_TOKENS, **usage}
    if not isinstance(usage.get("cost"), dict):
        counted["cost"] = _NO_COST
    return counted
