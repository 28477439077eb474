"""Build the lines of one entry after the other: ids, timestamps, passthrough data, metadata lines, repeated lines.

`encoder` decides the order of the lines.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.neovate.content import (
    Call,
    EncodedBodies,
    calls_of,
    decode_bodies,
    decode_result,
    encode_entry,
    encode_result,
    encode_stray_result,
    is_output,
    message_entry,
)
from sessiontree.dialects.neovate.kept_messages import EntryLine, KeptMessages
from sessiontree.dialects.neovate.locations import derived_uuid, session_id
from sessiontree.dialects.neovate.metadata_lines import MARKS, Position
from sessiontree.dialects.neovate.path import find_leaf
from sessiontree.dialects.neovate.records import MESSAGE, milliseconds
from sessiontree.dialects.passthrough import (
    PASSTHROUGH,
    apply_delta,
    build_passthrough,
    carried_data,
    with_carried_data,
)

_uuid = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\Z")

_UUID = 36
"""Length of a uuid; most ids are shorter."""

_encode = msgspec.json.Encoder().encode
_time = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)\Z")

_IGNORED = "Neovate cannot store them; they are kept on lines that it ignores"


class LineBuilder:
    """Builds the lines of one session."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        self._meta = meta
        self._lines = lines
        known = lines.header.id if lines is not None and lines.header is not None else ""
        self._session_id = known or session_id(meta.id)
        self._kept = KeptMessages(lines)
        self._entry_lines: dict[str, EntryLine] = {}
        self._taken: set[str] = set()
        current = None if lines is None else find_leaf(lines)
        self._current = None if lines is None or current is None else lines.tree.ids[current]
        """The uuid of the current message: the target of a move, else the last message."""
        self._has_messages = lines is not None and MESSAGE in lines.types
        self._last_root_metadata = ""
        self._is_copied = meta.forked_from is not None
        """Whether entries still come from the session this one was forked from."""
        self._time = meta.timestamp
        self._out: list[bytes] = []
        self._notes: list[LossNote] = []

    def _append(self, entry: CanonicalEntry, parent: str | None) -> str | None:
        """Write the lines of an entry that does not answer an open call; returns the parent id for the next entry."""
        time = self._time_of(entry)
        uuid = self._new_uuid(entry)
        marks = self._after_mark(parent)
        is_compaction = entry.kind in ("compaction", "reset_boundary")
        if is_compaction:
            marks["behind"] = uuid_of(parent)
        elif not parent and self._has_messages:
            marks["root"] = True
        made = draft(entry, uuid, time, marks, is_root=is_compaction or not parent)
        if made is None:
            self._taken.discard(uuid)
            return self._append_metadata(entry, parent)
        self._notes += made.notes
        self._track_entry(entry, EntryLine(uuid))
        before = None if is_compaction else parent
        for line_uuid, fields in self._lines_of_draft(made, entry, uuid, time):
            self._emit(line_uuid, before, fields, follows=parent)
            before = line_uuid
        if is_compaction:
            return self._repeat_kept(entry, uuid, parent, time)
        if made.calls:
            self._track_calls(uuid, made.calls)
        return before

    def _track_calls(self, uuid: str, calls: dict[str, Call]) -> None:
        """Called after a response with tool calls was written."""

    def _repeat_kept(self, entry: CanonicalEntry, summary: str, parent: str | None, time: str) -> str:
        """Write the messages that a compaction keeps again, after its summary; returns the uuid of the last line."""
        bound = entry.fields.get("firstKeptEntryId")
        first = self._entry_lines.get(bound) if isinstance(bound, str) else None
        if first is None and self._lines is not None and bound in self._lines.tree.node_of:
            first = EntryLine(bound)
        if first is None:
            return summary
        kept, is_whole = self._kept.find(first, parent)
        if not is_whole:
            self._notes.append(LossNote("dropped", "messages kept by compactions", "they are too large to be repeated"))
        if kept:
            why = "Neovate's compaction starts a new root, so they are repeated after its summary"
            self._notes.append(LossNote("changed", "compactions that keep messages", why))
        before = summary
        for fields in kept:
            uuid = self._fresh_uuid(f"copy/{summary}/{fields.get('uuid')}")
            self._emit(uuid, before, self._copy_line(fields, uuid, time, {"copy": True}))
            before = uuid
        return before

    def _copy_line(self, fields: dict[str, Any], uuid: str, time: str, marks: dict[str, Any]) -> dict[str, Any]:
        """Build a line that repeats another, complete except for its parent."""
        body = {name: value for name, value in fields.items() if name not in (PASSTHROUGH, "forkedFrom")}
        return {**body, "uuid": uuid, "timestamp": time, "sessionId": self._session_id, PASSTHROUGH: {MARKS: marks}}

    def _lines_of_draft(
        self, made: Draft, entry: CanonicalEntry, uuid: str, time: str
    ) -> list[tuple[str, dict[str, Any]]]:
        """Build the lines of a draft with their uuids, complete except for their parents."""
        forked = self._fork_marks(entry, uuid)
        if len(made.bodies) == 1 and not forked:
            return [(uuid, self._message_fields(made.bodies[0], uuid, time, made.passthroughs[0]))]
        found = []
        for at, (body, passthrough) in enumerate(zip(made.bodies, made.passthroughs, strict=True)):
            line_uuid = uuid
            if at:
                named = entry.aliases[at - 1] if at <= len(entry.aliases) else ""
                is_free = _uuid.match(named) and not self._is_taken(named)
                line_uuid = self._claim(named) if is_free else self._fresh_uuid(f"{uuid}/{at}")
            marked = {**passthrough, MARKS: {**passthrough.get(MARKS, {}), **forked}} if forked else passthrough
            found.append((line_uuid, self._message_fields(body, line_uuid, time, marked)))
        return found

    def _message_fields(
        self, body: dict[str, Any], uuid: str, time: str, passthrough: dict[str, Any]
    ) -> dict[str, Any]:
        """Build a message line without its parent, with its keys in Neovate's order."""
        origin = self._meta.forked_from
        marks = passthrough.get(MARKS) or {}
        if origin is not None and marks.get("forked"):
            if "forkedFrom" in body:
                marks = {name: value for name, value in marks.items() if name != "forked"}
            else:
                body = {**body, "forkedFrom": {"sessionId": origin.session, "messageUuid": marks["forked"]}}
            passthrough = {**passthrough, MARKS: marks}
        fields = {
            "parentUuid": None,
            "uuid": uuid,
            **body,
            "type": "message",
            "timestamp": time,
            "sessionId": self._session_id,
        }
        if not marks and MARKS in passthrough:
            passthrough = {name: value for name, value in passthrough.items() if name != MARKS}
        if passthrough:
            fields[PASSTHROUGH] = passthrough
        return fields

    def _emit(self, uuid: str, parent: str | None, fields: dict[str, Any], follows: str | None = None) -> None:
        """Write a message line. A compaction has no parent; `follows` is the line it comes after."""
        before = fields["parentUuid"] = uuid_of(parent)
        raw = render_line(fields)
        self._out.append(raw)
        self._kept.add(uuid, before or uuid_of(follows), raw)
        self._current, self._last_root_metadata = uuid, ""
        self._has_messages = True

    # Metadata lines

    def _append_metadata(self, entry: CanonicalEntry, parent: str | None) -> str | None:
        """Write an entry that Neovate cannot store; its id is that of its parent."""
        fields, id = self._metadata_fields(entry, parent, self._time_of(entry))
        self._emit_metadata({**fields, **self._after_mark(parent)})
        if not parent and self._lines is not None:  # the file has no id for this position
            self._last_root_metadata = id
            return None
        return Position(uuid_of(parent) or "", id)

    def _metadata_fields(self, entry: CanonicalEntry, parent: str | None, time: str) -> tuple[dict[str, Any], str]:
        id = entry.id if entry.id and not self._is_taken(entry.id) else self._fresh_uuid(f"aside/{entry.id or time}")
        self._taken.add(id)
        stored = {name: value for name, value in entry.fields.items() if name != PASSTHROUGH}
        target = stored.get("targetId")
        line = self._entry_lines.get(target) if isinstance(target, str) else None
        if line is not None and line.uuid is not None:
            stored["targetId"] = line.uuid
        self._notes.append(LossNote("aside", f"entries of type {_kind(entry)}", _IGNORED))
        self._track_entry(entry, EntryLine(uuid_of(parent), is_metadata=True))
        fields = {
            "type": PASSTHROUGH,
            "sessionId": self._session_id,
            "timestamp": time,
            "id": id,
            "parent": uuid_of(parent),
            "entry": {**stored, "type": entry.kind},
        }
        passthrough = build_passthrough(entry, CanonicalEntry(entry.kind, stored, id))
        return fields | ({PASSTHROUGH: passthrough} if passthrough else {}), id

    def _emit_metadata(self, fields: dict[str, Any]) -> None:
        last = {} if self._current is None else {"uuid": self._current}
        self._out.append(render_line({**fields, **last}))
        entry = fields["entry"]
        name = entry.get("name") if entry["type"] == "session_info" else None
        if isinstance(name, str) and name:
            self._out.append(self._title_line(name))

    def _title_line(self, title: str) -> bytes:
        last = {} if self._current is None else {"uuid": self._current}
        return render_line({"type": "custom-title", "customTitle": title, "sessionId": self._session_id, **last})

    # Ids and timestamps

    def _after_mark(self, parent: str | None) -> dict[str, Any]:
        """The mark with the metadata line that an entry follows, if its parent id names one."""
        after = parent.metadata_id if isinstance(parent, Position) else "" if parent else self._last_root_metadata
        return {"after": after} if after else {}

    def _new_uuid(self, entry: CanonicalEntry) -> str:
        """The uuid of an entry's first line: its own id, or one derived from it."""
        if len(entry.id) == _UUID and _uuid.match(entry.id) and not self._is_taken(entry.id):
            return self._claim(entry.id)
        return self._fresh_uuid(entry.id or f"new/{self._current}/{entry.timestamp}")

    def _fresh_uuid(self, name: str) -> str:
        name = f"{self._session_id}/{name}"
        found, number = derived_uuid(name), 1
        while self._is_taken(found):
            number += 1
            found = derived_uuid(f"{name}#{number}")
        return self._claim(found)

    def _claim(self, uuid: str) -> str:
        self._taken.add(uuid)
        return uuid

    def _is_taken(self, id: str) -> bool:
        return id in self._taken or (self._lines is not None and id in self._lines.tree.node_of)

    def _track_entry(self, entry: CanonicalEntry, place: EntryLine) -> None:
        if entry.id:
            self._entry_lines[entry.id] = place
        for id in entry.aliases:
            if id:
                self._entry_lines[id] = place

    def _time_of(self, entry: CanonicalEntry) -> str:
        self._time = line_time(entry, self._time)
        return self._time

    def _fork_marks(self, entry: CanonicalEntry, uuid: str) -> dict[str, Any]:
        """The mark of a message copied from the session this one was forked from."""
        origin = self._meta.forked_from
        if origin is None or not self._is_copied:
            return {}
        if origin.entry in (entry.id, *entry.aliases):
            self._is_copied = False
        return {"forked": entry.id or uuid}

    def _encoded(self, id: str | None) -> Encoded:
        return Encoded(id, self._out, self._notes)


def uuid_of(parent: str | None) -> str | None:
    """The message line of a parent id; None before the first line, even after a metadata line."""
    return str(parent) if parent else None


def _kind(entry: CanonicalEntry) -> str:
    return f"{entry.kind} ({role_of(entry) or 'no role'})" if entry.kind == "message" else entry.kind


def render_line(fields: dict[str, Any]) -> bytes:
    """Render a line without LF. NaN and infinity become null: one such line makes Neovate reject the file."""
    try:
        return _encode(fields)
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError):
        return render_json(_without_infinities(fields))


def _without_infinities(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_infinities(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_infinities(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def line_time(entry: CanonicalEntry, default: str) -> str:
    """The timestamp for an entry's line: its own, else its message's, else the one before."""
    if _time.match(entry.timestamp) and milliseconds(entry.timestamp) is not None:
        return entry.timestamp
    message = entry.fields.get("message")
    time = message.get("timestamp") if isinstance(message, dict) else None
    found = milliseconds(entry.timestamp)
    return _iso(found if found is not None else time) or default or "1970-01-01T00:00:00.000Z"


def _iso(ms: Any) -> str | None:
    if not isinstance(ms, int | float) or isinstance(ms, bool):
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


# Drafts


class Draft(Struct, frozen=True, gc=False):
    """The bodies of an entry's lines, each with its passthrough data, before their position in the file is known."""

    bodies: list[dict[str, Any]]
    passthroughs: list[dict[str, Any]]
    notes: tuple[LossNote, ...] = ()
    calls: dict[str, Call] = {}
    """The tool calls of a response, by id."""


def has_tree_line(entry: CanonicalEntry) -> bool:
    """Whether an entry becomes a line of the tree, not a metadata line."""
    return is_tool_result(entry) or encode_entry(with_carried_data(entry, MARKS, None)) is not None


def draft(entry: CanonicalEntry, uuid: str, timestamp: str, marks: dict[str, Any], *, is_root: bool) -> Draft | None:
    """Draft any entry except a result that answers a call; None if the entry needs a metadata line."""
    bare = with_carried_data(entry, MARKS, None)
    encoded = encode_stray_result(bare.fields["message"]) if is_tool_result(bare) else encode_entry(bare)
    if encoded is None:
        return None
    bodies = _with_client_data(encoded.bodies, client_data(entry))
    decoded = decode_bodies(bodies, uuid, timestamp, is_root=is_root)
    if len(bodies) == 1 and is_output(bodies[0]):
        marks = {**marks, "alone": True}  # otherwise it would be read as the output of a command before it
    further = [{MARKS: {"part": True}} for _ in bodies[1:]]
    passthrough = _passthrough(bare, decoded, encoded, marks)
    return Draft(bodies, [passthrough, *further], encoded.notes, calls_of(bodies[0]))


def draft_result(entry: CanonicalEntry, call: Call, id: str, timestamp: str) -> Draft:
    """Draft a result as one part of a line, which has the passthrough data of all its results."""
    bare = with_carried_data(entry, MARKS, None)
    encoded = encode_result(bare.fields["message"], call)
    (part,) = _with_client_data(encoded.bodies, client_data(entry))
    decoded = message_entry(decode_result(part), id, timestamp)
    return Draft([part], [_passthrough(bare, decoded, encoded, {})], encoded.notes)


def _passthrough(
    entry: CanonicalEntry, decoded: CanonicalEntry, encoded: EncodedBodies, marks: dict[str, Any]
) -> dict[str, Any]:
    found = build_passthrough(
        entry, decoded, left_out=encoded.left_out, order=encoded.order, is_reworded=encoded.is_reworded
    )
    if entry.timestamp and entry.timestamp != decoded.timestamp:
        marks = {**marks, "timestamp": entry.timestamp}
    return {**found, MARKS: marks} if marks else found


def client_data(entry: CanonicalEntry) -> dict[str, Any]:
    """The passthrough data of an entry from the Neovate lines it was decoded from."""
    found = carried_data(entry, MARKS)
    return found if isinstance(found, dict) else {}


def _with_client_data(bodies: list[dict[str, Any]], data: dict[str, Any]) -> list[dict[str, Any]]:
    """Add the fields beyond the canonical form that the lines had when they came from Neovate."""
    whole, deltas = data.get("bodies"), data.get("lines")
    if isinstance(whole, list) and whole and all(isinstance(body, dict) for body in whole):
        return whole
    if isinstance(deltas, list) and len(deltas) == len(bodies):
        return [apply_delta(body, delta) for body, delta in zip(bodies, deltas, strict=True)]
    return bodies


def result_line_fields(entry: CanonicalEntry) -> dict[str, Any]:
    """The fields of a line of results beyond its results; carried by the first result."""
    found = client_data(entry).get("around")
    return found if isinstance(found, dict) else {}


def role_of(entry: CanonicalEntry) -> str:
    """The role of an entry's message; empty without one."""
    message = entry.fields.get("message") if entry.kind == "message" else None
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""


def is_tool_result(entry: CanonicalEntry) -> bool:
    return role_of(entry) == "toolResult"
