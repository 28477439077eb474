"""Directives in prompts: a prompt determines what the scripted model answers, without any state in the server.

    Read both. [[CALL read {"path": "a.txt"}]] [[CALL read {"path": "b.txt"}]] [[SAY Both were read.]]

The model first calls the tools. As soon as the request contains results after the prompt, it answers with the text.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Any, TypeAlias

from sessiontree.models.scripted import ScriptCall, ScriptTurn

JsonObject: TypeAlias = dict[str, Any]

LOOKING = "Let me look."
_DIRECTIVE = re.compile(r"\[\[(CALL|THINK|SAY) (.*?)\]\]", re.DOTALL)
_RESULTS = ("tool_result", "function_call_output", "functionResponse")


def make_call(name: str, **arguments: Any) -> str:
    return f"[[CALL {name} {json.dumps(arguments)}]]"


def read_directives(body: JsonObject) -> ScriptTurn | None:
    """The answer to a request whose last prompt has directives; None if it has none."""
    items = body.get("messages") or body.get("input") or body.get("contents") or []
    if not isinstance(items, list) or not body.get("tools"):  # without tools: a title, or a summary
        return None
    prompts = [at for at, item in enumerate(items) if _is_prompt(item)]
    if not prompts:
        return None
    found = _DIRECTIVE.findall("\n".join(_texts(items[prompts[-1]])))
    answered = any(_has_result(item) for item in items[prompts[-1] :])
    calls = [] if answered else [text.split(" ", 1) for kind, text in found if kind == "CALL"]
    made = tuple(ScriptCall(name, json.loads(arguments), f"call_{uuid.uuid4().hex[:24]}") for name, arguments in calls)
    said = next((text for kind, text in found if kind == "SAY"), None)
    thought = next((text for kind, text in found if kind == "THINK"), None)
    return ScriptTurn(thinking=None if answered else thought, text=LOOKING if made else said, tool_calls=made)


def _is_prompt(item: JsonObject) -> bool:
    return item.get("role") == "user" and any(_DIRECTIVE.search(text) for text in _texts(item))


def _has_result(item: JsonObject) -> bool:
    if item.get("role") == "tool" or item.get("type") in _RESULTS:
        return True
    parts = item.get("content") or item.get("parts")
    return isinstance(parts, list) and any(
        isinstance(part, dict) and (part.get("type") in _RESULTS or not part.keys().isdisjoint(_RESULTS))
        for part in parts
    )


def _texts(item: JsonObject) -> list[str]:
    content = item.get("content") or item.get("parts") or []
    parts = [{"text": content}] if isinstance(content, str) else content
    return [_unquoted(part["text"]) for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _unquoted(text: str) -> str:
    """OpenCode quotes a prompt of its command line that has white space."""
    try:
        value = json.loads(text, strict=False)  # line breaks stay as they are
    except ValueError:
        return text
    return value if isinstance(value, str) else text
