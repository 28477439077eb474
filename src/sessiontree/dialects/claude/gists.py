"""What ordinary lines say in texts and calls, without the thinking: enough for the gist of their messages.

It is kept while the lines are read, if it is known by then that it will be asked for; else it is read of many lines at
once. Only lines count of which it is noted what they say (`speech`): for these it comes to the same as `gist_of` the
messages of their entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from sessiontree.core.messages import Text, ToolCall
from sessiontree.dialects.claude.index import (
    WireBlock,
    WireLine,
    WireMessage,
    columns_of,
    decode_columns,
    speech_on,
)
from sessiontree.dialects.claude.line_summary import LineSummary
from sessiontree.dialects.contract import Columns, IndexedLines, decode_wires
from sessiontree.session.blob_refs import PREFIX

Answered: TypeAlias = tuple[Text | ToolCall, ...]
Said: TypeAlias = str | Answered
"""What a line says: a prompt of nothing but a text, or the texts and calls of an answer."""

_REFERENCE = PREFIX.encode()
_PLAIN = frozenset({str, int, float, bool, type(None)})
_IMAGES = frozenset({"image_url", "data", "result"})
"""Strings under these names may stand for the bytes of an image."""


class _Block(WireBlock, gc=False):
    input: dict[str, Any] | None = None


class _Message(WireMessage, gc=False):
    content: str | list[_Block] | None = None  # type: ignore[assignment]  # a list that nobody changes


class _Line(WireLine, gc=False):
    message: _Message | None = None
    sessiontreeBlobs: Any = None  # noqa: N815 - the file's spelling


_decode_lines = msgspec.json.Decoder(_Line).decode_lines


def decode_said(data: memoryview) -> Columns | None:
    """The columns of a block of ordinary lines, and what its prompts and answers say."""
    lines = decode_wires(_decode_lines, data)
    if lines is None:
        return decode_columns(data)
    notes = list(map(speech_on, lines))
    return columns_of(lines, notes, list(map(_said, lines, notes)))


def read_answered(lines: IndexedLines, ids: Sequence[str], nodes: Sequence[int]) -> list[Answered] | None:
    """What some answers say; None when one of their lines needs a closer look, or is not the one with that id."""
    data = b"\n".join(lines.iter_raw(nodes))
    if _REFERENCE in data:
        return None
    found = decode_wires(_decode_lines, memoryview(data))
    if found is None or [line.uuid for line in found] != [ids[node] for node in nodes]:
        return None
    return [_answered(_blocks(line)) for line in found]


def _said(line: _Line, note: LineSummary | None) -> Said | None:
    """What a line says; None where that is not kept: for results, and where a string may stand for a blob's content."""
    if note is None or note.answers or line.message is None or line.sessiontreeBlobs is not None:
        return None
    if not note.is_assistant:
        content = line.message.content
        return content if isinstance(content, str) else None
    blocks = _blocks(line)
    if len(blocks) == 1 and (block := blocks[0]).type == "text" and block.text is not None:
        return (Text(block.text),)
    for block in blocks:
        if block.input and not _is_plain(block.input):
            return None
    return _answered(blocks)


def _is_plain(arguments: dict[str, Any]) -> bool:
    return _PLAIN.issuperset(map(type, arguments.values())) and _IMAGES.isdisjoint(arguments)


def _blocks(line: _Line) -> Sequence[_Block]:
    content = line.message.content if line.message is not None else None
    return content if isinstance(content, list) else ()


def _answered(blocks: Sequence[_Block]) -> Answered:
    said: list[Text | ToolCall] = []
    for block in blocks:
        if block.type == "tool_use":
            if block.id is not None and block.name is not None:
                said.append(ToolCall(block.id, block.name, block.input or {}))
        elif block.type == "text" and block.text is not None:
            said.append(Text(block.text))
    return tuple(said)
