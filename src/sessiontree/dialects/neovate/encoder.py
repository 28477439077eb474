"""Writing a session of Neovate: items in, lines out.

A new file and one that is continued differ in two things. A new file has the results of each answer in one line, so
they are gathered (see `turns`); in one that is there each result is a line of its own behind the one before, since
nothing may wait. And only a file that is there can be rewritten in another order.
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
from sessiontree.dialects.neovate.drafts import around_results, draft, draft_result, is_tool_result, role_of
from sessiontree.dialects.neovate.kept_messages import Place
from sessiontree.dialects.neovate.line_builder import LineBuilder, line_of
from sessiontree.dialects.neovate.metadata_lines import MARKS, SPLIT, Behind, Trace, asides_in
from sessiontree.dialects.neovate.path import standing_behind
from sessiontree.dialects.neovate.places import derived_uuid
from sessiontree.dialects.neovate.records import parts
from sessiontree.dialects.neovate.rendering import render_line
from sessiontree.dialects.neovate.result_buffer import Pending, Turn
from sessiontree.dialects.neovate.rewrite import in_order, message_before, standing_at, with_config
from sessiontree.dialects.neovate.riding import extras_of
from sessiontree.dialects.passthrough import PASSTHROUGH

_FILLED = LossNote(
    "changed", "calls without a result", "Neovate leaves out such an answer, so they are answered as interrupted"
)


class NeovateEncoder(LineBuilder):
    """Writes one session of Neovate. With `lines` it continues the file that has them."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        super().__init__(meta, lines)
        self._calls: dict[str, dict[str, Call]] = {}
        """The calls of the answers written so far, without what they were given."""
        self._turn: Turn | None = None
        self._splits: dict[str, tuple[Trace, int]] = {}
        """Where branches begin in the midst of a turn, by the split they stand behind, or an aside behind that."""

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
            return self._continue(entry, parent) if self._lines is not None else self._add(entry, parent)
        except RecursionError:
            self._out = []
            self._notes = [LossNote("dropped", "entries nested too deeply", "they cannot be written as JSON")]
            return self._written(parent)

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:
        """What still waits; and where the session stands, if that is not the last message, for those who look."""
        self._out, self._notes = [], []
        stands = self._last if self._turn is None else self._turn.tail
        if self._turn is not None:
            self._close()
        elif line_of(leaf) != stands:
            self._beside(CanonicalEntry("leaf", {"targetId": line_of(leaf)}, timestamp=self._time), leaf)
        return self._out

    def _called(self, uuid: str, calls: dict[str, Call]) -> None:
        if self._lines is None:
            self._turn = Turn(uuid, calls)
            calls = {id: Call(call.name) for id, call in calls.items()}
        self._calls[uuid] = calls

    # A new file

    def _add(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        if self._turn is not None and not self._turn.is_followed_by(parent):
            self._close()  # another branch
        if self._turn is None and isinstance(parent, Behind) and parent.trace and parent.place < parent.trace.gathered:
            parent = self._split(parent.trace, parent.place)
        if self._turn is None and parent is not None and parent in self._calls and self._has_line(entry):
            known = self._kept.fields(parent)  # another branch behind the same answer
            self._turn = Turn(str(parent), self._calls[parent] if known is None else calls_of(known))
            self._repeat_turn(self._turn, parent)
        turn = self._turn
        if turn is None:
            id = self._append(entry, parent)
            if isinstance(parent, Behind) and parent.aside in self._splits and isinstance(id, Behind):
                self._splits[id.aside] = self._splits[parent.aside]
            return self._written(id)
        if isinstance(parent, Behind) and not turn.trace.items and self._has_line(entry):
            turn.marks |= self._after(parent)  # what comes first behind the asides of an answer is its results
            turn.trace.after = parent.aside
            parent = str(parent)
        if is_tool_result(entry) and turn.is_open(_call_id(entry)):
            return self._written(self._answer(turn, entry, parent))
        if entry.kind == "compaction" or role_of(entry) == "assistant":
            aside = parent.aside if isinstance(parent, Behind) else ""
            tail = self._close()
            return self._written(self._append(entry, Behind(tail, aside) if aside else tail))
        if self._has_line(entry) or turn.is_under_way:
            return self._written(self._wait(turn, entry, parent))
        return self._written(self._append(entry, parent))

    def _has_line(self, entry: CanonicalEntry) -> bool:
        """Whether an item gets a line of the tree: nothing is made of it yet."""
        return draft(entry, "", "", {}, is_root=False) is not None

    def _answer(self, turn: Turn, entry: CanonicalEntry, parent: str | None) -> str:
        time = self._time_of(entry)
        if turn.uuid is None:
            # A line of Neovate's own keeps its uuid: no branch can begin in the midst of it.
            is_own = (len(turn.calls) == 1 and not turn.waiting) or bool(extras_of(entry))
            turn.uuid, turn.timestamp = self._new_uuid(entry) if is_own else self._shared_uuid(entry), time
            turn.around = around_results(entry)
            turn.marks |= self._fork_marks(entry, turn.uuid)
        number = len(turn.parts) + 1
        call = _call_id(entry)
        made = draft_result(
            entry, turn.calls[call], turn.uuid if number == 1 else f"{turn.uuid}.{number}", turn.timestamp
        )
        turn.answer(call, made.bodies[0], made.passthroughs[0])
        self._notes += made.notes
        self._place(entry, Place(turn.uuid))
        behind = turn.came((), parent.aside if isinstance(parent, Behind) else "")
        if turn.is_answered:
            self._flush(turn)
        return behind

    def _wait(self, turn: Turn, entry: CanonicalEntry, parent: str | None) -> str:
        """Let an item wait behind the results of an answer."""
        count = turn.given
        time = self._time_of(entry)
        uuid = self._shared_uuid(entry)
        made = draft(entry, uuid, time, self._after(parent), is_root=False)
        if made is None:
            self._taken.discard(uuid)
            fields, id = self._beside_fields(entry, turn.tail, time)
            turn.waiting.append(Pending({**fields, **self._after(parent)}, "", count))
            return turn.came((id,), id)
        self._notes += made.notes
        lines = self._lines_of(made, entry, uuid, time)
        turn.waiting += [Pending(fields, line_uuid, count) for line_uuid, fields in lines]
        self._place(entry, Place(uuid))
        return turn.came(tuple(line_uuid for line_uuid, _ in lines))

    def _shared_uuid(self, entry: CanonicalEntry) -> str:
        """A uuid for a line that is told with others: what follows it may follow another item than its own."""
        return self._fresh_uuid(f"turn/{entry.id or entry.timestamp}")

    def _split(self, trace: Trace, place: int) -> Behind:
        """The place behind the first items of a turn, for a branch that begins there."""
        id = derived_uuid(f"{self._session_id}/split/{trace.results}/{place}")
        if id not in self._splits:
            self._splits[id] = trace, place
            lines = [line for item in trace.items[:place] for line in item]
            entry = {"of": trace.results, "at": place, "lines": lines, "type": SPLIT}
            self._emit_aside(
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
        return Behind(trace.assistant, id)

    def _repeat_turn(self, turn: Turn, parent: str) -> None:
        """Begin a turn with what another branch says before the two part: its results, and what waited for them."""
        split = self._splits.get(parent.aside) if isinstance(parent, Behind) else None
        if split is None:
            return
        trace, place = split
        entries = trace.items[:place]
        turn.trace.instead_of = trace.results
        results = self._kept.fields(trace.results)
        if results is None:
            self._notes.append(LossNote("dropped", "results that branches share", "they are too large to be repeated"))
        for part in parts((results or {}).get("content"))[: trace.repeated + entries.count(())]:
            turn.repeat(part)
        for line in [*trace.copies, *(line for entry in entries for line in entry)]:
            fields = self._kept.fields(line)  # none for an aside
            if fields is not None:
                uuid = self._fresh_uuid(f"copy/{turn.assistant}/{line}")
                copy = self._copied(fields, uuid, self._time, {"copy": "turn", "result": 0})
                turn.waiting.append(Pending(copy, uuid, 0))
                turn.trace.copies.append(uuid)
                self._kept.copies[uuid] = line

    def _close(self) -> str:
        """End the turn, whether or not all calls are answered; the id of the last line behind the answer."""
        turn = self._turn
        assert turn is not None
        if turn.fill():
            self._notes.append(_FILLED)
        if turn.uuid is None:
            turn.uuid, turn.timestamp = self._fresh_uuid(f"results/{turn.assistant}"), self._time
        self._flush(turn)
        return turn.tail

    def _flush(self, turn: Turn) -> None:
        assert turn.uuid is not None
        turn.trace.results = turn.uuid
        if turn.trace.instead_of:
            self._kept.copies[turn.uuid] = turn.trace.instead_of
        passthroughs = {"results": turn.passthroughs} if any(turn.passthroughs) else {}
        fields = self._with_marks(turn.body, turn.uuid, turn.timestamp, {MARKS: passthroughs | turn.marks})
        self._emit(turn.uuid, turn.assistant, fields)
        before = turn.uuid
        for line in turn.waiting:
            fields = _placed(line.fields, line.place, turn.given)
            if line.uuid:
                self._emit(line.uuid, before, fields)
                before = line.uuid
            else:
                self._emit_aside(fields)
        self._turn = None

    # A file that is there

    def _continue(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        assert self._lines is not None
        parent = self._message_parent(parent)
        match entry.kind:
            case "leaf":
                return self._move(entry, parent)
            case "config" if isinstance(entry.fields.get("config"), dict):
                return Encoded(parent, rewrite=with_config(self._lines, entry.fields["config"]))
            case _:
                pass
        has_line = self._has_line(entry)
        node = self._lines.tree.node_of.get(parent) if parent is not None and has_line else None
        before = in_order(self._lines, node) if node is not None and parent != self._last else None
        calls = open_calls(self._lines, node) if node is not None else self._open_calls(parent)
        id: str | None
        if is_tool_result(entry) and _call_id(entry) in calls:
            id = self._append_result(entry, parent, calls)
        else:
            if has_line and calls:
                parent = self._append_missing(parent, calls)
            id = self._append(entry, parent)
        if before is None:
            return self._written(id)
        return Encoded(id, notes=self._notes, rewrite=[*before, *self._out])

    def _open_calls(self, parent: str | None) -> dict[str, Call]:
        return self._calls.get(parent, {}) if parent is not None else {}

    def _append_result(self, entry: CanonicalEntry, parent: str | None, calls: dict[str, Call]) -> str:
        time, uuid, id = self._time_of(entry), self._new_uuid(entry), _call_id(entry)
        made = draft_result(entry, calls[id], uuid, time)
        body = {"role": "tool", "content": made.bodies, **around_results(entry)}
        passthroughs = {"results": made.passthroughs} if any(made.passthroughs) else {}
        self._emit(uuid, parent, self._with_marks(body, uuid, time, {MARKS: passthroughs | self._after(parent)}))
        self._notes += made.notes
        self._place(entry, Place(uuid))
        self._calls[uuid] = {other: call for other, call in calls.items() if other != id}
        return uuid

    def _append_missing(self, parent: str | None, calls: dict[str, Call]) -> str:
        """Answer the calls that nothing answered, before the conversation goes on behind them."""
        turn = Turn(parent or "", calls)
        turn.fill()
        uuid = self._fresh_uuid(f"results/{parent}")
        fields = self._with_marks(turn.body, uuid, self._time, {MARKS: {"results": turn.passthroughs}})
        self._emit(uuid, parent, fields)
        self._notes.append(_FILLED)
        return uuid

    def _move(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        """Stand elsewhere: Neovate stands at the last message of the file."""
        assert self._lines is not None
        target = entry.fields.get("targetId")
        node = self._lines.tree.node_of.get(target) if isinstance(target, str) else None
        if target is None or node is None:
            why = "Neovate always stands at a message" if target is None else "there is no such message"
            self._notes.append(
                LossNote("dropped", "moves to before the first message" if target is None else "moves", why)
            )
            return self._written(self._beside(entry, parent))
        uuid = message_before(self._lines, node)
        assert uuid is not None or is_metadata_id(self._lines.tree.ids[node])
        node = self._lines.tree.node_of[uuid] if uuid is not None else node
        return Encoded(uuid, rewrite=standing_at(self._lines, node))

    def _message_parent(self, parent: str | None) -> str | None:
        """A parent in the tree: that of a line beside it is the message before, and what stands behind it follows."""
        lines = self._lines
        if parent is None or lines is None or isinstance(parent, Behind):
            return parent
        node = lines.tree.node_of.get(parent)
        asides = asides_in(lines)
        if node is not None and is_metadata_id(parent):
            if node not in asides.by_node:
                return message_before(lines, node)
            aside = asides.by_node[node]
            return Behind(aside.parent, aside.id) if aside.parent is not None and aside.id else aside.parent
        behind = standing_behind(lines, asides, parent) if parent == self._last else []
        return Behind(parent, asides.by_node[behind[-1]].id) if behind else parent


def _call_id(entry: CanonicalEntry) -> str:
    id = entry.fields["message"].get("toolCallId")
    return id if isinstance(id, str) else ""


def _placed(fields: dict[str, Any], place: int, count: int) -> dict[str, Any]:
    """A line that waited for results, with the number of those it stood behind, if others came later."""
    if place == count:
        return fields
    if fields["type"] == PASSTHROUGH:
        return {**fields, "result": place}
    passthrough = fields.get(PASSTHROUGH, {})
    return {**fields, PASSTHROUGH: {**passthrough, MARKS: {**passthrough.get(MARKS, {}), "result": place}}}
