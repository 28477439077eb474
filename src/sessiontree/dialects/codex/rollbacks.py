"""The entries that survive rollbacks.

A line of the type `thread_rolled_back` removes the last turns. A turn starts with a prompt, or with the event before
it, and ends before the next one: a compaction in it is also removed. What precedes the first turn always stays. Texts
that Codex inserted right before a removed turn are removed with it. All of this was measured with Codex 0.166.

The state at an entry is that of the file up to the entry: later rollbacks do not change it. An item is a pair: the node
of its line, and its number in the list of a compaction, or -1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec import Struct

from sessiontree.core.messages import Message, Text, User
from sessiontree.dialects.codex.items import (
    SUMMARY_PREFIX,
    Item,
    is_inserted,
    parse_item,
    replacement_items,
    string,
)
from sessiontree.dialects.codex.records import COMPACTION, MESSAGE, ROLLBACK, TURN, count, note_of
from sessiontree.dialects.contract import IndexedLines, is_metadata_id

Position: TypeAlias = tuple[int, int]

_NO_SUMMARY = "(no summary available)"


class SentItems(Struct, frozen=True):
    """The items that Codex sends at an entry, before it completes calls without outputs."""

    positions: list[Position]
    replacements: dict[int, list[Message]]
    """By node of a compaction: the messages that replace what precedes it."""


class Replay(Struct, frozen=True):
    """The result of replaying a file up to an entry."""

    entries: list[int]
    """The entries that are part of the history, in order."""
    sent: SentItems


def item_notes(lines: IndexedLines) -> list[Any]:
    """The notes of all nodes. Those of messages that were decoded one by one are added."""
    notes = list(lines.notes)
    missing = [node for node, kind in enumerate(lines.types) if kind == MESSAGE and notes[node] is None]
    for start in range(0, len(missing), 256):
        step = missing[start : start + 256]
        for node, fields in zip(step, lines.fields(step), strict=True):
            notes[node] = note_of(fields)
    return notes


def has_rollbacks(lines: IndexedLines) -> bool:
    return ROLLBACK in lines.types


def find_history(lines: IndexedLines, leaf: int | None) -> list[int]:
    """The entries from the first to a leaf, without those that were rolled back before it; none for a metadata line."""
    if leaf is None or is_metadata_id(lines.tree.ids[leaf]):
        return []
    if ROLLBACK not in lines.types[:leaf]:
        return lines.tree.path(leaf)
    return replay(lines, leaf, item_notes(lines)).entries


def find_parents(lines: IndexedLines) -> list[int | None]:
    """By node: the entry before it in its history."""
    parents = list(lines.tree.earlier_parents())
    if not has_rollbacks(lines):
        return parents
    for node, entries in _iter_states(lines, len(lines.types) - 1, item_notes(lines)):
        parents[node] = entries[-2] if len(entries) > 1 else None
    return parents


def last_entry(lines: IndexedLines) -> int | None:
    """The last entry of the history at the end of the file, whatever its type."""
    if not has_rollbacks(lines):
        ids = lines.tree.ids
        return next((node for node in range(len(ids) - 1, -1, -1) if not is_metadata_id(ids[node])), None)
    entries = replay(lines, len(lines.types) - 1, item_notes(lines)).entries
    return entries[-1] if entries else None


def replay(lines: IndexedLines, end: int, notes: list[Any]) -> Replay:
    """Replay the lines up to a node."""
    state = _State(lines, notes)
    for node in range(end + 1):
        state.add(node)
    return Replay(state.entries, SentItems(state.sent, state.replacements))


def _iter_states(lines: IndexedLines, end: int, notes: list[Any]) -> Iterator[tuple[int, list[int]]]:
    """Each entry with the history that it ends."""
    state = _State(lines, notes)
    for node in range(end + 1):
        if state.add(node):
            yield node, state.entries


class _Frame(Struct, frozen=True):
    """The items since a compaction, which replaces those of earlier frames."""

    sent: list[Position]
    replacements: dict[int, list[Message]]


class _Turn(Struct, frozen=True):
    """Where a turn starts: the number of frames, of items in the last one, and of entries."""

    frames: int
    sent: int
    entries: int


class _State:
    def __init__(self, lines: IndexedLines, notes: list[Any]) -> None:
        self._lines, self._types, self._ids, self._notes = lines, lines.types, lines.tree.ids, notes
        self.entries: list[int] = []
        self._frames = [_Frame([], {})]
        self._turns: list[_Turn] = []
        self._started: _Turn | None = None
        """Where the current turn started, as long as it has no prompt."""

    @property
    def sent(self) -> list[Position]:
        return self._frames[-1].sent

    @property
    def replacements(self) -> dict[int, list[Message]]:
        return self._frames[-1].replacements

    def add(self, node: int) -> bool:
        """Add a line; returns whether it is an entry."""
        kind = self._types[node]
        if kind == ROLLBACK:
            self._roll_back(node)
        elif kind == TURN:
            self._started = self._here()
        if is_metadata_id(self._ids[node]):
            return False
        if kind == COMPACTION:
            (fields,) = self._lines.fields([node])
            messages = self._replacement(fields)
            self._frames.append(_Frame([(node, number) for number in range(len(messages))], {node: messages}))
        elif kind == MESSAGE:
            if self._notes[node] == "p":
                self._turns.append(self._started or self._here())
                self._started = None
            self.sent.append((node, -1))
        self.entries.append(node)
        return True

    def _here(self) -> _Turn:
        return _Turn(len(self._frames), len(self.sent), len(self.entries))

    def _roll_back(self, node: int) -> None:
        (fields,) = self._lines.fields([node])
        payload = fields.get("payload")
        turns = count(payload, "num_turns") if isinstance(payload, dict) else 0
        self._started = None
        if not turns or not self._turns:
            return
        first = max(len(self._turns) - turns, 0)
        turn = self._turns[first]
        del self._turns[first:], self._frames[turn.frames :], self.entries[turn.entries :]
        del self.sent[turn.sent :]
        while first and self.sent and self._is_inserted(self.sent[-1]):
            self.sent.pop()
            self.entries.pop()

    def _is_inserted(self, position: Position) -> bool:
        node, number = position
        return number < 0 and bool(self.entries) and self.entries[-1] == node and self._notes[node] == "i"

    def _replacement(self, fields: dict[str, Any]) -> list[Message]:
        """The messages that replace what precedes a compaction.

        In a file of an old version, which does not list them, these are the prompts before it and the summary.
        """
        messages = listed_replacement(fields)
        if messages is not None:
            return messages
        prompts = [node for node, number in self.sent if number < 0 and self._notes[node] == "p"]
        own = dict(zip(prompts, map(_message, self._lines.fields(prompts)), strict=True))
        found = [own.get(node) if number < 0 else self.replacements[node][number] for node, number in self.sent]
        kept = [message for message in found if isinstance(message, User) and _is_prompt(message)]
        payload = fields.get("payload")
        summary = string(payload, "message") if isinstance(payload, dict) else ""
        return [
            *(message for message in kept if not message.text.startswith(SUMMARY_PREFIX)),
            User(content=(Text(summary or _NO_SUMMARY),)),
        ]


def _is_prompt(message: Message) -> bool:
    return isinstance(message, User) and not is_inserted(message.text)


def listed_replacement(fields: dict[str, Any]) -> list[Message] | None:
    """The messages that a compaction lists as the new history; None in a file of an old version."""
    payload = fields.get("payload")
    items = replacement_items(payload) if isinstance(payload, dict) else []
    if items is None:
        return None
    return [message for item in items if (message := parse_item(item, None)) is not None]


def _message(fields: dict[str, Any]) -> Message | None:
    payload: Item | Any = fields.get("payload")
    return parse_item(payload, None) if isinstance(payload, dict) else None
