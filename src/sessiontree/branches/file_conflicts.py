"""Files that two branches changed, and conflicts between the changes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.branches.branch_delta import BranchDelta, apply_edits, messages_in
from sessiontree.compaction.touched_files import FileLists, file_of, files_in
from sessiontree.conversion.tool_mapping import find_intent
from sessiontree.core.messages import Message, ToolCall, ToolResult, tool_calls
from sessiontree.dialects.canonical import CanonicalEntry


class FileConflict(Struct, frozen=True):
    """A file that both branches changed differently."""

    path: str
    ours: tuple[str, ...]
    """Ids of the tool calls that changed it on our branch."""
    theirs: tuple[str, ...]


def files_of(side: BranchDelta) -> FileLists:
    """Files that a branch read and changed, including those listed in its summaries."""
    found = files_in(side.messages, side.session.dialect.name)
    for entry in side.items:
        found |= _listed_files(entry)
    return found


def _listed_files(entry: CanonicalEntry) -> FileLists:
    """File lists of a summary. Those of a hook's summary are ignored: they may have any form."""
    if entry.kind not in ("branch_summary", "compaction") or entry.fields.get("fromHook"):
        return FileLists()
    return FileLists.of_details(entry.fields.get("details"))


def find_file_conflicts(ours: BranchDelta, theirs: BranchDelta) -> list[FileConflict]:
    """Files that both branches changed, unless they made the same changes."""
    one, other = _changes(ours), _changes(theirs)
    return [
        FileConflict(one[key].path, tuple(one[key].calls), tuple(other[key].calls))
        for key in sorted(one.keys() & other.keys())
        if one[key].edits != other[key].edits
    ]


class _Changes(Struct):
    path: str
    calls: list[str]
    edits: list[Any]
    """Changes in order, independent of the agent's tool names."""


def _changes(side: BranchDelta) -> dict[str, _Changes]:
    """Changes by absolute path, which is the same in two sessions of one folder."""
    agent, cwd = side.session.dialect.name, side.session.cwd
    changes: dict[str, _Changes] = {}
    messages = messages_in(apply_edits(side.items))
    failed = {message.tool_call_id for message in messages if isinstance(message, ToolResult) and message.is_error}
    for call in _calls(messages):
        found = file_of(call, agent)
        if found is None or found[0] == "read" or call.id in failed:
            continue
        path = found[1]
        key = os.path.normpath(os.path.join(cwd, path))
        known = changes.setdefault(key, _Changes(path, [], []))
        known.calls.append(call.id)
        known.edits.append(_edit(call, agent, path))
    return changes


def _edit(call: ToolCall, agent: str, path: str) -> Any:
    meaning = find_intent(call.name, call.arguments, agent)
    if meaning is None:
        return call.name, call.arguments
    messages = msgspec.structs.asdict(meaning)
    return type(meaning).__name__, {name: value for name, value in messages.items() if value != path}


def _calls(messages: Iterable[Message]) -> Sequence[ToolCall]:
    return [call for message in messages for call in tool_calls(message)]
