"""The searchable texts of Codex's lines: those of items. Events repeat them for the user interface."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
from msgspec import Raw, Struct

from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.codex.items import (
    CALL_TYPES,
    LOCAL_SHELL,
    OUTPUT_TYPES,
    is_inserted,
    list_of,
    reasoning_text,
    string,
    summary_of,
)
from sessiontree.dialects.texts import (
    DECODE_ERRORS,
    NATIVE_TEXTS,
    Line,
    Text,
    TextLine,
    TextReader,
    add_content,
    add_text,
    decode_line,
    parse_or_none,
)

_NOTHING = Raw(b"")


class _Typed(Struct, gc=False):
    type: str = ""
    role: str = ""
    name: str = ""
    call_id: str | None = None
    content: Raw = _NOTHING
    arguments: Raw = _NOTHING
    input: Raw = _NOTHING
    output: Raw = _NOTHING
    message: Raw = _NOTHING


_decode_payload = msgspec.json.Decoder(_Typed).decode


class CodexTexts(TextReader):
    def read(self, line: TextLine) -> Line:
        texts: list[Text] = []
        payload = bytes(line.payload)
        if line.type == "response_item":
            _read_item(payload, texts)
        elif line.type == "compacted":
            found = parse_or_none(payload)
            message = string(found, "message") if isinstance(found, dict) else ""
            add_text(texts, "summary", "assistant", render_json(summary_of(message)))
        elif line.type == "sessiontree":
            with contextlib.suppress(*DECODE_ERRORS):
                texts += NATIVE_TEXTS.read(decode_line(payload)).texts
        return Line("", iso_time(line.timestamp), "", texts)


def _read_item(payload: bytes, texts: list[Text]) -> None:
    try:
        item = _decode_payload(payload)
    except DECODE_ERRORS:
        return
    call = item.call_id or ""
    if item.type == "message":
        _read_message(item, texts)
    elif item.type in CALL_TYPES:
        name = LOCAL_SHELL if item.type == "local_shell_call" else item.name
        arguments = _unquoted(bytes(item.arguments)) or bytes(item.input)
        add_text(
            texts, "input", "assistant", arguments if len(arguments) > 2 else render_json(name), tool=name, call=call
        )
    elif item.type in OUTPUT_TYPES:
        output = bytes(item.output)
        if output[:1] == b'"':
            add_text(texts, "output", "tool", output, call=call)
        else:
            for part in _texts_in(parse_or_none(output)):
                add_text(texts, "output", "tool", render_json(part), call=call)
    elif item.type == "reasoning":
        found = parse_or_none(payload)
        if isinstance(found, dict):
            add_text(texts, "thinking", "assistant", render_json(reasoning_text(found)))


def _read_message(item: _Typed, texts: list[Text]) -> None:
    for text in _texts_in(parse_or_none(bytes(item.content))):
        raw = render_json(text)
        if item.role == "assistant":
            add_text(texts, "answer", "assistant", raw)
        elif item.role == "user" and not is_inserted(text):
            add_content(texts, raw, "prompt", "user")
        else:
            add_text(texts, "context", item.role, raw)


def _texts_in(content: Any) -> list[str]:
    found = [part if isinstance(part, str) else part.get("text") for part in list_of(content) if _is_part(part)]
    return [text for text in found if isinstance(text, str)]


def _is_part(part: object) -> bool:
    return isinstance(part, str | dict)


def _unquoted(raw: bytes) -> bytes:
    """The JSON inside a string of JSON; the raw value if it is something else."""
    text = parse_or_none(raw)
    inner = text.encode("utf-8", "replace") if isinstance(text, str) else b""
    return inner if isinstance(parse_or_none(inner), dict) else raw


TEXTS = CodexTexts()
