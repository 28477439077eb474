"""Pi's sessions, versions 1 to 3, and the shape that the native form and oh-my-pi share with them.

Pi takes the last line of the file for the leaf, whatever its type, and lets the model of the latest assistant message
outrank an earlier model change. Here, a line in a side branch is the leaf only if the session stands there (`sides`).

Told in canonical form, old versions are current ones, and a model change names provider and id in two fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.core.context import Rules
from sessiontree.core.entries import Compaction, Entry, Header, SessionInfo, decode_entry, parse_entry
from sessiontree.core.jsonio import convert_fields, parse_json, render_json
from sessiontree.dialects.canonical import CanonicalEntry, Destination, SessionMeta
from sessiontree.dialects.contract import Columns, Envelope, IndexedLines, ReadOptions, SessionFile
from sessiontree.dialects.defaults import DialectBase, decode_records, iter_resolved, native_entry
from sessiontree.dialects.detect import head_records
from sessiontree.dialects.pi import locations
from sessiontree.dialects.pi.content import PiScribe, with_pair
from sessiontree.dialects.pi.encoder import ShapeEncoder
from sessiontree.dialects.side_branches import find_session_leaf


class _Wire(Struct, gc=False, rename={"parent": "parentId"}):
    type: str = ""
    id: str = ""
    parent: str | None = None


_MEANT_FOR = "sessiontreeFor"
_decode_lines = msgspec.json.Decoder(_Wire).decode_lines


class PiShape(DialectBase):
    """What the files of Pi, of oh-my-pi and native ones have in common: the shape of header and entries."""

    version = 3
    has_header = True
    is_writable = True
    one_line_per_entry = True

    def recognize(self, head: bytes) -> int:
        records = head_records(head)
        if any(map(self.is_header, records)):
            return 50
        return 10 if any(map(self.is_record, records)) else 0

    def decode_block(self, data: memoryview) -> Columns | None:
        wires = decode_records(_decode_lines, data)
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
        return convert_fields(Header, fields)

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

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None:
        return find_session_leaf(lines, self.iter_moves(lines))

    def iter_moves(self, lines: IndexedLines) -> Iterator[tuple[int, int | None]]:
        """The entries that move the leaf unless they are in a side branch, the last one first, and where to."""
        for node in range(len(lines.types) - 1, -1, -1):
            yield node, node

    def find_title(self, lines: IndexedLines) -> str | None:
        """The last name in file order, whatever the branch."""
        for node in range(len(lines.types) - 1, -1, -1):
            if lines.types[node] == "session_info":
                (entry,) = lines.entries([node])
                name = entry.name if isinstance(entry, SessionInfo) else None
                return " ".join((name or "").split()) or super().find_title(lines)
        return super().find_title(lines)

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        for node, fields in iter_resolved(lines, nodes):
            kind, line = self.to_canonical(lines.types[node], _as_version_3(lines, node, fields))
            yield native_entry(kind, lines.tree.ids[node], line)

    def to_canonical(self, kind: str, line: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The type and the decoded line in the words that all dialects share."""
        return kind, dict(with_pair(line)) if kind == "model_change" else line

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> ShapeEncoder:
        return ShapeEncoder(self, meta, lines)

    def render_header(self, header: Header) -> bytes:
        return render_json(self.header_fields(header))

    def header_fields(self, header: Header) -> dict[str, Any]:
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
        return fields

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, fields: Mapping[str, Any]) -> bytes:
        return render_json({"type": kind, "id": id, "parentId": parent, "timestamp": timestamp, **fields})


class Pi(PiShape):
    name = "pi"
    path_markers = ("/.pi/agent/sessions/",)
    rules = Rules(resets=False, explicit_model_wins=False, default_thinking=None)

    def recognize(self, head: bytes) -> int:
        header = next(filter(self.is_header, head_records(head)), None)
        if header is not None and header.get(_MEANT_FOR) == self.name:
            return 90
        return super().recognize(head)

    def header_fields(self, header: Header) -> dict[str, Any]:
        """What we write for Pi may hold entries that only other programs write, so the header says whom it is for."""
        return {**super().header_fields(header), _MEANT_FOR: self.name}

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> ShapeEncoder:
        return PiScribe(self, meta, lines)

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        return locations.find_destination(meta, environment)

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return locations.session_roots(environment)

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return locations.classify_file(relative)

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, fields: Mapping[str, Any]) -> bytes:
        if kind not in ("custom", "custom_message"):
            return super().render_entry(kind, id, parent, timestamp, fields)
        # Pi writes the envelope of these two last.
        return render_json({"type": kind, **fields, "id": id, "parentId": parent, "timestamp": timestamp})


def _as_version_3(lines: IndexedLines, node: int, line: dict[str, Any]) -> dict[str, Any]:
    """A decoded line in the words of the current version: bounds by id, and the role's new name."""
    message = line.get("message")
    if isinstance(message, dict) and message.get("role") == "hookMessage":
        line = {**line, "message": {**message, "role": "custom"}}
    if lines.types[node] == "compaction" and lines.header is not None and lines.header.version < 2:
        line = {name: value for name, value in line.items() if name != "firstKeptEntryIndex"}
        (entry,) = lines.entries([node])
        if isinstance(entry, Compaction) and entry.first_kept_entry_id is not None:
            line["firstKeptEntryId"] = entry.first_kept_entry_id
    return line


PI = Pi()
