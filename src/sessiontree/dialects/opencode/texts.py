"""The searchable texts of OpenCode's lines (see `rows`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.dialects.opencode.content import created_at, info_of, is_summary, mapping, parts_of, string
from sessiontree.dialects.texts import Line, Text, TextReader, add_text


class OpenCodeTexts(TextReader):
    def read_other(self, raw: bytes) -> Line | None:
        fields = parse_object(raw)
        info = info_of(fields)
        texts: list[Text] = []
        role = string(info, "role")
        if not role:
            add_text(texts, "title", "", render_json(string(info, "title")))
        kind = "summary" if is_summary(fields) else "prompt" if role == "user" else "answer"
        for part in parts_of(fields):
            _read_part(part, kind, role, texts)
        error = string(mapping(mapping(info, "error"), "data"), "message")
        add_text(texts, "answer", role, render_json(error), is_error=True)
        return Line(string(info, "id") if role else "", created_at(info), string(info, "modelID"), texts)


def _read_part(part: Mapping[str, Any], kind: str, role: str, texts: list[Text]) -> None:
    match part.get("type"):
        case "text":
            is_inserted = role == "user" and part.get("synthetic") is True
            add_text(texts, "context" if is_inserted else kind, role, render_json(string(part, "text")))
        case "reasoning":
            add_text(texts, "thinking", role, render_json(string(part, "text")))
        case "tool":
            name, call, state = string(part, "tool"), string(part, "callID"), mapping(part, "state")
            shown = state.get("input") or name
            add_text(texts, "input", role, render_json(shown), tool=name, call=call)
            add_text(texts, "output", "tool", render_json(string(state, "output")), tool=name, call=call)
            add_text(texts, "output", "tool", render_json(string(state, "error")), tool=name, call=call, is_error=True)
        case "subtask":
            add_text(texts, kind, role, render_json(string(part, "prompt")))
        case "file":
            add_text(texts, "context", role, render_json(string(part, "filename")))
        case _:
            return


TEXTS = OpenCodeTexts()
