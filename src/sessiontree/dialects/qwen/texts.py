"""The searchable texts of Qwen Code's lines."""

from __future__ import annotations

from typing import Any

from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import Assistant, Text, Thinking, ToolCall, ToolResult, message_blocks
from sessiontree.dialects.qwen.content import parse_content, string, summary_of
from sessiontree.dialects.texts import (
    DECODE_ERRORS,
    NATIVE_TEXTS,
    Line,
    TextLine,
    TextReader,
    add_content,
    add_text,
    decode_line,
    parse_or_none,
)
from sessiontree.dialects.texts import Text as FoundText

_INSERTED = frozenset({"notification", "background_task_completed", "cron", "agent_bootstrap"})
"""Subtypes of messages in the user's role that the client wrote."""


class QwenTexts(TextReader):
    def read(self, line: TextLine) -> Line:
        texts: list[FoundText] = []
        if line.type == "system":
            _read_system(line.subtype or "", bytes(line.systemPayload), texts)
        else:
            _read_message(line, texts)
        model = (line.model or "") if line.type == "assistant" else ""
        return Line(line.uuid or "", iso_time(line.timestamp), model, texts)


def _read_system(subtype: str, raw: bytes, texts: list[FoundText]) -> None:
    if subtype == "sessiontree":
        try:
            texts += NATIVE_TEXTS.read(decode_line(raw)).texts
        except DECODE_ERRORS:
            return
    if subtype not in ("chat_compression", "custom_title"):
        return
    found: Any = parse_or_none(raw)
    payload = found if isinstance(found, dict) else {}
    if subtype == "custom_title":
        add_text(texts, "title", "", render_json(string(payload, "customTitle")))
    else:
        add_text(texts, "summary", "assistant", render_json(summary_of(payload)))


def _read_message(line: TextLine, texts: list[FoundText]) -> None:
    message = line.message
    parts = parse_or_none(bytes(message.parts)) if message is not None else None
    role = "model" if line.type == "assistant" else "user"
    for found in parse_content({"role": role, "parts": parts}, None):
        for block in message_blocks(found):
            match block:
                case ToolCall():
                    arguments = render_json(block.arguments)
                    shown = arguments if len(arguments) > 2 else render_json(block.name)
                    add_text(texts, "input", "assistant", shown, tool=block.name, call=block.id)
                case Thinking():
                    add_text(texts, "thinking", "assistant", render_json(block.thinking))
                case Text() if isinstance(found, ToolResult):
                    raw, tool, call = render_json(block.text), found.tool_name, found.tool_call_id
                    add_text(texts, "output", "tool", raw, tool=tool, call=call, is_error=found.is_error)
                case Text() if isinstance(found, Assistant):
                    add_text(texts, "answer", "assistant", render_json(block.text))
                case Text() if line.subtype in _INSERTED:
                    add_text(texts, "context", "user", render_json(block.text))
                case Text():
                    add_content(texts, render_json(block.text), "prompt", "user")
                case _:
                    pass


TEXTS = QwenTexts()
