"""The searchable texts of Gemini CLI's lines (see `records`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.core.messages import Assistant, Thinking, ToolCall, ToolResult, User, blocks_of, message_text
from sessiontree.core.messages import Text as TextBlock
from sessiontree.dialects.gemini.content import messages_of, string
from sessiontree.dialects.gemini.records import is_environment, plain_text
from sessiontree.dialects.texts import Line, Text, TextReader, add_text


class GeminiTexts(TextReader):
    def read_other(self, raw: bytes) -> Line | None:
        record = parse_object(raw)
        texts: list[Text] = []
        id = string(record, "id")
        if not id:
            add_text(texts, "title", "", render_json(string(record, "summary")))
        elif record.get("type") not in ("user", "gemini") or is_environment(record):
            id = ""
            if not is_environment(record):
                add_text(texts, "context", "system", render_json(plain_text(record.get("content"))))
        else:
            _read_message(record, texts)
        return Line(id, string(record, "timestamp"), string(record, "model"), texts)


def _read_message(record: Mapping[str, Any], texts: list[Text]) -> None:
    kind = "summary" if isinstance(record.get("compaction"), dict) else "prompt"
    for message in messages_of(record):
        match message:
            case User():
                add_text(texts, kind, "user", render_json(message_text(message)))
            case ToolResult(tool_name=name, tool_call_id=call, is_error=is_error):
                text = render_json(message_text(message))
                add_text(texts, "output", "tool", text, tool=name, call=call, is_error=is_error)
            case Assistant():
                for block in blocks_of(message.content):
                    match block:
                        case Thinking():
                            add_text(texts, "thinking", "assistant", render_json(block.thinking))
                        case TextBlock():
                            add_text(texts, "answer", "assistant", render_json(block.text))
                        case ToolCall():
                            shown = render_json(block.arguments or block.name)
                            add_text(texts, "input", "assistant", shown, tool=block.name, call=block.id)
                        case _:
                            pass
            case _:
                pass


TEXTS = GeminiTexts()
