"""Codex's rollouts as a dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sessiontree.core.context import Context
from sessiontree.core.entries import Entry, Header
from sessiontree.core.layout import LayoutColumns
from sessiontree.dialects.canonical import CanonicalEntry, Destination, Encoder, SessionMeta
from sessiontree.dialects.client import Client
from sessiontree.dialects.codex import header, locations, records, rollbacks
from sessiontree.dialects.contract import (
    Columns,
    EntryKind,
    Envelope,
    Facts,
    HistoryLinks,
    IndexedLines,
    LineMarks,
    LineProblem,
    ReadOptions,
    SessionFile,
    Traits,
    is_metadata_id,
)
from sessiontree.dialects.defaults import DialectBase, placed_nodes
from sessiontree.dialects.storage import Storage

_PAGINATED = (
    "it is a paginated rollout, and Codex remembers positions in it; continue a copy: "
    "`sessiontree fork SESSION`, or resume it in Codex"
)
_KINDS: dict[str, EntryKind] = {"p": "prompt", "i": "other", "a": "answer", "c": "calls", "o": "result"}


class Codex(DialectBase):
    name = "codex"
    traits = Traits(
        note_type=str,
        has_header=True,
        copies_headers=True,
        repairs_as_copy=True,
        is_linear=True,
        newest_file_counts=True,
        archive_folders={"archived_sessions": "sessions"},
        has_title_file=True,
        is_writable=True,
        bookkeeping=records.BOOKKEEPING,
        model_types=frozenset({records.TURN_CONTEXT}),
        marks=LineMarks(
            usage=b'usage"', tools=(b"_call",), prompts=(b'"user"',), results=(b'"type":"function_call_output"',)
        ),
        session_names=locations.SESSION_NAMES,
        path_markers=("/.codex/sessions/", "/.codex/archived_sessions/"),
    )

    @property
    def client(self) -> Client:
        from sessiontree.dialects.codex.client import CLIENT

        return CLIENT

    # Format

    def recognize(self, head: bytes) -> int:
        return header.recognize(head)

    def decode_block(self, data: memoryview, first: int) -> Columns | None:
        return records.decode_columns(data, first)

    def decode_line(self, fields: dict[str, Any], node: int) -> Envelope | Header | None:
        return records.decode_envelope(fields, node)

    def is_record(self, fields: dict[str, Any]) -> bool:
        return records.is_record(fields)

    def parse(self, raw: bytes) -> Entry:
        return records.parse_raw(raw)

    def parse_usage(self, raw: bytes) -> Entry:
        return records.parse_usage(raw)

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None:
        history = rollbacks.find_history(lines, rollbacks.last_entry(lines))
        types = lines.types
        return next((node for node in reversed(history) if types[node] not in self.traits.bookkeeping), None)

    def find_path(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        return rollbacks.find_history(lines, leaf)

    def find_history_links(self, lines: IndexedLines, read_options: ReadOptions) -> HistoryLinks | None:
        return HistoryLinks(rollbacks.find_parents(lines))

    def layout_columns(self, lines: IndexedLines) -> LayoutColumns:
        return LayoutColumns(rollbacks.find_parents(lines), placed_nodes(lines))

    def entry_kinds(self, lines: IndexedLines) -> list[EntryKind]:
        notes = rollbacks.item_notes(lines)
        kinds: list[EntryKind] = ["other"] * len(notes)
        for node, kind in enumerate(lines.types):
            if kind == records.MESSAGE:
                kinds[node] = _KINDS.get((notes[node] or "")[:1], "other")
            elif kind == records.COMPACTION:
                kinds[node] = "summary"
        return kinds

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        from sessiontree.dialects.codex.context import build_codex_context

        if leaf is not None and is_metadata_id(lines.tree.ids[leaf]):
            leaf = None
        return build_codex_context(lines, leaf, self.rules)

    def facts(self, lines: IndexedLines) -> Facts:
        return header.CodexFacts(lines)

    def find_problems(self, lines: IndexedLines) -> list[LineProblem]:
        from sessiontree.dialects.codex import ordinals

        return ordinals.find_problems(lines)

    def why_read_only(self, lines: IndexedLines) -> str | None:
        return _PAGINATED if header.is_paginated(header.header_meta(lines)) else None

    # Codec

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        from sessiontree.dialects.codex import decode

        return decode.decode_entries(lines, nodes)

    def must_decode_together(self, lines: IndexedLines, node: int, child: int) -> bool:
        from sessiontree.dialects.codex import decode

        return decode.must_decode_together(lines, node, child)

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> Encoder:
        from sessiontree.dialects.codex.encoder import CodexEncoder

        return CodexEncoder(meta, lines)

    def encode_fork(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        from sessiontree.dialects.codex import fork

        return fork.encode_fork(lines, leaf, meta)

    def encode_repaired(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        from sessiontree.dialects.codex import fork

        return fork.encode_fork(lines, leaf, meta, is_repair=True)

    # Locations

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        return locations.find_destination(meta, environment)

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return locations.session_roots(environment)

    def storage(self, path: str) -> Storage:
        return locations.storage(path)

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return locations.classify_file(relative)

    def session_titles(self, root: str, read: Callable[[str], bytes | None]) -> Mapping[str, str]:
        return locations.session_titles(root, read)


CODEX = Codex()
