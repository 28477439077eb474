"""The name of a session: the newest title that was given, the one in the settings, or the first prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sessiontree.core.entries import SessionInfo
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.neovate.header import first_config, messages_in
from sessiontree.dialects.neovate.records import INTERRUPTION, parts, string

_LONGEST_TITLE = 50
_STEP = 32

_SHELL_ECHO = r"\s*<bash-(?:input|stdout|stderr)>"


def find_title(lines: IndexedLines) -> str | None:
    """The newest title that was given, else the one in the settings, else the beginning of the first prompt."""
    return find_given_title(lines) or next(_iter_prompts(lines), None)


def find_given_title(lines: IndexedLines) -> str | None:
    """The newest title that was given, else the one in the settings."""
    for node in range(len(lines.types) - 1, -1, -1):
        if lines.types[node] == "session_info":
            (entry,) = lines.entries([node])
            if isinstance(entry, SessionInfo) and entry.name:
                return entry.name
    config = first_config(lines)
    return config.config.summary or None if config is not None else None


def _iter_prompts(lines: IndexedLines) -> Iterator[str]:
    """What the user asked for, each as a title: not what a command printed, what was interrupted or is hidden."""
    nodes = messages_in(lines)
    for start in range(0, len(nodes), _STEP):
        for fields in lines.fields(nodes[start : start + _STEP]):
            text = " ".join(_shown_text(fields).split())
            if fields.get("role") == "user" and text and text != INTERRUPTION and not re.match(_SHELL_ECHO, text):
                yield text if len(text) <= _LONGEST_TITLE else f"{text[:_LONGEST_TITLE]}..."


def _shown_text(fields: dict[str, Any]) -> str:
    content = fields.get("content")
    if isinstance(content, str):
        return content
    shown = [part for part in parts(content) if isinstance(part, dict) and not part.get("hidden")]
    return " ".join(string(part, "text") for part in shown if part.get("type") == "text")
