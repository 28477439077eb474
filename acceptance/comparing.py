"""Two histories of one conversation, and how they differ.

A history is put into lines, one for each thing said: a text, an image, a tool call, a result. Everything goes through
the form of the Anthropic API first, because that is what Claude Code gives us and what every message can be put into.
White space is folded, and results stand in the order of their calls.

Summaries, commands and files are told by each program in words of its own. Of those, only the parts that were recorded
are compared: they must be there, in their place. What both sides say literally is never taken for such a text.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from sessiontree.core.messages import (
    BashExecution,
    BranchSummaryText,
    CompactionSummary,
    Message,
    OtherMessage,
)
from sessiontree.providers import render
from sessiontree.providers.templates import NO_OUTPUT, NO_RESULT, NO_USER_BEFORE, NO_USER_BETWEEN

JsonObject: TypeAlias = dict[str, Any]
Parts: TypeAlias = tuple[str, ...]

NOTHING_RECORDED = "(nothing was recorded)"
# What each program says where no result of a call was recorded: ours, and the two of Claude Code.
SAID_FOR_NO_RESULT = (NO_RESULT, "[Tool call interrupted:", "[Tool result missing")
SAID_BY_US = (NO_USER_BEFORE, NO_USER_BETWEEN)

LONGEST_LINE = 160
LONGEST_DIFFERENCE = 24


def differences(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """A short difference between two histories; empty when they are the same."""
    if list(ours) == list(theirs):
        return []
    told = [_cut(line) for line in difflib.unified_diff(ours, theirs, lineterm="", n=1)][2:]
    shown = ["- what we say", "+ what the program rebuilt", *told]
    left_out = len(shown) - LONGEST_DIFFERENCE
    return [*shown[:LONGEST_DIFFERENCE], f"... {left_out} more lines"] if left_out > 0 else shown


def both_lines(
    ours: Sequence[JsonObject], theirs: Sequence[JsonObject], recorded: Sequence[Message], *, thinking: bool = False
) -> tuple[list[str], list[str]]:
    """Two conversations in a provider's form, as lines. `recorded` are the messages that either was made of."""
    said = set(_texts(ours)) & set(_texts(theirs))
    return (
        _provider_lines(ours, _Words(said, recorded), thinking=thinking),
        _provider_lines(theirs, _Words(said, recorded), thinking=thinking),
    )


def answered(lines: Sequence[str]) -> list[str]:
    """Lines without the calls for which no result was recorded."""
    ending = f": {NOTHING_RECORDED}"
    calls = {line.removeprefix("error of ").removesuffix(ending) for line in lines if line.endswith(ending)}
    return [
        line
        for line in lines
        if not line.endswith(ending) and not any(f" {call}: " in line and " calls " in line for call in calls)
    ]


def _provider_lines(sent: Sequence[JsonObject], words: _Words, *, thinking: bool) -> list[str]:
    lines: list[str] = []
    calls: list[str] = []
    for message in sent:
        blocks = list(_blocks(message["content"]))
        calls += [block["id"] for block in blocks if block["type"] == "tool_use"]
        place = {call: at for at, call in enumerate(calls)}
        blocks.sort(key=lambda block: place.get(block.get("tool_use_id", ""), len(place)))
        for block in blocks:
            lines += _lines_of_block(message["role"], block, words, thinking=thinking)
    return lines + words.missing()


class _Words:
    """The texts that both sides say, and those that are told, with what was recorded for them."""

    def __init__(self, said: set[str], recorded: Sequence[Message]) -> None:
        self._said = said
        self._told = {
            text: tuple(part for part in parts if part in text)
            for message in recorded
            if (parts := _recorded_parts(message))
            for text in _texts(render([message], "anthropic").messages)
        }
        self._pending = list(self._told.values())
        self._rest: list[str] = []

    def as_recorded(self, text: str) -> str | None:
        """A text as it was said, or for a told one, whoever tells it, what was recorded.

        Some programs tell one thing in several texts. Then the first stands for it, and the others give None.
        """
        told = self._told.get(text)
        if told in self._pending:
            self._pending.remove(told)
        if text in self._said:
            return text
        if told:
            return _shown(told)
        found, self._rest = _found_in(text, self._rest)
        if found:
            return None
        for parts in self._pending:
            found, rest = _found_in(text, parts)
            if found:
                self._pending.remove(parts)
                self._rest += rest
                return _shown(parts)
        return text

    def missing(self) -> list[str]:
        """What was recorded for things that were told only in part."""
        return [f"(told) without {part}" for part in self._rest]


def _found_in(text: str, parts: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether a text holds the first of some parts, and the parts that do not follow it there."""
    at, rest = 0, list(parts)
    while rest and (place := text.find(rest[0], at)) >= 0:
        at = place + len(rest.pop(0))
    return len(rest) < len(parts), rest


def _shown(parts: Parts) -> str:
    return f"(told) {' | '.join(parts)}"


def _texts(sent: Sequence[JsonObject]) -> Iterator[str]:
    for message in sent:
        yield from (_folded(block["text"]) for block in _blocks(message["content"]) if block["type"] == "text")


def _recorded_parts(message: Message) -> Parts:
    """What was recorded of a message that each program tells in its own words."""
    match message:
        case CompactionSummary() | BranchSummaryText():
            return _folded_parts(message.summary)
        case BashExecution(exclude_from_context=None | False):
            return _folded_parts(message.command, message.output)
        case OtherMessage(kind="pythonExecution", fields=fields) if not fields.get("excludeFromContext"):
            return _folded_parts(fields.get("code"), fields.get("output"))
        case OtherMessage(kind="fileMention", fields=fields):
            files = [file for file in fields.get("files") or () if isinstance(file, dict)]
            return _folded_parts(*(file.get(key) for file in files for key in ("path", "content")))
        case _:
            return ()


def _folded_parts(*parts: object) -> Parts:
    return tuple(folded for part in parts if isinstance(part, str) and (folded := _folded(part)))


def _blocks(content: Any) -> Iterator[JsonObject]:
    yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _lines_of_block(role: str, block: JsonObject, words: _Words, *, thinking: bool) -> Iterator[str]:
    match block["type"]:
        case "text":
            text = _folded(block["text"])
            told = words.as_recorded(text) if text and text not in SAID_BY_US else None
            if told is not None:
                yield f"{role}: {told}"
        case "tool_use":
            arguments = json.dumps(block["input"], ensure_ascii=False, sort_keys=True)
            yield f"{role} calls {block['name']} {block['id']}: {arguments}"
        case "tool_result":
            kind = "error" if block.get("is_error") else "result"
            inner = [_inside(part) for part in _blocks(block.get("content") or [])]
            text = " ".join(part for part in inner if part) or NO_OUTPUT
            if text.startswith(SAID_FOR_NO_RESULT):
                text = NOTHING_RECORDED
            yield f"{kind} of {block['tool_use_id']}: {text}"
        case "thinking" | "redacted_thinking":
            if thinking:
                yield f"{role} thinks: {_folded(block.get('thinking', ''))} {block.get('signature', '')}"
        case _:
            yield f"{role}: {_inside(block)}"


def _inside(block: JsonObject) -> str:
    match block["type"]:
        case "text":
            return _folded(block["text"])
        case "image":
            data = str(block["source"].get("data"))
            return f"[{block['source'].get('media_type')} {hashlib.sha256(data.encode()).hexdigest()[:12]}]"
        case kind:
            return f"[{kind}]"


def _folded(text: str) -> str:
    return " ".join(text.split())


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."
