"""Encoder for Neovate.

New and existing files differ in two ways. In a new file all results of a response are in one line, so they are buffered
(`result_buffer`). In an existing file each result is appended at once, as a separate line. And only an existing file
can be rewritten in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sessiontree.core.entries import Config
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.contract import IndexedLines, is_metadata_id
from sessiontree.dialects.neovate.content import Call, calls_of
from sessiontree.dialects.neovate.decode import open_calls
from sessiontree.dialects.neovate.kept_messages import EntryLine
from sessiontree.dialects.neovate.line_builder import (
    LineBuilder,
    client_data,
    draft,
    draft_result,
    has_tree_line,
    is_tool_result,
    render_line,
    result_line_fields,
    role_of,
    uuid_of,
)
from sessiontree.dialects.neovate.locations import derived_uuid
from sessiontree.dialects.neovate.metadata_lines import MARKS, SPLIT, Position, TurnTrace, find_metadata_lines
from sessiontree.dialects.neovate.path import find_current, trailing_metadata
from sessiontree.dialects.neovate.records import parts
from sessiontree.dialects.neovate.result_buffer import PendingLine, ResultBuffer
from sessiontree.dialects.neovate.rewrite import message_before, rewrite_config, rewrite_in_order
from sessiontree.dialects.passthrough import PASSTHROUGH

_FILLED_CALLS = LossNote(
    "changed", "calls without a result", "Neovate leaves out such a response, so they are answered as interrupted"
)


class NeovateEncoder(LineBuilder):
    """Encodes one session. With `lines` it continues an existing file."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        super().__init__(meta, lines)
        self._calls: dict[str, dict[str, Call]] = {}
        """The tool calls of the responses written so far, without their input."""
        self._buffer: ResultBuffer | None = None
        self._splits: dict[str, tuple[TurnTrace, int]] = {}
        """Where branches start in the middle of a turn, by the split they follow, or a metadata line after that."""

    def prologue(self) -> Sequence[bytes]:
        config = self._meta.config or Config()
        fields: dict[str, Any] = msgspec.to_builtins(config)
        summary = fields.pop("summary", None) or self._meta.title
        if summary:
            fields["summary"] = summary
        lines = [render_line({"type": "config", "config": {**fields, "additionalDirectories": []}})]
        if self._meta.title and self._meta.title != summary:
            lines.append(self._title_line(self._meta.title))
        return lines

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        self._out, self._notes = [], []
        try:
            return self._encode_existing(entry, parent) if self._lines is not None else self._encode_new(entry, parent)
        except RecursionError:
            self._out = []
            self._notes = [LossNote("dropped", "entries nested too deeply", "they cannot be written as JSON")]
            return self._encoded(parent)

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:
        self._out, self._notes = [], []
        last = self._current if self._buffer is None else self._buffer.tail
        if self._buffer is not None:
            self._close_buffer(leaf)
        elif uuid_of(leaf) != last:
            self._append_move(CanonicalEntry("leaf", {}, timestamp=self._time), uuid_of(leaf))
        return self._out

    def _track_calls(self, uuid: str, calls: dict[str, Call]) -> None:
        if self._lines is None:
            self._buffer = ResultBuffer(uuid, calls)
            calls = {id: Call(call.name) for id, call in calls.items()}
        self._calls[uuid] = calls

    # A new file

    def _encode_new(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        if self._buffer is not None and not self._buffer.is_continued_by(parent):
            self._close_buffer()  # another branch
        if self._buffer is None and isinstance(parent, Position):
            parent = self._with_split(parent)
        if self._buffer is None and parent is not None and parent in self._calls and has_tree_line(entry):
            known = self._kept.fields(parent)  # another branch after the same response
            self._buffer = ResultBuffer(str(parent), self._calls[parent] if known is None else calls_of(known))
            self._copy_turn(self._buffer, parent)
        buffer = self._buffer
        if buffer is None:
            id = self._append(entry, parent)
            if isinstance(parent, Position) and parent.metadata_id in self._splits and isinstance(id, Position):
                self._splits[id.metadata_id] = self._splits[parent.metadata_id]
            return self._encoded(id)
        if isinstance(parent, Position) and not buffer.trace.entries and has_tree_line(entry):
            buffer.marks |= self._after_mark(parent)  # the first line after the metadata lines has the results
            buffer.trace.after = parent.metadata_id
            parent = str(parent)
        if is_tool_result(entry) and buffer.is_open(_call_id(entry)):
            return self._encoded(self._add_result(buffer, entry, parent))
        if entry.kind in ("compaction", "reset_boundary") or role_of(entry) == "assistant":
            metadata_id = parent.metadata_id if isinstance(parent, Position) and buffer.is_started else ""
            tail = self._close_buffer(parent)
            return self._encoded(self._append(entry, Position(tail, metadata_id) if metadata_id else tail))
        if has_tree_line(entry) or buffer.is_started:
            return self._encoded(self._add_pending(buffer, entry, parent))
        return self._encoded(self._append(entry, parent))

    def _add_result(self, buffer: ResultBuffer, entry: CanonicalEntry, parent: str | None) -> str:
        time = self._time_of(entry)
        if buffer.uuid is None:
            # A line that Neovate wrote keeps its uuid: no branch can start in the middle of it.
            is_own = (len(buffer.calls) == 1 and not buffer.pending) or bool(client_data(entry))
            buffer.uuid, buffer.timestamp = self._new_uuid(entry) if is_own else self._shared_uuid(entry), time
            buffer.line_fields = result_line_fields(entry)
            buffer.marks |= self._fork_marks(entry, buffer.uuid)
        number = len(buffer.parts) + 1
        call = _call_id(entry)
        made = draft_result(
            entry, buffer.calls[call], buffer.uuid if number == 1 else f"{buffer.uuid}.{number}", buffer.timestamp
        )
        buffer.answer(call, made.bodies[0], made.passthroughs[0])
        self._notes += made.notes
        self._track_entry(entry, EntryLine(buffer.uuid))
        position = buffer.add_entry((), parent.metadata_id if isinstance(parent, Position) else "")
        if buffer.is_answered:
            self._flush(buffer)
        return position

    def _add_pending(self, buffer: ResultBuffer, entry: CanonicalEntry, parent: str | None) -> str:
        """Add an entry that has to wait for the results of a response."""
        count = buffer.own_results
        time = self._time_of(entry)
        uuid = self._shared_uuid(entry)
        made = draft(entry, uuid, time, self._after_mark(parent), is_root=False)
        if made is None:
            self._taken.discard(uuid)
            fields, id = self._metadata_fields(entry, buffer.tail, time)
            buffer.pending.append(PendingLine({**fields, **self._after_mark(parent)}, "", count))
            return buffer.add_entry((id,), id)
        self._notes += made.notes
        lines = self._lines_of_draft(made, entry, uuid, time)
        buffer.pending += [PendingLine(fields, line_uuid, count) for line_uuid, fields in lines]
        self._track_entry(entry, EntryLine(uuid))
        return buffer.add_entry(tuple(line_uuid for line_uuid, _ in lines))

    def _shared_uuid(self, entry: CanonicalEntry) -> str:
        """Return a uuid for a line that is decoded with others: it may be the parent of another entry's child."""
        return self._fresh_uuid(f"turn/{entry.id or entry.timestamp}")

    def _with_split(self, parent: Position) -> Position:
        trace, count = parent.trace, parent.entry_count
        return self._split(trace, count) if trace is not None and count < trace.through_last_result else parent

    def _split(self, trace: TurnTrace, count: int) -> Position:
        """Return the position after the first entries of a turn, for a branch that starts there."""
        id = derived_uuid(f"{self._session_id}/split/{trace.results}/{count}")
        if id not in self._splits:
            self._splits[id] = trace, count
            lines = [line for entry_lines in trace.entries[:count] for line in entry_lines]
            entry = {"of": trace.results, "at": count, "lines": lines, "type": SPLIT}
            self._emit_metadata(
                {
                    "type": PASSTHROUGH,
                    "sessionId": self._session_id,
                    "timestamp": self._time,
                    "id": id,
                    "parent": trace.assistant,
                    "entry": entry,
                }
                | ({"after": trace.after} if trace.after else {})
            )
        return Position(trace.assistant, id)

    def _copy_turn(self, buffer: ResultBuffer, parent: str) -> None:
        """Start a turn with the results and pending lines that it shares with another branch."""
        split = self._splits.get(parent.metadata_id) if isinstance(parent, Position) else None
        if split is None:
            return
        trace, count = split
        entries = trace.entries[:count]
        buffer.trace.copy_of = trace.results
        results = self._kept.fields(trace.results)
        if results is None:
            self._notes.append(LossNote("dropped", "results that branches share", "they are too large to be repeated"))
        for part in parts((results or {}).get("content"))[: trace.copied_results + entries.count(())]:
            buffer.copy_result(part)
        for line in [*trace.copies, *(line for entry in entries for line in entry)]:
            fields = self._kept.fields(line)  # None for a metadata line
            if fields is not None:
                uuid = self._fresh_uuid(f"copy/{buffer.assistant}/{line}")
                copy = self._copy_line(fields, uuid, self._time, {"copy": "turn", "result": 0})
                buffer.pending.append(PendingLine(copy, uuid, 0))
                buffer.trace.copies.append(uuid)
                self._kept.copies[uuid] = line

    def _close_buffer(self, end: str | None = None) -> str:
        """End the turn at an entry, even with open calls; returns the uuid of its last line."""
        buffer = self._buffer
        assert buffer is not None
        if isinstance(end, Position) and not buffer.is_started:
            buffer.marks |= self._after_mark(end)
        if buffer.fill_missing():
            self._notes.append(_FILLED_CALLS)
        if buffer.uuid is None:
            buffer.uuid, buffer.timestamp = self._fresh_uuid(f"results/{buffer.assistant}"), self._time
        self._flush(buffer)
        return buffer.tail

    def _flush(self, buffer: ResultBuffer) -> None:
        assert buffer.uuid is not None
        buffer.trace.results = buffer.uuid
        if buffer.trace.copy_of:
            self._kept.copies[buffer.uuid] = buffer.trace.copy_of
        passthroughs = {"results": buffer.passthroughs} if any(buffer.passthroughs) else {}
        fields = self._message_fields(buffer.body, buffer.uuid, buffer.timestamp, {MARKS: passthroughs | buffer.marks})
        self._emit(buffer.uuid, buffer.assistant, fields)
        before = buffer.uuid
        for line in buffer.pending:
            fields = _with_result_count(line.fields, line.count, buffer.own_results)
            if line.uuid:
                self._emit(line.uuid, before, fields)
                before = line.uuid
            else:
                self._emit_metadata(fields)
        self._buffer = None

    # An existing file

    def _encode_existing(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        assert self._lines is not None
        parent = self._message_parent(parent)
        match entry.kind:
            case "leaf":
                return self._move(entry, parent)
            case "config" if isinstance(entry.fields.get("config"), dict):
                return Encoded(parent, rewrite=rewrite_config(self._lines, entry.fields["config"]))
            case _:
                pass
        has_line = has_tree_line(entry)
        node = self._lines.tree.node_of.get(parent) if parent is not None and has_line else None
        before = rewrite_in_order(self._lines, node) if node is not None else None
        calls = open_calls(self._lines, node) if node is not None else self._open_calls(parent)
        id: str | None
        if is_tool_result(entry) and _call_id(entry) in calls:
            id = self._append_result(entry, parent, calls)
        else:
            if has_line and calls:
                parent = self._append_missing_results(parent, calls)
            id = self._append(entry, parent)
        if before is None:
            return self._encoded(id)
        return Encoded(id, notes=self._notes, rewrite=[*before, *self._out])

    def _open_calls(self, parent: str | None) -> dict[str, Call]:
        return self._calls.get(parent, {}) if parent is not None else {}

    def _append_result(self, entry: CanonicalEntry, parent: str | None, calls: dict[str, Call]) -> str:
        time, uuid, id = self._time_of(entry), self._new_uuid(entry), _call_id(entry)
        made = draft_result(entry, calls[id], uuid, time)
        body = {"role": "tool", "content": made.bodies, **result_line_fields(entry)}
        passthroughs = {"results": made.passthroughs} if any(made.passthroughs) else {}
        self._emit(
            uuid, parent, self._message_fields(body, uuid, time, {MARKS: passthroughs | self._after_mark(parent)})
        )
        self._notes += made.notes
        self._track_entry(entry, EntryLine(uuid))
        self._calls[uuid] = {other: call for other, call in calls.items() if other != id}
        return uuid

    def _append_missing_results(self, parent: str | None, calls: dict[str, Call]) -> str:
        """Answer open calls before the conversation continues."""
        buffer = ResultBuffer(parent or "", calls)
        buffer.fill_missing()
        uuid = self._fresh_uuid(f"results/{parent}")
        fields = self._message_fields(buffer.body, uuid, self._time, {MARKS: {"results": buffer.passthroughs}})
        self._emit(uuid, parent, fields)
        self._notes.append(_FILLED_CALLS)
        return uuid

    def _move(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        assert self._lines is not None
        target = entry.fields.get("targetId")
        if target is not None:
            node = self._lines.tree.node_of.get(target) if isinstance(target, str) else None
            if node is None:
                self._notes.append(LossNote("dropped", "moves", "the target message does not exist"))
                return self._encoded(self._append_metadata(entry, parent))
            target = message_before(self._lines, node)
        if target != self._current:
            self._append_move(entry, target)
        return self._encoded(target)

    def _append_move(self, entry: CanonicalEntry, target: str | None) -> None:
        # Neovate ignores the line, except that some of its messages become children of the last line's uuid.
        self._current = target
        self._append_metadata(CanonicalEntry("leaf", {"targetId": target}, entry.id, entry.timestamp), target)

    def _message_parent(self, parent: str | None) -> str | None:
        """The parent in the tree: for a metadata line, the message before it."""
        lines = self._lines
        if parent is None or lines is None or isinstance(parent, Position):
            return parent
        node = lines.tree.node_of.get(parent)
        metadata = find_metadata_lines(lines)
        if node is not None and is_metadata_id(parent):
            if node not in metadata.by_node:
                return message_before(lines, node)
            line = metadata.by_node[node]
            return Position(line.parent, line.id) if line.parent is not None and line.id else line.parent
        since = find_current(lines).since
        trailing = trailing_metadata(lines, metadata, parent, since) if parent == self._current else []
        return Position(parent, metadata.by_node[trailing[-1]].id) if trailing else parent


def _call_id(entry: CanonicalEntry) -> str:
    id = entry.fields["message"].get("toolCallId")
    return id if isinstance(id, str) else ""


def _with_result_count(fields: dict[str, Any], before: int, count: int) -> dict[str, Any]:
    """Return a pending line with the number of results before it, if others came later."""
    if before == count:
        return fields
    if fields["type"] == PASSTHROUGH:
        return {**fields, "result": before}
    passthrough = fields.get(PASSTHROUGH, {})
    return {**fields, PASSTHROUGH: {**passthrough, MARKS: {**passthrough.get(MARKS, {}), "result": before}}}
