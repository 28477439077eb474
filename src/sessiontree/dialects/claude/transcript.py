"""A transcript under construction: places lines in the tree and separates branches.

The results of one response are a chain after it, so all are on the path, also for readers that do not restore parallel
results.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.claude.content import encode_usage
from sessiontree.dialects.claude.decode_lines import GENERATED_RESPONSE, CommonFields
from sessiontree.dialects.claude.line_builder import Call, LineBuilder, PlacedEntry, build_compact_metadata
from sessiontree.dialects.claude.records import AFTER, NIL_UUID, SYNTHETIC, Fields, string_in, without
from sessiontree.dialects.claude.write_state import AfterMetadata, WriteState
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.passthrough import PART, PASSTHROUGH, build_passthrough
from sessiontree.errors import InvalidEntryError

_MAX_PROMPT = 200
_NO_LINE_TYPE = "Claude Code has no line for them"


class Transcript:
    """Shared state of the encoders for each kind of entry."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None) -> None:
        self.is_new = lines is None
        self.builder = LineBuilder(meta, lines)
        self.state = WriteState(lines)
        self.last_line: str | None = None
        """The chain line that was written last."""
        self.metadata_before: str | None = None
        """The metadata entry before the one being encoded, see `WriteState.metadata_before`."""

    @property
    def common(self) -> CommonFields:
        return self.builder.common or CommonFields()

    # Chain lines

    def add_passthrough(
        self, entry: CanonicalEntry, line: Fields, decoded: CanonicalEntry, omitted: Sequence[int] = ()
    ) -> None:
        """Add to a line what its entry has beyond `decoded`, the entry that the lines alone decode to."""
        if not entry.id:  # a new entry has no client fields yet: those on its lines are right
            decoded = replace(decoded, fields=without(decoded.fields, PASSTHROUGH), id="")
        found = {**line.get(PASSTHROUGH, {}), **build_passthrough(entry, decoded, left_out=omitted)}
        if found:
            line[PASSTHROUGH] = found

    def mark_position(self, line: Fields) -> None:
        """Record on a line which metadata entry precedes it."""
        if self.metadata_before is not None:
            line[PASSTHROUGH] = {**line.get(PASSTHROUGH, {}), AFTER: self.metadata_before}

    def place(
        self,
        entry: CanonicalEntry,
        parent: str | None,
        lines: Sequence[Fields],
        notes: Sequence[LossNote] = (),
        *,
        calls: tuple[Call, ...] | None = None,
        prompt: str = "",
        kept: tuple[str, ...] | None = None,
    ) -> Encoded:
        """Place the lines of an entry in the tree."""
        uuids = tuple([line["uuid"] for line in lines])
        last = uuids[-1]
        main = last if calls is not None else uuids[0]
        before: list[Fields] = []
        if parent is None and kept is None and self._has_chain():
            before.append(self._build_rewind())
        is_separated = self.state.needs_boundary(parent, is_result=False) and kept is None
        if is_separated and parent is not None:
            before.append(self.build_separator(entry, parent))
            lines[0]["parentUuid"] = before[-1]["uuid"]
        self.mark_position(lines[0])
        self.last_line = last
        is_turn = any(line["type"] in ("user", "assistant") for line in lines) or bool(kept)
        shown = prompt[:_MAX_PROMPT]
        placed = PlacedEntry(parent, uuids, main, calls or (), None, "", is_separated, shown, kept, is_turn)
        self.state.add(entry, last, placed)
        return Encoded(last, [render_json(line) for line in (*before, *lines)], notes)

    def place_result(self, entry: CanonicalEntry, line: Fields, placed: PlacedEntry) -> None:
        """Place a result in the tree."""
        self.mark_position(line)
        self.last_line = placed.main
        self.state.add(entry, placed.main, placed)

    def _has_chain(self) -> bool:
        return self.last_line is not None or self.state.has_chain

    # Boundaries

    def build_boundary(self, id: str, before: str | None, time: str, metadata: Fields, client_fields: Fields) -> Fields:
        payload = {
            "logicalParentUuid": before,
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "isMeta": False,
            "level": "info",
            "compactMetadata": metadata,
        }
        return self.builder.chain_line("system", id, None, time, payload, client_fields)

    def build_hidden_line(self, id: str, parent: str, time: str) -> Fields:
        """Build a chain line that the client does not send, as a parent for others."""
        payload = {"subtype": "informational", "content": "Conversation compacted", "isMeta": False, "level": "info"}
        return {**self.builder.chain_line("system", id, parent, time, payload, {}), PASSTHROUGH: {PART: True}}

    def build_separator(self, entry: CanonicalEntry, parent: str) -> Fields:
        """Build a boundary that preserves exactly the path to an entry's parent.

        Lines that a compaction on another branch preserves follow its summary on every path, and all results of a
        response belong to every path through it. A later boundary that lists its lines undoes both.
        """
        kept = self.state.context_lines(parent)
        self.state.add_boundary(kept)
        (id,) = self.builder.assign_uuids(CanonicalEntry("", {}, f"before {entry.id}" if entry.id else ""), 1)
        metadata = build_compact_metadata({}, False, kept, id)
        boundary = self.build_boundary(id, parent, self.builder.time(entry), metadata, {})
        return {**boundary, PASSTHROUGH: {PART: True}}

    def build_separator_lines(self, entry: CanonicalEntry, parent: str) -> list[Fields]:
        """Build a separator, and a line after it: a boundary with nothing after it has no effect."""
        boundary = self.build_separator(entry, parent)
        # The uuid derives from this name, so the name must not change.
        (end,) = self.builder.assign_uuids(CanonicalEntry("", {}, f"behind {boundary['uuid']}"), 1)
        return [boundary, self.build_hidden_line(end, boundary["uuid"], boundary["timestamp"])]

    def build_unpreserving_lines(self, entry: CanonicalEntry, leaf: str, *, at_end: bool = False) -> list[Fields]:
        """Build a boundary that restores the path to a line of the file, if a later one preserves parts of it.

        With `at_end`, no line is written after it.
        """
        kept = self.state.context_hidden_by_boundary(leaf, at_end=at_end)
        if not kept:
            return []
        id, end = self.builder.assign_uuids(entry, 2)
        time = self.builder.time(entry)
        metadata = build_compact_metadata({}, False, kept, id)
        boundary = {**self.build_boundary(id, leaf, time, metadata, {}), PASSTHROUGH: {PART: True}}
        return [boundary, self.build_hidden_line(end, id, time)]

    # Moves

    def build_move_lines(self, entry: CanonicalEntry, target: str | None) -> list[Fields]:
        """Build a pin on a line of the file, and the lines that the client needs to follow it."""
        if target is not None and not self.state.can_be_current(target):
            raise InvalidEntryError(
                f"cannot switch to {target}: Claude Code continues only lines of the main conversation; "
                f"`sessiontree fork SESSION --at {target}` copies that branch into a new session"
            )
        lines = [] if target is None else self.build_unpreserving_lines(entry, target, at_end=True)
        if lines and target is not None:
            target = self.state.find_pinned(target, lines[0]["compactMetadata"]["preservedMessages"]["uuids"])
        if self.state.has_chain and not self.state.has_turn(target):
            lines += self.build_empty_answer(entry, target)
            target = lines[-1]["uuid"]
        return [*lines, self.builder.metadata_line("last-prompt", leafUuid=target or NIL_UUID, explicit=True)]

    def build_empty_answer(self, entry: CanonicalEntry, parent: str | None) -> list[Fields]:
        """Build an assistant line that the client never sends, for a position without a user or assistant line above.

        The client ignores a pin on such a position, and a pin on nothing leads to the last line of the file.
        """
        (id,) = self.builder.assign_uuids(CanonicalEntry("", {}, f"at {entry.id}" if entry.id else ""), 1)
        line = self.build_empty_line(id, parent, self.builder.time(entry))
        self.mark_position(line)
        return [line] if parent is not None else [self._build_rewind(), line]

    def build_empty_line(self, id: str, parent: str | None, time: str) -> Fields:
        """Build an assistant line that the client never sends."""
        message = {
            "id": GENERATED_RESPONSE + id.replace("-", ""),
            "type": "message",
            "role": "assistant",
            "model": SYNTHETIC,
            "content": [{"type": "text", "text": " "}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": encode_usage(None),
        }
        return {
            **self.builder.chain_line("assistant", id, parent, time, {"message": message}, {}),
            PASSTHROUGH: {PART: True},
        }

    def _build_rewind(self) -> Fields:
        # The client writes this pin when the user rewinds to before the first prompt. Without it, a second root looks
        # like a broken history.
        return self.builder.metadata_line("last-prompt", leafUuid=NIL_UUID, explicit=True)

    # Metadata lines

    def encode_as_metadata(self, entry: CanonicalEntry, parent: str | None, plural: str = "") -> Encoded:
        """Encode an entry that the client has no line type for. `plural` names its kind, where its type does not."""
        stored = {"type": entry.kind, **without(entry.fields, "type")}
        target = string_in(entry.fields, "targetId")
        line = self.build_metadata_entry(entry, parent, stored)
        if target is not None and (known := self.state.main_line(target)) != target:
            stored["targetId"] = known
            line[PASSTHROUGH] = {"fields": {"targetId": target}}
        return self.place_metadata(line, parent, [LossNote("aside", plural or f"{entry.kind} entries", _NO_LINE_TYPE)])

    def build_metadata_entry(self, entry: CanonicalEntry, parent: str | None, stored: Fields) -> Fields:
        id = self.builder.metadata_entry_id(entry)
        line = self.builder.entry_line(stored, self.builder.time(entry), id=id, parent=parent)
        if self.metadata_before:
            line[AFTER] = self.metadata_before
        self.state.add_metadata(entry, id, parent)
        return line

    def place_metadata(self, line: Fields, parent: str | None, notes: Sequence[LossNote]) -> Encoded:
        return Encoded(AfterMetadata(parent or "", line["id"]), [render_json(line)], notes)
