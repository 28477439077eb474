"""The name the client shows for a session.

A title given by the user, else one made by the client, else the last prompt it noted, else a summary, else the first
prompt that means something. The client looks only at the ends of the file; we look everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sessiontree.dialects.claude.records import Fields, is_result, object_in, string_in
from sessiontree.dialects.contract import IndexedLines

_NOTED = (
    ("custom-title", "customTitle"),
    ("ai-title", "aiTitle"),
    ("last-prompt", "lastPrompt"),
    ("summary", "summary"),
)
_LONGEST = 200
_STEP = 32
_COMMAND = r"<command-name>(.*?)</command-name>"
# Command output, hooks, timers, interruptions, and what an editor says by itself.
_MEANINGLESS = (
    r"<local-command-stdout>|<session-start-hook>|<tick>|<goal>|\[Request interrupted by user[^\]]*\]"
    r"|\s*<ide_opened_file>[\s\S]*</ide_opened_file>\s*$|\s*<ide_selection>[\s\S]*</ide_selection>\s*$"
)


def find_title(lines: IndexedLines) -> str | None:
    for kind, key in _NOTED:
        title = _last_noted(lines, kind, key)
        if title:
            return _cut(title)
    return _first_prompt(lines)


def _last_noted(lines: IndexedLines, kind: str, key: str) -> str | None:
    if kind not in lines.types:
        return None
    for node in range(len(lines.types) - 1, -1, -1):
        if lines.types[node] == kind:
            (fields,) = lines.fields([node])
            found = " ".join((string_in(fields, key) or "").split())
            if found:
                return found
    return None


def _first_prompt(lines: IndexedLines) -> str | None:
    command: str | None = None
    in_sidechain: bool | None = None
    for fields in _iter_users(lines):
        if in_sidechain is None:  # the transcript of a sub-agent is one from its first line on
            in_sidechain = fields.get("isSidechain") is True
        if (
            (fields.get("isSidechain") is True) != in_sidechain
            or fields.get("isMeta")
            or fields.get("isCompactSummary")
        ):
            continue
        for text in _texts(fields):
            named = re.search(_COMMAND, text)
            if named:
                command = command or named[1]
            elif not re.match(_MEANINGLESS, text):
                return _cut(text)
    return command


def _iter_users(lines: IndexedLines) -> Iterator[Fields]:
    """The user's lines, from the start."""
    nodes = [node for node, kind in enumerate(lines.types) if kind == "message"]
    for start in range(0, len(nodes), _STEP):
        for fields in lines.fields(nodes[start : start + _STEP]):
            if fields.get("type") == "user":
                yield fields


def _texts(fields: Fields) -> Iterator[str]:
    content = object_in(fields, "message").get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if any(map(is_result, blocks)):
        return
    for block in blocks:
        text = string_in(block, "text") if isinstance(block, dict) and block.get("type") == "text" else None
        spaced = (text or "").replace("\n", " ").strip()
        if spaced:
            yield spaced


def _cut(title: str) -> str:
    return title if len(title) <= _LONGEST else title[:_LONGEST].rstrip() + "…"
