"""The searchable texts of Claude Code's lines."""

from __future__ import annotations

from typing import ClassVar

from sessiontree.core.jsonio import render_json
from sessiontree.dialects.claude.records import object_in
from sessiontree.dialects.texts import (
    Text,
    TextLine,
    TextReader,
    add_content,
    add_text,
    parse_or_none,
    read_inserted,
    read_summary,
)


def _read_title(line: TextLine, texts: list[Text]) -> None:
    for raw in (line.customTitle, line.aiTitle, line.agentName):
        add_text(texts, "title", "", bytes(raw))


def _read_tag(line: TextLine, texts: list[Text]) -> None:
    for raw in (line.tag, line.prUrl, line.agentSetting):
        add_text(texts, "label", "", bytes(raw))


def _read_attachment(line: TextLine, texts: list[Text]) -> None:
    """The text the model received, if the line has it. A prompt typed during a turn is a prompt."""
    found = parse_or_none(bytes(line.attachment))
    prompt = found.get("prompt") if isinstance(found, dict) and found.get("type") == "queued_command" else None
    if prompt is not None:
        add_content(texts, render_json(prompt), "prompt", "user")
    elif line.rendered:
        add_content(texts, bytes(line.rendered), "context", "user")
    elif isinstance(found, dict):
        add_text(texts, "context", "user", render_json({key: value for key, value in found.items() if key != "type"}))


def _is_inserted(line: TextLine) -> bool:
    """Whether a line without `isMeta` is a message of an extension, as in responses with calls (`encode_user`)."""
    stored = parse_or_none(bytes(line.sessiontree)) if line.sessiontree else None
    if not isinstance(stored, dict):
        return False
    is_entry = object_in(stored, "entry").get("type") in ("custom_message", "branch_summary")
    return is_entry or object_in(stored, "message").get("role") == "custom"


class ClaudeTexts(TextReader):
    readers: ClassVar = {
        **TextReader.readers,
        "agent-name": _read_title,
        "agent-setting": _read_tag,
        "ai-title": _read_title,
        "attachment": _read_attachment,
        "custom-title": _read_title,
        "pr-link": _read_tag,
        "progress": read_inserted,
        "queue-operation": read_inserted,
        "summary": read_summary,
        "system": read_inserted,
        "tag": _read_tag,
    }

    def user_text_kind(self, line: TextLine) -> str:
        if line.isCompactSummary:
            return "summary"
        return "context" if line.isMeta or _is_inserted(line) else "prompt"


TEXTS = ClaudeTexts()
