"""Pi's sessions, versions 1 to 3, and the line format that native files and those of oh-my-pi share with them.

Pi uses the last line of the file as the leaf, whatever its type, and the model of the latest assistant message
overrides an earlier model change. Unlike in Pi, a line in a side branch is the leaf only if that branch is the current
one (`side_branches`).

Lines of old versions decode to the current version, and a model change to provider and id in two fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.core.context import Rules
from sessiontree.core.entries import Compaction, Entry, Header, decode_entry, parse_entry
from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import convert_fields, parse_object, render_json
from sessiontree.dialects.canonical import CanonicalEntry, Destination, SessionMeta
from sessiontree.dialects.client import Client
from sessiontree.dialects.contract import (
    CANONICAL_MARKS,
    PREVIOUS,
    Columns,
    EntryKind,
    Envelope,
    IndexedLines,
    ReadOptions,
    SessionFile,
    Traits,
)
from sessiontree.dialects.defaults import (
    DialectBase,
    decode_records,
    head_records,
    iter_resolved,
    native_entry,
)
from sessiontree.dialects.passthrough import PART, PASSTHROUGH, passthrough_of
from sessiontree.dialects.pi import locations
from sessiontree.dialects.pi.content import PiEncoder, with_model_pair
from sessiontree.dialects.pi.encoder import PiFamilyEncoder, complete_fields
from sessiontree.dialects.side_branches import find_session_leaf


class _Record(Struct, gc=False, rename={"parent": "parentId"}):
    type: str = ""
    id: str = ""
    parent: str | None = None


_CLIENT_FIELD = "sessiontreeFor"
_decode_lines = msgspec.json.Decoder(_Record).decode_lines


# Quotes inside of strings are escaped, so these match only keys and values of the line itself.
_role = re.compile(rb'"role": ?"(\w+)"')
_call = re.compile(rb'"type": ?"toolCall"')
_text_block = re.compile(rb'"type": ?"text"')
_text = re.compile(rb'"type": ?"text", ?"text": ?"[^"\\s]')
_KINDS_OF_ROLES: dict[bytes, EntryKind] = {b"user": "prompt", b"assistant": "answer", b"toolResult": "result"}


class PiFamily(DialectBase):
    """The line format shared by Pi, oh-my-pi and native files: header and entries."""

    traits = Traits(
        version=3,
        has_header=True,
        is_writable=True,
        one_line_per_entry=True,
        follows_tree=True,
        may_refer_to_blobs=True,
        marks=CANONICAL_MARKS,
    )

    def recognize(self, head: bytes) -> int:
        records = head_records(head)
        if any(map(self.is_header, records)):
            return 50
        return 10 if any(map(self.is_record, records)) else 0

    def decode_block(self, data: memoryview, first: int) -> Columns | None:
        records = decode_records(_decode_lines, data)
        if records is None:
            return None
        types = [intern(record.type) for record in records]
        ids = [record.id for record in records]
        parents = [record.parent for record in records]
        if "" in ids or "" in types or "" in parents or "session" in types:
            return None
        return Columns(types, ids, parents)

    def is_record(self, fields: dict[str, Any]) -> bool:
        # Blocks inside an entry have types and ids too, but no timestamp.
        return isinstance(fields.get("type"), str) and isinstance(fields.get("timestamp"), str | int | float)

    def is_header(self, fields: dict[str, Any]) -> bool:
        return fields.get("type") == "session" and isinstance(fields.get("id"), str)

    def decode_line(self, fields: dict[str, Any], node: int) -> Envelope | Header | None:
        if self.is_header(fields):
            return _decode_header(fields)
        kind, id, parent = fields.get("type"), fields.get("id"), fields.get("parentId")
        if not isinstance(kind, str) or not kind:
            return None
        if not isinstance(parent, str | None):
            parent = ""
        if isinstance(id, str) and id:
            return Envelope(kind, id, parent)
        # Version 1 has neither ids nor parents: each entry follows the one before it.
        return Envelope(kind, "", parent if "parentId" in fields else PREVIOUS) if self.is_record(fields) else None

    def message_kind(self, raw: bytes) -> EntryKind:
        role = _role.search(raw)
        kind = _KINDS_OF_ROLES.get(role[1]) if role is not None else None
        if kind is None:
            return super().message_kind(raw)
        if kind != "answer" or _call.search(raw) is None or _text.search(raw) is not None:
            return kind
        return "calls" if _text_block.search(raw) is None else super().message_kind(raw)

    def parse(self, raw: bytes) -> Entry:
        entry = decode_entry(raw)
        return parse_entry(parse_object(raw)) if entry is None else entry

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None:
        return find_session_leaf(lines, self.iter_moves(lines))

    def iter_moves(self, lines: IndexedLines) -> Iterator[tuple[int, int | None]]:
        """The entries that move the leaf unless they are in a side branch, last one first, each with its target."""
        for node in range(len(lines.types) - 1, -1, -1):
            yield node, node

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        held: CanonicalEntry | None = None  # until it is known which lines belong to it
        for node, fields in iter_resolved(lines, nodes):
            id = lines.tree.ids[node]
            if held is not None:
                if PASSTHROUGH in fields and PART in passthrough_of(fields):
                    held = msgspec.structs.replace(held, aliases=(*held.aliases, id))
                    continue
                yield held
            kind, line = self.to_canonical(_as_version_3(lines, node, fields))
            held = native_entry(kind, id, line)
        if held is not None:
            yield held

    def to_canonical(self, line: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The type and the decoded line of an entry in canonical form."""
        kind = line.get("type")
        if not isinstance(kind, str):
            return "", line
        return kind, dict(with_model_pair(line)) if kind == "model_change" else line

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> PiFamilyEncoder:
        return PiFamilyEncoder(self, meta, lines)

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
        fields = complete_fields(kind, fields)
        return render_json({"type": kind, "id": id, "parentId": parent, "timestamp": timestamp, **fields})


class Pi(PiFamily):
    name = "pi"
    traits = msgspec.structs.replace(PiFamily.traits, path_markers=("/.pi/agent/sessions/",))
    rules = Rules(resets=False, explicit_model_wins=False, default_thinking=None)

    @property
    def client(self) -> Client:
        from sessiontree.dialects.pi.client import CLIENT

        return CLIENT

    def recognize(self, head: bytes) -> int:
        header = next(filter(self.is_header, head_records(head)), None)
        if header is not None and header.get(_CLIENT_FIELD) == self.name:
            return 90
        return super().recognize(head)

    def header_fields(self, header: Header) -> dict[str, Any]:
        # Files we write for Pi may hold entries that only other clients write, so the header names the client.
        return {**super().header_fields(header), _CLIENT_FIELD: self.name}

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> PiFamilyEncoder:
        return PiEncoder(self, meta, lines)

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


def _decode_header(fields: dict[str, Any]) -> Header:
    version = fields.get("version")
    if isinstance(version, str) and version.isdecimal():
        fields = {**fields, "version": int(version)}
    return convert_fields(Header, fields, {"timestamp": iso_time})


def _as_version_3(lines: IndexedLines, node: int, line: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a decoded line to the current version: compaction bounds by id, and the new name of a role."""
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
