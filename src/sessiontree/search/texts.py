"""Searchable texts of a line, kept as JSON until they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from sessiontree.core.jsonio import parse_json

if TYPE_CHECKING:
    pass
KINDS = ("title", "label", "summary", "prompt", "answer", "thinking", "input", "output", "context")
"""Kinds of text: the values of `in:` in a query, and `context` for text that programs inserted."""

DESCRIPTIVE_KINDS = frozenset({"title", "label", "summary", "prompt"})
_FILE_KEYS = frozenset({"file_path", "filepath", "path", "notebook_path", "file", "filename", "paths", "files"})
_rare_escape = re.compile(rb"\\[tu\\rbf]")
_QUOTE = 0x22
_decode_named = msgspec.json.Decoder(dict[str, str]).decode
_decode_raws = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Text(Struct, gc=False):
    """One text of a line with its kind, role and tool."""

    kind: str
    role: str
    raw: bytes
    """A JSON string with its quotes; for the arguments of a tool, any JSON value."""
    tool: str = ""
    call: str = ""
    """The id of the tool call; of a result, the id of its call."""
    is_error: bool = False

    @property
    def text(self) -> str:
        """The decoded text; the strings of a structured value are joined by line breaks."""
        raw = self.raw
        if raw[:1] == b'"':
            try:
                return _decode_text(raw)
            except DECODE_ERRORS:
                found = parse_or_none(raw)
                return found if isinstance(found, str) else ""
        return _all_strings(raw)

    def files(self) -> list[str]:
        """File paths in the arguments of a tool."""
        if self.raw[:1] != b"{":
            return []
        named = _named_strings(parse_or_none(self.raw))
        return [value for key, value in named if key.lower().replace("-", "_") in _FILE_KEYS]


class Line(Struct, gc=False):
    """The searchable texts of one line, with the id, time and model of its entry."""

    id: str
    time: str
    model: str
    texts: list[Text]

    @property
    def is_descriptive(self) -> bool:
        """Whether the line describes the session: a title, a label, a summary or a prompt."""
        return self.texts[0].kind in DESCRIPTIVE_KINDS


def joined_texts(raws: Sequence[bytes]) -> tuple[bytes, bool]:
    """Join texts as UTF-8 for the tokenizer. The flag is set if escapes are left that may be part of words.

    Most escapes separate words. `\\n` is in nearly every text and is replaced by spaces here. The tokenizer
    resolves the others, once for each distinct word that has one.
    """
    strings: list[bytes | Raw] = []
    others: list[str] = []
    for raw in raws:
        if raw[0] == _QUOTE:
            strings.append(raw)
        elif (named := _strings_of(raw)) is not None:
            strings += named
        else:
            others.append(_all_strings(raw))
    joined = b" ".join(strings)
    is_escaped = _rare_escape.search(joined) is not None
    if is_escaped:
        joined = joined.replace(b"\\\\", b"  ")  # every backslash that is left now begins an escape
    joined = joined.replace(b"\\n", b"  ")
    if others:
        joined += b" " + "\n".join(others).encode("utf-8", "replace").replace(b"\\", b" ")
    return joined, is_escaped


def _strings_of(raw: bytes) -> list[Raw] | None:
    """The values of an object that holds only strings, as JSON; None for any other value."""
    try:
        named = _decode_raws(raw)
    except DECODE_ERRORS:
        return None
    values = list(named.values())
    is_other = any(memoryview(value)[0] != _QUOTE for value in values) or "type" in named
    return None if is_other else values


def parse_or_none(raw: bytes) -> Any:
    try:
        return parse_json(raw) if raw else None
    except ValueError:
        return None


def _all_strings(raw: bytes) -> str:
    """All strings in a JSON value, joined by line breaks. Most values are objects of strings, decoded in one step."""
    try:
        named = _decode_named(raw)
    except DECODE_ERRORS:
        return "\n".join(_strings(parse_or_none(raw)))
    return "" if named.get("type") == "image" else "\n".join(named.values())


def _strings(value: Any) -> Iterator[str]:
    return (text for _, text in _named_strings(value))


def _named_strings(value: Any) -> Iterator[tuple[str, str]]:
    """Every string in a value with its nearest key, in order. Iterative, since values may be nested deeply."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        key, found = waiting.pop()
        if isinstance(found, str):
            yield key, found
        elif isinstance(found, dict):
            if found.get("type") == "image":
                continue
            waiting += reversed([(name, inner) for name, inner in found.items()])
        elif isinstance(found, list):
            waiting += [(key, inner) for inner in reversed(found)]
        elif found is not None and not isinstance(found, bool):
            yield key, str(found)
