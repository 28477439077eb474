"""Neovate's sessions as a dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sessiontree.core.context import Context, build_context
from sessiontree.core.entries import CONTEXT_TYPES, ENTRY_TYPES, Config, Entry, Header
from sessiontree.core.layout import LayoutColumns
from sessiontree.core.messages import Message
from sessiontree.dialects.canonical import CanonicalEntry, Destination, Encoder, SessionMeta
from sessiontree.dialects.client import Client
from sessiontree.dialects.contract import (
    CANONICAL_MARKS,
    Columns,
    Envelope,
    Facts,
    HistoryLinks,
    IndexedLines,
    ReadOptions,
    Reparenting,
    SessionFile,
    Traits,
)
from sessiontree.dialects.defaults import DefaultFacts, DialectBase, path_of_nodes
from sessiontree.dialects.neovate import header, locations, path, records, reparent


class Neovate(DialectBase):
    name = "neovate"
    traits = Traits(
        bookkeeping=frozenset(ENTRY_TYPES) - CONTEXT_TYPES,  # only messages move the leaf; others are metadata lines
        marks=CANONICAL_MARKS,
        is_writable=True,
        path_markers=("/.neovate/projects/", "/.takumi/projects/", "/.neo/sessions/"),
        skipped_folders=locations.SKIPPED_FOLDERS,
    )
    parent_key = "parentUuid"
    id_key = "uuid"

    @property
    def client(self) -> Client:
        from sessiontree.dialects.neovate.client import CLIENT

        return CLIENT

    def recognize(self, head: bytes) -> int:
        return header.recognize(head)

    def decode_block(self, data: memoryview, first: int) -> Columns | None:
        return records.decode_columns(data)

    def is_record(self, fields: dict[str, Any]) -> bool:
        return records.is_record(fields)

    def find_header(self, lines: IndexedLines) -> Header | None:
        return header.find_header(lines)

    def decode_line(self, fields: dict[str, Any], node: int) -> Envelope | None:
        return records.decode_envelope(fields)

    def parse(self, raw: bytes) -> Entry:
        return records.parse_raw(raw)

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None:
        return path.find_leaf(lines)

    def find_path(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        return path.find_path(lines, leaf, read_options)

    def find_reparentings(self, lines: IndexedLines) -> list[Reparenting]:
        return reparent.find_reparentings(lines)

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        return path.build_path_context(lines, leaf, read_options, self.rules)

    def build_messages(
        self, lines: IndexedLines, nodes: list[int], read_options: ReadOptions
    ) -> Sequence[Message] | None:
        return build_context(path_of_nodes(lines, nodes), self.rules).messages

    def facts(self, lines: IndexedLines) -> Facts:
        return _NeovateFacts(lines)

    def find_history(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        return path.find_history(lines, leaf, read_options)

    def find_history_links(self, lines: IndexedLines, read_options: ReadOptions) -> HistoryLinks | None:
        return path.find_history_links(lines, read_options)

    def layout_columns(self, lines: IndexedLines) -> LayoutColumns:
        from sessiontree.dialects.neovate import layout

        return layout.layout_columns(lines)

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        from sessiontree.dialects.neovate import decode

        return decode.decode_entries(lines, nodes)

    def must_decode_together(self, lines: IndexedLines, node: int, child: int) -> bool:
        from sessiontree.dialects.neovate import decode

        return decode.must_decode_together(lines, node, child)

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> Encoder:
        from sessiontree.dialects.neovate.encoder import NeovateEncoder

        return NeovateEncoder(meta, lines)

    def encode_fork(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        from sessiontree.dialects.neovate import fork

        return fork.encode_fork(lines, leaf, meta)

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        return locations.find_destination(meta, environment)

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return locations.session_roots(environment)

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return locations.classify_file(relative)

    def session_cwds(self, root: str, read: Callable[[str], bytes | None]) -> Mapping[str, str]:
        return locations.session_cwds(root, read)


class _NeovateFacts(DefaultFacts):
    @property
    def title(self) -> str | None:
        return header.find_title(self.lines)

    @property
    def given_title(self) -> str | None:
        return header.find_given_title(self.lines)

    @property
    def config(self) -> Config:
        return header.find_config(self.lines)


NEOVATE = Neovate()
