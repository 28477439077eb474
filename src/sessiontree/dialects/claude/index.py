"""Blocks of lines -> columns: their envelopes, and what the ordinary ones say (`speech`), in one decoding.

This runs for every line of a file at open, so it avoids what can be avoided per line. It is silent about the speech of
every line that is not ordinary; those are parsed when they are asked about, and `speech_of` tells the same of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern

import msgspec
from msgspec import Struct

from sessiontree.dialects.claude.line_summary import PROMPT, SILENT, LineSummary, is_blank_text, is_reminder_text
from sessiontree.dialects.claude.records import CHAIN_TYPES, METADATA_TYPES, SYNTHETIC, shared_type
from sessiontree.dialects.contract import Columns, decode_wires
from sessiontree.dialects.passthrough import PASSTHROUGH

# The types that follow from the line's own type alone.
_PLAIN_TYPES = (METADATA_TYPES | {"user", "assistant", "progress"}) - {PASSTHROUGH}
_SHARED_TYPES = {kind: shared_type(kind, None, None) for kind in _PLAIN_TYPES}


class _Attachment(Struct, gc=False):
    type: str | None = None


class _Outside(Struct, gc=False, rename={"parent": "parentUuid"}):
    type: str = ""
    uuid: str | None = None
    parent: str | None = None
    subtype: str | None = None
    attachment: _Attachment | None = None
    entry: _Attachment | None = None

    @property
    def shared_type(self) -> str:
        inner = self.entry if self.type == PASSTHROUGH else self.attachment
        return shared_type(self.type, self.subtype, inner.type if inner else None)


class WireBlock(Struct, gc=False):
    """A block of content without what is large in it."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    tool_use_id: str | None = None
    is_error: bool | None = None
    text: str | None = None


class WireMessage(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    content: str | list[WireBlock] | None = None


class WireLine(_Outside, gc=False):
    message: WireMessage | None = None
    isApiErrorMessage: bool | None = None  # noqa: N815 - the file's spelling
    rendered: list[_Attachment] | None = None
    renderedRole: str | None = None  # noqa: N815 - the file's spelling


_decode_lines = msgspec.json.Decoder(WireLine).decode_lines
_decode_outsides = msgspec.json.Decoder(_Outside).decode_lines


def decode_columns(data: memoryview) -> Columns | None:
    """The columns of a block of ordinary lines; None when the outside of one of them needs a closer look."""
    lines = decode_wires(_decode_lines, data)
    if lines is not None:
        return _columns_of(lines, list(map(_speech_on, lines)))
    outsides = decode_wires(_decode_outsides, data)  # what is odd inside a line changes nothing in the tree
    return None if outsides is None else _columns_of(outsides, [])


def _columns_of(lines: Sequence[_Outside], notes: Sequence[LineSummary | None]) -> Columns | None:
    """The columns of lines that were decoded."""
    types = [_SHARED_TYPES.get(line.type) or intern(line.shared_type) for line in lines]
    ids = [(line.uuid or "") if line.type in CHAIN_TYPES else "" for line in lines]
    parents = [line.parent if id else None for line, id in zip(lines, ids, strict=True)]
    return None if "" in types or "" in parents else Columns(types, ids, parents, notes)


def _speech_on(line: WireLine) -> LineSummary | None:
    """What an ordinary line says; None when its entry has to be asked."""
    kind, message = line.type, line.message
    if message is None:
        is_history = kind != "system" and not (kind == "attachment" and _is_of_the_system(line))
        return None if is_history or line.shared_type != kind else SILENT
    content = message.content
    if kind == "user":
        if isinstance(content, list):
            return _user_speech(content)
        return None if content is None or is_reminder_text(content) else PROMPT
    if kind != "assistant" or not isinstance(content, list) or line.isApiErrorMessage or message.model == SYNTHETIC:
        return None
    return _answer(message, content)


def _is_of_the_system(attachment: WireLine) -> bool:
    return attachment.rendered is not None and attachment.renderedRole == "system"


def _answer(message: WireMessage, content: Sequence[WireBlock]) -> LineSummary | None:
    if (
        len(content) == 1
        and (block := content[0]).type == "tool_use"
        and block.id is not None
        and block.name is not None
    ):
        return LineSummary(
            True, True, intern(message.id or ""), (block.id,), (intern(block.name),)
        )  # what most lines are
    says_something = False
    calls: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    for block in content:
        if block.type == "tool_use":
            if block.id is None or block.name is None:
                return None
            calls += (block.id,)
            tools += (intern(block.name),)
        elif block.type == "text" and block.text is not None and is_blank_text(block.text):
            continue
        says_something = True
    # The shards of a response share its id: one string is enough.
    return LineSummary(True, True, intern(message.id or ""), calls, tools) if says_something else None


def _user_speech(content: Sequence[WireBlock]) -> LineSummary | None:
    says_something = False
    answers: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    for block in content:
        if block.type == "tool_result":
            if block.tool_use_id is None:
                return None
            answers += (block.tool_use_id,)
            if block.is_error:
                failures += (block.tool_use_id,)
        elif block.type != "text" or block.text is None or not is_reminder_text(block.text):
            says_something = True
    if not answers:
        return PROMPT if says_something else None
    return LineSummary(True, answers=answers, failures=failures) if len(answers) == len(content) else None
