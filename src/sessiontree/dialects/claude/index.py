"""Decode blocks of lines into columns: envelopes and line summaries, in one pass.

This runs for every line of a file at open, so it does as little per line as possible. A summary is exact or absent:
lines of an unusual form have none, and `summarize_entry` computes the same from their entries on demand. With
summaries, the rules for paths and contexts need no second pass over the file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from sys import intern
from typing import ClassVar, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.core.entries import Entry, MessageEntry
from sessiontree.core.messages import Assistant, ToolResult, tool_calls
from sessiontree.dialects.claude.messages import is_blank_text, is_reminder_text
from sessiontree.dialects.claude.records import CHAIN_TYPES, METADATA_TYPES, SYNTHETIC, canonical_type
from sessiontree.dialects.contract import Columns
from sessiontree.dialects.defaults import decode_records
from sessiontree.dialects.passthrough import PASSTHROUGH

# The types whose canonical type follows from the line's own type alone.
_CANONICAL_TYPES = {
    kind: canonical_type(kind, None, None)
    for kind in (METADATA_TYPES | {"user", "assistant", "progress"}) - {PASSTHROUGH}
}


class _Summary(Struct, frozen=True, array_like=True, gc=False):
    """Per-line index summary: role, response id, ids of tool calls and results.

    Each kind of line has its own class, with fields for what differs between its lines: a huge transcript has half a
    million of them. A summary created at open also implies the number of messages that a model receives from the line:
    one for each result, or else one if it is a message, or none.
    """

    is_message: ClassVar[bool] = True
    is_assistant: ClassVar[bool] = False
    is_prompt: ClassVar[bool] = False
    """Whether it is a user message that is not a tool result."""
    is_meta: ClassVar[bool] = False
    """Whether it is a prompt that the client wrote by itself, without results. Known only at open."""


class _NoCalls(_Summary, frozen=True, array_like=True, gc=False):
    response: ClassVar[str] = ""
    calls: ClassVar[tuple[str, ...]] = ()
    tools: ClassVar[tuple[str, ...]] = ()


class OtherSummary(_NoCalls, frozen=True, array_like=True, gc=False, tag=0):
    """A line that holds no message."""

    is_message: ClassVar[bool] = False
    results: ClassVar[tuple[str, ...]] = ()


class PromptSummary(_NoCalls, frozen=True, array_like=True, gc=False, tag=1):
    """A user message that is not a tool result."""

    is_prompt: ClassVar[bool] = True
    results: ClassVar[tuple[str, ...]] = ()


class MetaPromptSummary(PromptSummary, frozen=True, array_like=True, gc=False, tag=2):
    """A prompt that the client wrote by itself."""

    is_meta: ClassVar[bool] = True


class ResultSummary(_NoCalls, frozen=True, array_like=True, gc=False, tag=3):
    """A user line with tool results."""

    results: tuple[str, ...]
    """The ids of the calls whose results it holds."""


class AnswerSummary(_Summary, frozen=True, array_like=True, gc=False, tag=4):
    """A line of a response."""

    is_assistant: ClassVar[bool] = True
    results: ClassVar[tuple[str, ...]] = ()

    response: str
    """The id of the response that the line is a shard of."""
    calls: tuple[str, ...] = ()
    """The ids of its tool calls."""
    tools: tuple[str, ...] = ()
    """The tool name of each call."""


LineSummary: TypeAlias = OtherSummary | PromptSummary | MetaPromptSummary | ResultSummary | AnswerSummary

Share: TypeAlias = Callable[[str, tuple[str]], tuple[str]]
"""Returns a tuple with a string: the one that was given first with it, so that only one of each stays in memory."""

_PROMPT = PromptSummary()
_META_PROMPT = MetaPromptSummary()
_NO_MESSAGE = OtherSummary()


def summarize_entry(entry: Entry) -> LineSummary:
    """Return the summary of an entry, whatever the form of its line. An entry does not have the line's `isMeta`."""
    if not isinstance(entry, MessageEntry):
        return _NO_MESSAGE
    first = entry.message
    if isinstance(first, Assistant):
        calls = tool_calls(first)
        names = tuple(call.name for call in calls)
        return AnswerSummary(first.response_id or "", tuple(call.id for call in calls), names)
    results = tuple(message.tool_call_id for message in entry.messages if isinstance(message, ToolResult))
    return ResultSummary(results) if results else _PROMPT


class _Typed(Struct, gc=False):
    type: str | None = None


class _EnvelopeLine(Struct, gc=False, rename={"parent": "parentUuid"}):
    type: str = ""
    uuid: str | None = None
    parent: str | None = None
    subtype: str | None = None
    attachment: _Typed | None = None
    entry: _Typed | None = None

    @property
    def canonical_type(self) -> str:
        inner = self.entry if self.type == PASSTHROUGH else self.attachment
        return canonical_type(self.type, self.subtype, inner.type if inner else None)


class _Block(Struct, gc=False):
    """A content block without its large fields."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    tool_use_id: str | None = None
    text: str | None = None


class _Message(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    content: str | list[_Block] | None = None


class _Line(_EnvelopeLine, gc=False):
    message: _Message | None = None
    isApiErrorMessage: bool | None = None  # noqa: N815 - the file's spelling
    isMeta: bool | None = None  # noqa: N815 - the file's spelling
    rendered: list[_Typed] | None = None
    renderedRole: str | None = None  # noqa: N815 - the file's spelling


_decode_lines = msgspec.json.Decoder(_Line).decode_lines
_decode_envelopes = msgspec.json.Decoder(_EnvelopeLine).decode_lines


def decode_columns(data: memoryview) -> Columns | None:
    """Return the columns of a block of lines; None when the envelope of one of them is unusual."""
    lines = decode_records(_decode_lines, data)
    if lines is not None:
        # The shards of a response share its id, and a call and its result share another.
        share = dict[str, tuple[str]]().setdefault
        return _columns_of(lines, [_summarize(line, share) for line in lines])
    # Something unusual inside a line does not change the tree: the envelopes alone may still decode.
    envelopes = decode_records(_decode_envelopes, data)
    return None if envelopes is None else _columns_of(envelopes, [])


def _columns_of(lines: Sequence[_EnvelopeLine], summaries: Sequence[LineSummary | None]) -> Columns | None:
    types = [_CANONICAL_TYPES.get(line.type) or intern(line.canonical_type) for line in lines]
    ids = [(line.uuid or "") if line.type in CHAIN_TYPES else "" for line in lines]
    parents = [line.parent if id else None for line, id in zip(lines, ids, strict=True)]
    return None if "" in types or "" in parents else Columns(types, ids, parents, summaries)


def _summarize(line: _Line, share: Share) -> LineSummary | None:
    kind, message = line.type, line.message
    if message is None:
        # System lines never hold a message, and attachments with rendered system text do not either.
        is_hidden = kind == "system" or (
            kind == "attachment" and line.rendered is not None and line.renderedRole == "system"
        )
        return _NO_MESSAGE if is_hidden and line.canonical_type == kind else None
    content = message.content
    if kind == "user":
        prompt = _META_PROMPT if line.isMeta else _PROMPT
        if isinstance(content, list):
            return _summarize_user(content, prompt, share)
        return None if content is None or is_reminder_text(content) else prompt
    if kind != "assistant" or not isinstance(content, list) or line.isApiErrorMessage or message.model == SYNTHETIC:
        return None
    return _summarize_assistant(message, content, share)


def _summarize_assistant(message: _Message, content: Sequence[_Block], share: Share) -> LineSummary | None:
    response = share(message.id, (message.id,))[0] if message.id else ""
    if len(content) == 1:  # nearly every line is a single block, most often a call
        block = content[0]
        if block.type == "tool_use" and block.id is not None and block.name is not None:
            return AnswerSummary(response, share(block.id, (block.id,)), _single(block.name))
    has_content = False
    calls: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    for block in content:
        if block.type == "tool_use":
            if block.id is None or block.name is None:
                return None
            calls += share(block.id, (block.id,))
            tools += (intern(block.name),)
        elif block.type == "text" and block.text is not None and is_blank_text(block.text):
            continue
        has_content = True
    # Whether a blank shard is sent depends on the other shards of its response.
    return AnswerSummary(response, calls, tools) if has_content else None


@functools.lru_cache(256)
def _single(name: str) -> tuple[str]:
    """A tuple of one tool name, shared by all lines: there are many calls and few tools."""
    return (intern(name),)


def _summarize_user(content: Sequence[_Block], prompt: PromptSummary, share: Share) -> LineSummary | None:
    """Return the summary of a user line with results, or else the one for prompts."""
    has_content = False
    results: tuple[str, ...] = ()
    for block in content:
        if block.type == "tool_result":
            if block.tool_use_id is None:
                return None
            results += share(block.tool_use_id, (block.tool_use_id,))
        elif block.type != "text" or block.text is None or not is_reminder_text(block.text):
            has_content = True
    if not results:
        return prompt if has_content else None
    return ResultSummary(results) if len(results) == len(content) else None
