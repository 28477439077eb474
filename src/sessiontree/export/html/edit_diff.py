"""File edits as diffs: what a call replaces, found through the tool table of the session's client."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from markupsafe import Markup, escape
from msgspec import Struct

from sessiontree.conversion.tool_mapping import tool_tables
from sessiontree.dialects.tool_intents import Edit, Intent, Replacement, Write
from sessiontree.dialects.tool_table import ToolTable
from sessiontree.export.sanitize import safe

_MOST_LINES = 300
"""Lines on a side that are compared; larger replacements are shown as removed and added."""
_CONTEXT = 3
_SIGNS = {"same": "  ", "del": "- ", "ins": "+ ", "gap": "⋯"}


class DiffLine(Struct, frozen=True, gc=False):
    kind: Literal["same", "del", "ins", "gap"]
    text: str


class FileChange(Struct, frozen=True, gc=False):
    """A call that changes a file."""

    path: str
    lines: tuple[DiffLine, ...]
    """The changes of an edit."""
    content: str | None = None
    """The new content of a file that is written as a whole."""

    @property
    def markup(self) -> Markup:
        """The lines of the diff, each in an element of its kind."""
        parts = [
            f'<span class="{line.kind}">{_SIGNS[line.kind]}{escape(safe(line.text))}</span>\n' for line in self.lines
        ]
        return Markup("".join(parts))  # noqa: S704 - every line is escaped


def find_change(agent: str, name: str, arguments: Mapping[str, Any]) -> FileChange | None:
    """The change that a call asks for; None if it changes no file or cannot be parsed."""
    intent = _find_intent(agent, name, arguments)
    match intent:
        case Write():
            return FileChange(intent.path, (), intent.content)
        case Edit():
            return FileChange(intent.path, tuple(_edit_lines(intent)))
        case _:
            return None


def _find_intent(agent: str, name: str, arguments: Mapping[str, Any]) -> Intent | None:
    intents = (tools.find_intent(name, arguments) for tools in _changing_tools(agent, name))
    return next((intent for intent in intents if intent is not None), None)


@functools.lru_cache(256)  # few tools, many calls
def _changing_tools(agent: str, name: str) -> tuple[ToolTable, ...]:
    """The tables in which a tool of this name changes files."""
    return tuple(
        tools
        for tools in tool_tables(agent)
        if (tool := tools.find_by_name(name)) is not None and tool.intent in (Edit, Write)
    )


def _edit_lines(edit: Edit) -> Iterator[DiffLine]:
    for number, replacement in enumerate(edit.replacements):
        if number:
            yield DiffLine("gap", "")
        yield from diff_lines(replacement)


def diff_lines(replacement: Replacement) -> Iterator[DiffLine]:
    old, new = replacement.old.splitlines(), replacement.new.splitlines()
    if len(old) > _MOST_LINES or len(new) > _MOST_LINES:
        yield from (DiffLine("del", line) for line in old)
        yield from (DiffLine("ins", line) for line in new)
        return
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for number, group in enumerate(matcher.get_grouped_opcodes(_CONTEXT)):
        if number:
            yield DiffLine("gap", "")
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                yield from (DiffLine("same", line) for line in old[old_start:old_end])
                continue
            yield from (DiffLine("del", line) for line in old[old_start:old_end])
            yield from (DiffLine("ins", line) for line in new[new_start:new_end])
