"""What every written line goes through: ids, times, places, passthrough data, lines beside the tree, repeated lines.

A sheet gathers the lines of one item after the other; which item goes where is decided in `encoder`.
"""

from __future__ import annotations

import re
from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.neovate.content import Call
from sessiontree.dialects.neovate.drafts import draft, role_of
from sessiontree.dialects.neovate.kept_messages import Kept, Place
from sessiontree.dialects.neovate.metadata_lines import MARKS, Behind
from sessiontree.dialects.neovate.places import derived_uuid, session_id
from sessiontree.dialects.neovate.rendering import line_time, render_line
from sessiontree.dialects.neovate.rewrite import last_message
from sessiontree.dialects.neovate.riding import Draft
from sessiontree.dialects.passthrough import PASSTHROUGH

_uuid = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\Z")

_UUID = 36
"""How long a uuid is; most ids are shorter."""

_BESIDE = "Neovate has no place for them; they stand on lines that it passes over"


class LineBuilder:
    """The lines of one session, as they are written."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        self._meta = meta
        self._lines = lines
        known = lines.header.id if lines is not None and lines.header is not None else ""
        self._session_id = known or session_id(meta.id)
        self._kept = Kept(lines)
        self._places: dict[str, Place] = {}
        self._taken: set[str] = set()
        self._last = None if lines is None else last_message(lines)
        self._last_root_aside = ""
        self._is_copied = meta.forked_from is not None
        """Whether what is written still comes from the session this one was forked from."""
        self._time = meta.timestamp
        self._out: list[bytes] = []
        self._notes: list[LossNote] = []

    def _append(self, entry: CanonicalEntry, parent: str | None) -> str | None:
        """The lines of an item that is no result of an open call; the id that what follows it has to name."""
        time = self._time_of(entry)
        uuid = self._new_uuid(entry)
        marks = self._after(parent)
        is_compaction = entry.kind == "compaction"
        if is_compaction:
            marks["behind"] = line_of(parent)
        elif not parent and self._last is not None:
            marks["root"] = True
        made = draft(entry, uuid, time, marks, is_root=is_compaction or not parent)
        if made is None:
            self._taken.discard(uuid)
            return self._beside(entry, parent)
        self._notes += made.notes
        self._place(entry, Place(uuid))
        before = None if is_compaction else parent
        for line_uuid, fields in self._lines_of(made, entry, uuid, time):
            self._emit(line_uuid, before, fields, follows=parent)
            before = line_uuid
        if is_compaction:
            return self._repeat_kept(entry, uuid, parent, time)
        if made.calls:
            self._called(uuid, made.calls)
        return before

    def _called(self, uuid: str, calls: dict[str, Call]) -> None:
        """An answer with calls was written."""

    def _repeat_kept(self, entry: CanonicalEntry, summary: str, parent: str | None, time: str) -> str:
        """Write what a compaction keeps once more, behind its summary; the uuid of the last line."""
        bound = entry.fields.get("firstKeptEntryId")
        first = self._places.get(bound) if isinstance(bound, str) else None
        if first is None and self._lines is not None and bound in self._lines.tree.node_of:
            first = Place(bound)
        if first is None:
            return summary
        kept, is_whole = self._kept.find(first, parent)
        if not is_whole:
            self._notes.append(LossNote("dropped", "messages kept by compactions", "they are too large to be repeated"))
        if kept:
            why = "Neovate's compaction starts anew, so what it keeps stands once more behind its summary"
            self._notes.append(LossNote("changed", "compactions that keep messages", why))
        before = summary
        for fields in kept:
            uuid = self._fresh_uuid(f"copy/{summary}/{fields.get('uuid')}")
            self._emit(uuid, before, self._copied(fields, uuid, time, {"copy": True}))
            before = uuid
        return before

    def _copied(self, fields: dict[str, Any], uuid: str, time: str, marks: dict[str, Any]) -> dict[str, Any]:
        """A line that repeats another, ready but for its parent."""
        body = {name: value for name, value in fields.items() if name not in (PASSTHROUGH, "forkedFrom")}
        return {**body, "uuid": uuid, "timestamp": time, "sessionId": self._session_id, PASSTHROUGH: {MARKS: marks}}

    def _lines_of(self, made: Draft, entry: CanonicalEntry, uuid: str, time: str) -> list[tuple[str, dict[str, Any]]]:
        """The lines of a draft, with their uuids, ready but for their parents."""
        forked = self._fork_marks(entry, uuid)
        if len(made.bodies) == 1 and not forked:
            return [(uuid, self._with_marks(made.bodies[0], uuid, time, made.passthroughs[0]))]
        found = []
        for at, (body, passthrough) in enumerate(zip(made.bodies, made.passthroughs, strict=True)):
            line_uuid = uuid
            if at:
                named = entry.aliases[at - 1] if at <= len(entry.aliases) else ""
                is_free = _uuid.match(named) and not self._is_taken(named)
                line_uuid = self._claim(named) if is_free else self._fresh_uuid(f"{uuid}/{at}")
            marked = {**passthrough, MARKS: {**passthrough.get(MARKS, {}), **forked}} if forked else passthrough
            found.append((line_uuid, self._with_marks(body, line_uuid, time, marked)))
        return found

    def _with_marks(self, body: dict[str, Any], uuid: str, time: str, passthrough: dict[str, Any]) -> dict[str, Any]:
        """A line but for its parent, its keys in Neovate's order."""
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
        """Put a message line out, now that its parent is known.

        A compaction has none, but follows something all the same.
        """
        before = fields["parentUuid"] = line_of(parent)
        raw = render_line(fields)
        self._out.append(raw)
        self._kept.remember(uuid, before or line_of(follows), raw)
        self._last, self._last_root_aside = uuid, ""

    # Beside the tree

    def _beside(self, entry: CanonicalEntry, parent: str | None) -> str | None:
        """The line of an item that Neovate has no place for; its id is that of its parent."""
        fields, id = self._beside_fields(entry, parent, self._time_of(entry))
        self._emit_aside({**fields, **self._after(parent)})
        if not parent and self._lines is not None:  # the file has no id for this place, so the encoder remembers it
            self._last_root_aside = id
            return None
        return Behind(line_of(parent) or "", id)

    def _beside_fields(self, item: CanonicalEntry, parent: str | None, time: str) -> tuple[dict[str, Any], str]:
        id = item.id if item.id and not self._is_taken(item.id) else self._fresh_uuid(f"aside/{item.id or time}")
        self._taken.add(id)
        entry = {name: value for name, value in item.fields.items() if name != PASSTHROUGH}
        found = item.fields.get(PASSTHROUGH)
        passthrough = dict(found) if isinstance(found, dict) else {}
        passthrough |= {"id": item.id} if item.id and item.id != id else {}
        place = self._places.get(entry["targetId"]) if isinstance(entry.get("targetId"), str) else None
        if place is not None and place.uuid is not None and place.uuid != entry["targetId"]:
            passthrough["fields"] = {"targetId": entry["targetId"]}
            entry["targetId"] = place.uuid
        self._notes.append(LossNote("aside", f"entries of type {_kind(item)}", _BESIDE))
        self._place(item, Place(line_of(parent), is_metadata=True))
        fields = {
            "type": PASSTHROUGH,
            "sessionId": self._session_id,
            "timestamp": time,
            "id": id,
            "parent": line_of(parent),
            "entry": {**entry, "type": item.kind},
        }
        return fields | ({PASSTHROUGH: passthrough} if passthrough else {}), id

    def _emit_aside(self, fields: dict[str, Any]) -> None:
        last = {} if self._last is None else {"uuid": self._last}
        self._out.append(render_line({**fields, **last}))
        entry = fields["entry"]
        name = entry.get("name") if entry["type"] == "session_info" else None
        if isinstance(name, str) and name:
            self._out.append(self._title_line(name))

    def _title_line(self, title: str) -> bytes:
        last = {} if self._last is None else {"uuid": self._last}
        return render_line({"type": "custom-title", "customTitle": title, "sessionId": self._session_id, **last})

    # Ids, times, places

    def _after(self, parent: str | None) -> dict[str, Any]:
        """The aside that an item stands behind, if that is what its parent means."""
        after = parent.aside if isinstance(parent, Behind) else "" if parent else self._last_root_aside
        return {"after": after} if after else {}

    def _new_uuid(self, entry: CanonicalEntry) -> str:
        """The uuid of an item's first line: its own id, or one that follows from it."""
        if len(entry.id) == _UUID and _uuid.match(entry.id) and not self._is_taken(entry.id):
            return self._claim(entry.id)
        return self._fresh_uuid(entry.id or f"new/{self._last}/{entry.timestamp}")

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

    def _place(self, entry: CanonicalEntry, place: Place) -> None:
        if entry.id:
            self._places[entry.id] = place
        for id in entry.aliases:
            if id:
                self._places[id] = place

    def _time_of(self, entry: CanonicalEntry) -> str:
        self._time = line_time(entry, self._time)
        return self._time

    def _fork_marks(self, entry: CanonicalEntry, uuid: str) -> dict[str, Any]:
        """The mark of a message that was copied from the session this one was forked from."""
        origin = self._meta.forked_from
        if origin is None or not self._is_copied:
            return {}
        if origin.entry in (entry.id, *entry.aliases):
            self._is_copied = False
        return {"forked": entry.id or uuid}

    def _written(self, id: str | None) -> Encoded:
        return Encoded(id, self._out, self._notes)


def line_of(parent: str | None) -> str | None:
    """The line that a parent is; None for what stands before the first line, be it behind an aside."""
    return str(parent) if parent else None


def _kind(entry: CanonicalEntry) -> str:
    return f"{entry.kind} ({role_of(entry) or 'no role'})" if entry.kind == "message" else entry.kind
