"""Pi's sessions, versions 1 to 3, and the shape that the native form shares with them.

Pi takes the last line of the file for the leaf, whatever its type, and lets the model of the latest assistant message
outrank an earlier model change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from sys import intern
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.context import Rules
from sessiontree.dialects.base import Columns, DialectBase, Envelope, Lines, Reading, decode_wires
from sessiontree.entries import Entry, Header, SessionInfo, decode_entry, parse_entry
from sessiontree.values import parse_json, render_json, tolerant


class _Wire(Struct, gc=False, rename={"parent": "parentId"}):
    type: str = ""
    id: str = ""
    parent: str | None = None


_HEAD_LINES = 32
_decode_lines = msgspec.json.Decoder(_Wire).decode_lines


class PiShape(DialectBase):
    """What Pi's own files and native files have in common: the shape of header and entries."""

    name = "pi"
    version = 3
    has_header = True
    is_writable = True
    writes_plainly = True
    folders: tuple[str, ...] = ("/.pi/agent/sessions/",)
    rules = Rules(resets=False, explicit_model_wins=False, default_thinking=None)

    def recognise(self, head: bytes) -> int:
        records = list(iter_head_records(head))
        if any(map(self.is_header, records)):
            return 50
        return 10 if any(map(self.is_record, records)) else 0

    def decode_block(self, data: memoryview) -> Columns | None:
        wires = decode_wires(_decode_lines, data)
        if wires is None:
            return None
        types = [intern(wire.type) for wire in wires]
        ids = [wire.id for wire in wires]
        parents = [wire.parent for wire in wires]
        if "" in ids or "" in types or "" in parents or "session" in types:
            return None
        return Columns(types, ids, parents)

    def is_record(self, fields: dict[str, Any]) -> bool:
        # The time tells an entry from the blocks inside one, which have types and ids too.
        return isinstance(fields.get("type"), str) and isinstance(fields.get("timestamp"), str)

    def is_header(self, fields: dict[str, Any]) -> bool:
        return fields.get("type") == "session" and isinstance(fields.get("id"), str)

    def header(self, fields: dict[str, Any]) -> Header:
        version = fields.get("version")
        if isinstance(version, str) and version.isdecimal():
            fields = {**fields, "version": int(version)}
        return tolerant(Header, fields)

    def envelope(self, fields: dict[str, Any]) -> Envelope:
        kind, id, parent = fields.get("type"), fields.get("id"), fields.get("parentId")
        return Envelope(
            kind if isinstance(kind, str) else "",
            id if isinstance(id, str) else "",
            parent if parent is None or isinstance(parent, str) else "",
        )

    def parse(self, raw: bytes) -> Entry:
        entry = decode_entry(raw)
        if entry is not None:
            return entry
        try:
            fields = parse_json(raw)
        except ValueError:
            fields = None
        return parse_entry(fields if isinstance(fields, dict) else {})

    def find_leaf(self, lines: Lines, reading: Reading) -> int | None:
        return len(lines.types) - 1 if lines.types else None

    def find_title(self, lines: Lines) -> str | None:
        """The last name in file order, whatever the branch."""
        for node in range(len(lines.types) - 1, -1, -1):
            if lines.types[node] == "session_info":
                (entry,) = lines.entries([node])
                name = entry.name if isinstance(entry, SessionInfo) else None
                return " ".join((name or "").split()) or super().find_title(lines)
        return super().find_title(lines)

    def render_header(self, header: Header) -> bytes:
        fields: dict[str, Any] = {
            "type": "session",
            "version": header.version,
            "id": header.id,
            "timestamp": header.timestamp,
            "cwd": header.cwd,
        }
        if header.parent_session is not None:
            fields["parentSession"] = header.parent_session
        if header.forked_from is not None:
            fields["forkedFrom"] = header.forked_from
        return render_json(fields)

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, fields: Mapping[str, Any]) -> bytes:
        return render_json({"type": kind, "id": id, "parentId": parent, "timestamp": timestamp, **fields})


def iter_head_records(head: bytes) -> Iterator[dict[str, Any]]:
    """The objects among the first lines of a file, whatever stands between them."""
    for line in head.removeprefix(b"\xef\xbb\xbf").split(b"\n", _HEAD_LINES)[:_HEAD_LINES]:
        try:
            found = parse_json(line.strip(b"\x00 \t\r"))
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


PI = PiShape()
