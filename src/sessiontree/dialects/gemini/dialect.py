"""Gemini CLI: a list of messages per session, in a file of records or, before version 0.40, in a document.

Messages that a rewind or a compression removed from the list are still in the file; they are other branches here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.core.context import Context
from sessiontree.core.entries import Entry, Header
from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.dialects.canonical import CanonicalEntry, Destination, SessionMeta
from sessiontree.dialects.client import Client
from sessiontree.dialects.contract import (
    CERTAIN,
    PREVIOUS,
    Envelope,
    IndexedLines,
    LineMarks,
    ReadOptions,
    SessionFile,
    Traits,
)
from sessiontree.dialects.defaults import DialectBase, head_records, iter_resolved
from sessiontree.dialects.gemini import locations
from sessiontree.dialects.gemini.entries import decode_fields, entry_type, parse_fields, parse_header
from sessiontree.dialects.gemini.records import TYPES
from sessiontree.dialects.storage import Storage

if TYPE_CHECKING:
    from sessiontree.dialects.gemini.encoder import GeminiEncoder

_LIKELY = 60
_NOTICES = ("info", "warning", "error")


class Gemini(DialectBase):
    name = "gemini"
    parent_key = "after"
    traits = Traits(
        has_header=True,
        is_linear=True,
        is_writable=True,
        repeated_id_updates=True,
        marks=LineMarks(
            usage=b'"tokens"', tools=(b'"toolCalls"', b'"functionCall"', b'"functionResponse"'), prompts=(b'"user"',)
        ),
        path_markers=("/.gemini/tmp/",),
        session_names=(".jsonl", ".json"),
        skipped_folders=locations.SKIPPED_FOLDERS,
    )

    @property
    def client(self) -> Client:
        from sessiontree.dialects.gemini.client import CLIENT

        return CLIENT

    # Format

    def recognize(self, head: bytes) -> int:
        score = 0
        for record in head_records(head):
            if isinstance(record.get("sessionId"), str) and isinstance(record.get("projectHash"), str):
                return CERTAIN
            is_message = record.get("type") in TYPES and isinstance(record.get("id"), str) and "content" in record
            is_other = any(name in record for name in ("parentId", "uuid", "message"))
            if (is_message and not is_other) or set(record) in ({"$set"}, {"$rewindTo"}):
                score = _LIKELY
        return score

    def decode_line(self, fields: dict[str, Any], node: int) -> Envelope | Header | None:
        id = fields.get("id")
        if isinstance(id, str) and id and "$rewindTo" not in fields:
            kind = entry_type(fields)
            if kind is None:
                return Envelope("custom", is_metadata=True) if fields.get("type") in (*TYPES, *_NOTICES) else None
            after = fields.get("after", PREVIOUS)
            return Envelope(kind, id, after if after is None or isinstance(after, str) else PREVIOUS)
        if isinstance(fields.get("$set"), dict) or isinstance(fields.get("$rewindTo"), str):
            return Envelope("record", is_metadata=True)
        if isinstance(fields.get("sessionId"), str) and isinstance(fields.get("projectHash"), str):
            return parse_header(fields)
        return None

    def parse(self, raw: bytes) -> Entry:
        return parse_fields(parse_object(raw))

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        from sessiontree.dialects.gemini.context import build_sent_context

        return build_sent_context(lines, self.find_path(lines, leaf, read_options))

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None:
        """The last message of the list: of the last branch in the file, unless a rewind removed that."""
        header = next(iter(lines.raw_lines()), b"")
        if b'"leaf"' in header:
            leaf = parse_object(header).get("leaf")
            if leaf is None or leaf in lines.tree.node_of:
                return None if leaf is None else lines.tree.node_of[leaf]
        return super().find_leaf(lines, read_options)

    # Codec

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        for _, fields in iter_resolved(lines, nodes):
            yield from decode_fields(fields)

    def must_decode_together(self, lines: IndexedLines, node: int, child: int) -> bool:
        return False

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> GeminiEncoder:
        from sessiontree.dialects.gemini.encoder import GeminiEncoder

        return GeminiEncoder(meta, lines)

    def render_header(self, header: Header) -> bytes:
        from sessiontree.dialects.gemini.encoder import metadata

        return render_json(metadata(SessionMeta(header.id, header.timestamp, header.cwd, header.title)))

    # Locations

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return locations.session_roots(environment)

    def storage(self, path: str) -> Storage:
        return locations.storage(path)

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return locations.classify_file(relative)

    def session_cwds(self, root: str, read: Callable[[str], bytes | None]) -> Mapping[str, str]:
        return locations.session_cwds(root, read)

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        return locations.find_destination(meta, environment)

    def locate(self, destination: Destination, meta: SessionMeta, read: Callable[[str], bytes | None]) -> Destination:
        return locations.locate(destination, meta, read)


GEMINI = Gemini()
