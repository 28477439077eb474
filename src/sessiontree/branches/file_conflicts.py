"""What each side did to which file, and where the two are at odds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.branches.branch_delta import Side, edited, messages_in
from sessiontree.compaction.touched_files import FileLists, file_of, files_in
from sessiontree.conversion.tools import find_intent
from sessiontree.core.messages import Message, ToolCall, ToolResult, tool_calls
from sessiontree.dialects.canonical import CanonicalEntry


class FileConflict(Struct, frozen=True):
    """A file that both sides changed, each in its own way."""

    path: str
    ours: tuple[str, ...]
    """The calls that changed it on our side, by their ids."""
    theirs: tuple[str, ...]


def files_of(side: Side) -> FileLists:
    """The files that a side read and changed, also what its summaries tell of."""
    found = files_in(side.messages, side.session.dialect.name)
    for entry in side.items:
        found |= _carried(entry)
    return found


def _carried(entry: CanonicalEntry) -> FileLists:
    """The lists that a summary carries on; of one that a hook supplied nobody knows what they are."""
    if entry.kind not in ("branch_summary", "compaction") or entry.fields.get("fromHook"):
        return FileLists()
    return FileLists.of_details(entry.fields.get("details"))


def find_file_conflicts(ours: Side, theirs: Side) -> list[FileConflict]:
    """The files that both sides changed, unless both did the same to them."""
    one, other = _changes(ours), _changes(theirs)
    return [
        FileConflict(one[key].path, tuple(one[key].calls), tuple(other[key].calls))
        for key in sorted(one.keys() & other.keys())
        if one[key].deeds != other[key].deeds
    ]


class _Changes(Struct):
    path: str
    calls: list[str]
    deeds: list[Any]
    """What was done to the file, in order, in words that are the same for every agent."""


def _changes(side: Side) -> dict[str, _Changes]:
    """Changes by the file's whole path, in which two sessions of one folder agree."""
    agent, cwd = side.session.dialect.name, side.session.cwd
    changes: dict[str, _Changes] = {}
    messages = messages_in(edited(side.items))
    failed = {message.tool_call_id for message in messages if isinstance(message, ToolResult) and message.is_error}
    for call in _calls(messages):
        found = file_of(call, agent)
        if found is None or found[0] == "read" or call.id in failed:
            continue
        path = found[1]
        key = os.path.normpath(os.path.join(cwd, path))
        known = changes.setdefault(key, _Changes(path, [], []))
        known.calls.append(call.id)
        known.deeds.append(_deed(call, agent, path))
    return changes


def _deed(call: ToolCall, agent: str, path: str) -> Any:
    meaning = find_intent(call.name, call.arguments, agent)
    if meaning is None:
        return call.name, call.arguments
    said = msgspec.structs.asdict(meaning)
    return type(meaning).__name__, {name: value for name, value in said.items() if value != path}


def _calls(messages: Iterable[Message]) -> Sequence[ToolCall]:
    return [call for message in messages for call in tool_calls(message)]
