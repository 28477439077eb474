"""Decode Codex's lines into canonical entries.

The items of a response are separate lines: reasoning, texts, calls. Adjacent items of the assistant become one
message. On lines that we wrote, a mark shows where an entry starts (`sessiontree`), and which lines continue it
(`part`). To preserve fields of Codex's own items, a message is encoded again, and the difference is carried.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import native_fields
from sessiontree.core.messages import Assistant, Block, Message, ToolResult, Usage, User, blocks_of, tool_calls
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.codex.header import header_meta
from sessiontree.dialects.codex.items import (
    Item,
    encode_assistant,
    encode_output,
    encode_user,
    parse_item,
    string,
    summary_with_prompts,
)
from sessiontree.dialects.codex.records import COMPACTION, MESSAGE, TURN_CONTEXT, milliseconds, own_type, parse_line
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.defaults import iter_resolved
from sessiontree.dialects.passthrough import PASSTHROUGH, json_delta, passthrough_of, restore_entry, with_carried_data

CARRIED = "codex"
"""The name under which Codex's own data is carried."""


class Line(Struct, frozen=True):
    node: int
    id: str
    fields: dict[str, Any]

    @property
    def payload(self) -> Item:
        found = self.fields.get("payload")
        return found if isinstance(found, dict) else {}

    @property
    def is_item(self) -> bool:
        return self.fields.get("type") == "response_item"

    @property
    def is_ours(self) -> bool:
        return PASSTHROUGH in self.fields

    @property
    def is_part(self) -> bool:
        return passthrough_of(self.fields).get("part") is True

    @property
    def is_answer(self) -> bool:
        """Whether it is an item of the assistant."""
        if not self.is_item:
            return False
        kind = string(self.payload, "type")
        return self.payload.get("role") == "assistant" if kind == "message" else not kind.endswith("_output")


def decode_entries(lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
    decoder = _Decoder(lines)
    group: list[Line] = []
    for node, fields in iter_resolved(lines, nodes):
        line = Line(node, lines.tree.ids[node], fields)
        if group and not _continues(group[-1], line):
            yield decoder.decode(group)
            group = []
        group.append(line)
    if group:
        yield decoder.decode(group)


def must_decode_together(lines: IndexedLines, node: int, child: int) -> bool:
    if MESSAGE not in (lines.types[node], lines.types[child]):
        return False
    before, line = (Line(at, "", fields) for at, fields in zip((node, child), lines.fields([node, child]), strict=True))
    return _continues(before, line)


def _continues(before: Line, line: Line) -> bool:
    """Whether a line belongs to the same entry as the one before it."""
    if line.is_ours or before.is_ours:
        return line.is_part
    return before.is_answer and line.is_answer


class _Decoder:
    """Decodes one entry after the other, and remembers the tools of calls."""

    def __init__(self, lines: IndexedLines) -> None:
        self._lines = lines
        self._settings = [node for node, kind in enumerate(lines.types) if kind == TURN_CONTEXT]
        self._models: dict[int, str] = {}
        self._provider = string(header_meta(lines), "model_provider") or None
        self._names: dict[str, str] = {}

    def decode(self, group: list[Line]) -> CanonicalEntry:
        first = group[0]
        time = iso_time(first.fields.get("timestamp"))
        kind = self._lines.types[first.node]
        aliases = tuple(line.id for line in group[1:])
        if kind == COMPACTION:
            entry = CanonicalEntry("compaction", {"summary": summary_with_prompts(first.payload)}, first.id, time)
        elif first.is_item:
            entry = self._decode_message(group, time)
        else:
            entry = decode_own(first, time)
        entry = msgspec.structs.replace(entry, aliases=aliases)
        if first.is_ours:
            found = {name: value for name, value in passthrough_of(first.fields).items() if name != "part"}
            return restore_entry(entry, found)
        return with_carried_data(entry, CARRIED, _own_data(kind, entry, group))

    def _decode_message(self, group: list[Line], time: str) -> CanonicalEntry:
        first = group[0]
        items = [line.payload for line in group if line.is_item]
        message = merged_message(items, time, is_ours=first.is_ours)
        if isinstance(message, Assistant):
            self._names.update((call.id, call.name) for call in tool_calls(message))
            if not first.is_ours:
                message = msgspec.structs.replace(
                    message,
                    provider=self._provider,
                    model=self._model_at(first.node),
                    usage=self._usage_after(group[-1].node),
                )
        elif isinstance(message, ToolResult):
            message = msgspec.structs.replace(message, tool_name=self._names.get(message.tool_call_id, ""))
        return CanonicalEntry("message", {"message": native_fields(message)}, first.id, time)

    def _model_at(self, node: int) -> str | None:
        """The model in the last settings before a node."""
        at = bisect_left(self._settings, node) - 1
        if at < 0:
            return None
        found = self._settings[at]
        if found not in self._models:
            self._models[found] = string(Line(found, "", self._lines.fields([found])[0]).payload, "model")
        return self._models[found] or None

    def _usage_after(self, node: int) -> Usage | None:
        """The usage on the first line that reports it before the next entry."""
        types, ids = self._lines.types, self._lines.tree.ids
        for later in range(node + 1, len(types)):
            if not ids[later].startswith("@"):
                return None
            if types[later] == "usage":
                entry = parse_line(self._lines.fields([later])[0])
                return getattr(entry, "usage", None)
        return None


def merged_message(items: Sequence[Item], time: str, *, is_ours: bool) -> Message:
    """The message of one or several items."""
    ms = milliseconds(time)
    found = [message for item in items if (message := parse_item(item, ms, is_ours=is_ours)) is not None]
    if not found:
        return User(ms)
    first = found[0]
    if not isinstance(first, Assistant):
        return first
    blocks: list[Block] = []
    for message in found:
        if isinstance(message, Assistant):
            blocks += blocks_of(message.content)
    return Assistant(ms, tuple(blocks))


def decode_own(line: Line, time: str) -> CanonicalEntry:
    """The entry on a line of ours for an entry that Codex cannot store, or on an unknown line."""
    kind = string(line.payload, "type")
    if line.fields.get("type") != PASSTHROUGH or not kind:
        return CanonicalEntry(own_type(string(line.fields, "type")), {"fields": line.fields}, line.id, time)
    fields = {name: value for name, value in line.payload.items() if name != "type"}
    return CanonicalEntry(kind, fields, line.id, time)


def _own_data(kind: str, entry: CanonicalEntry, group: list[Line]) -> Any:
    """The data of Codex's lines beyond the canonical form."""
    if kind == COMPACTION:
        kept = ("message", "replacement_history")
        return {"payload": {name: group[0].payload[name] for name in kept if name in group[0].payload}}
    message = entry.fields.get("message")
    if not isinstance(message, dict):
        return None
    items = [line.payload for line in group]
    encoded = encode_items(message, is_own=True, is_custom="custom" in string(items[0], "type"))
    if len(encoded) != len(items):
        return {"items": items}
    deltas = [json_delta(*pair) for pair in zip(encoded, items, strict=True)]
    return {"deltas": deltas} if any(delta is not None for delta in deltas) else {"deltas": []}


def encode_items(message: dict[str, Any], *, is_own: bool, is_custom: bool = False) -> list[Item]:
    match message.get("role"):
        case "user":
            return encode_user(message).items
        case "assistant":
            return encode_assistant(message, is_own=is_own).items
        case "toolResult":
            return encode_output(message, is_custom=is_custom).items
        case _:
            return []
