"""Parrot and Macaw, two clients that tests invent. Macaw's sessions can be written, too; its header names it.

A header line, then one line for each message, in order:

    {"session": "s1", "cwd": "/work", "start": "2026-01-01T00:00:00.000Z"}
    {"id": "m1", "who": "user", "text": "hello", "time": "2026-01-01T00:00:01.000Z"}
    {"id": "m2", "who": "parrot", "text": "hel", "time": "2026-01-01T00:00:02.000Z"}
    {"id": "m2", "who": "parrot", "text": "hello", "time": "2026-01-01T00:00:02.000Z", "seen": 10, "said": 2}
    {"title": "Greetings"}

A line without an id has its position as its id. A line with the id of an earlier one replaces it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from sessiontree.core.entries import Entry, Header, MessageEntry, SessionInfo, Unknown
from sessiontree.core.jsonio import convert_fields, parse_object, render_json
from sessiontree.core.messages import Assistant, Text, Usage, User
from sessiontree.dialects.canonical import CanonicalEntry, Destination, SessionMeta
from sessiontree.dialects.contract import CERTAIN, Envelope, IndexedLines, Traits, position_id
from sessiontree.dialects.defaults import DialectBase, LinearEncoder, head_records


class Parrot(DialectBase):
    name = "parrot"
    traits = Traits(has_header=True, is_linear=True, repeated_id_updates=True)

    def recognize(self, head: bytes) -> int:
        headers = [record for record in head_records(head) if isinstance(self.decode_line(record, 0), Header)]
        return CERTAIN if any(header.get("by", "parrot") == self.name for header in headers) else 0

    def decode_line(self, fields: dict[str, Any], node: int) -> Envelope | Header | None:
        match fields:
            case {"session": str(id), "start": str(start)}:
                return Header(id, timestamp=start, cwd=str(fields.get("cwd", "")))
            case {"who": "user" | "parrot"}:
                id = fields.get("id")
                return Envelope("message", id if isinstance(id, str) and id else position_id(node))
            case {"title": _}:
                return Envelope("session_info", is_metadata=True)
            case _:
                return None

    def parse(self, raw: bytes) -> Entry:
        fields = parse_object(raw)
        match fields:
            case {"who": "user" | "parrot" as who}:
                content = (Text(str(fields.get("text", ""))),)
                usage = convert_fields(Usage, {"input": fields.get("seen"), "output": fields.get("said")})
                message = User(content=content) if who == "user" else Assistant(content=content, usage=usage)
                return MessageEntry(str(fields.get("id", "")), None, str(fields.get("time", "")), message)
            case {"title": title}:
                return SessionInfo(name=str(title))
            case _:
                return Unknown()

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return (os.path.join(environment.get("PARROT_HOME") or "/nowhere", self.name),)


class Macaw(Parrot):
    name = "macaw"
    traits = replace(Parrot.traits, is_writable=True)

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> MacawEncoder:
        return MacawEncoder(meta, lines)

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        (root,) = self.session_roots(environment)
        return Destination(os.path.join(root, f"{meta.id}.jsonl"), ("macaw", "resume", meta.id))


class MacawEncoder(LinearEncoder):
    metadata_types = frozenset({"session_info"})

    def encode_header(self, meta: SessionMeta) -> bytes:
        return render_json({"by": "macaw", "session": meta.id, "cwd": meta.cwd, "start": meta.timestamp})

    def encode_entry(self, entry: CanonicalEntry) -> bytes | None:
        if entry.kind == "session_info":
            return render_json({"title": entry.fields.get("name")})
        message = entry.fields.get("message", {})
        who = {"user": "user", "assistant": "parrot"}.get(message.get("role"))
        if who is None:
            return None
        content = message.get("content", "")
        text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
        return render_json({"who": who, "text": text, "time": entry.timestamp})


PARROT = Parrot()
MACAW = Macaw()
