"""The messages that Codex sends to the model when it resumes a session.

Codex completes calls without an output by `aborted`, right after the call, and leaves out outputs without a call.
Messages are decoded on access, a few at a time: rollouts of many gigabytes exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sessiontree.core.context import Context, ModelRef, Rules, State, build_context
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import CACHED_BYTES, LazyMessages, Message, Text, ToolResult, tool_calls
from sessiontree.dialects.codex.items import ABORTED, string
from sessiontree.dialects.codex.records import COMPACTION, MESSAGE, ROLLBACK, TURN_CONTEXT, call_of_note
from sessiontree.dialects.codex.rollbacks import (
    Position,
    SentItems,
    find_history,
    item_notes,
    listed_replacement,
    replay,
)
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.defaults import path_of_nodes

_COMPLETED = -2
"""In place of the number of an item: the output that completes the call at the node."""


def build_codex_context(lines: IndexedLines, leaf: int | None, rules: Rules) -> Context:
    if leaf is None:
        return Context((), (), (), State())
    notes = item_notes(lines)
    ids = lines.tree.ids
    sent = _find_sent(lines, leaf, notes)
    positions, names = _complete_calls(sent, notes)
    messages = _ContextMessages(lines, sent.replacements, positions, names, notes).lazy()
    path = tuple([ids[node] for node in find_history(lines, leaf)])
    return Context(path, messages, tuple([ids[node] for node, _ in positions]), _find_state(lines, leaf, rules))


def _find_sent(lines: IndexedLines, leaf: int, notes: list[Any]) -> SentItems:
    """The items that are sent at a leaf. Without rollbacks, nothing before the last compaction has to be read."""
    types = lines.types
    if ROLLBACK in types[:leaf]:
        return replay(lines, leaf, notes).sent
    start = next((node for node in range(leaf, -1, -1) if types[node] == COMPACTION), None)
    if start is None:
        return SentItems([(node, -1) for node in range(leaf + 1) if types[node] == MESSAGE], {})
    (fields,) = lines.fields([start])
    messages = listed_replacement(fields)
    if messages is None:
        return replay(lines, leaf, notes).sent
    positions = [(start, number) for number in range(len(messages))]
    positions += [(node, -1) for node in range(start + 1, leaf + 1) if types[node] == MESSAGE]
    return SentItems(positions, {start: messages})


def _complete_calls(sent: SentItems, notes: list[Any]) -> tuple[list[Position], dict[str, str]]:
    """Add outputs for calls without one, and remove outputs without a call. Also returns the tools of all calls."""
    names: dict[str, str] = {}
    answered: set[str] = set()
    for node, number in sent.positions:
        if number < 0:
            note = notes[node]
            if note and note[0] == "c":
                id, name = call_of_note(note)
                names[id] = name
            elif note and note[0] == "o":
                answered.add(note[1:])
            continue
        message = sent.replacements[node][number]
        names.update((call.id, call.name) for call in tool_calls(message))
        if isinstance(message, ToolResult):
            answered.add(message.tool_call_id)
    if names.keys() == answered:
        return sent.positions, names
    completed: list[Position] = []
    for node, number in sent.positions:
        note = notes[node] if number < 0 else _note_of(sent.replacements[node][number])
        if note and note[0] == "o" and note[1:] not in names:
            continue
        completed.append((node, number))
        if number < 0 and note and note[0] == "c" and call_of_note(note)[0] not in answered:
            completed.append((node, _COMPLETED))
    return completed, names


def _note_of(message: Message) -> str:
    return f"o{message.tool_call_id}" if isinstance(message, ToolResult) else ""


class _ContextMessages:
    """Loads the messages at some positions."""

    def __init__(
        self,
        lines: IndexedLines,
        replacements: dict[int, list[Message]],
        positions: list[Position],
        names: dict[str, str],
        notes: list[Any],
    ) -> None:
        self._lines, self._replacements, self._positions = lines, replacements, positions
        self._names, self._notes = names, notes

    def lazy(self) -> LazyMessages:
        return LazyMessages(len(self._positions), self._load, self._sizes, capacity=CACHED_BYTES)

    def _load(self, wanted: range) -> list[Message]:
        positions = self._positions[wanted.start : wanted.stop]
        nodes = [node for node, number in positions if number == -1]
        own = dict(zip(nodes, self._lines.entries(nodes), strict=True))
        found: list[Message] = []
        for node, number in positions:
            if number >= 0:
                message = self._replacements[node][number]
            elif number == _COMPLETED:
                id, _ = call_of_note(self._notes[node])
                message = ToolResult(tool_call_id=id, content=(Text(ABORTED),), is_error=True)
            else:
                entry = own[node]
                assert isinstance(entry, MessageEntry)
                message = entry.message
            if isinstance(message, ToolResult):
                message = msgspec.structs.replace(message, tool_name=self._names.get(message.tool_call_id, ""))
            found.append(message)
        return found

    def _sizes(self, wanted: range) -> list[int]:
        positions = self._positions[wanted.start : wanted.stop]
        sizes = self._lines.sizes([node for node, _ in positions])
        return [size if number == -1 else 0 for size, (_, number) in zip(sizes, positions, strict=True)]


def _find_state(lines: IndexedLines, leaf: int, rules: Rules) -> State:
    """Settings at a leaf: of each kind, the last line before it. Codex's own settings name the model of a turn."""
    nodes: list[int] = []
    for kind in ("model_change", "thinking_level_change", "mode_change"):
        nodes += _last_of(lines.types, kind, leaf)
    state = build_context(path_of_nodes(lines, sorted(nodes)), rules).state
    for node in _last_of(lines.types, TURN_CONTEXT, leaf):
        payload = lines.fields([node])[0].get("payload")
        model = string(payload, "model") if isinstance(payload, dict) else ""
        if model:
            return msgspec.structs.replace(state, model=ModelRef(None, model), models={"default": model})
    return state


def _last_of(types: Sequence[str], kind: str, end: int) -> list[int]:
    if kind not in types:
        return []
    found = next((node for node in range(end, -1, -1) if types[node] == kind), None)
    return [] if found is None else [found]
