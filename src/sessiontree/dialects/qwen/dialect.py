"""Qwen Code's sessions as a dialect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sessiontree.core.context import Context
from sessiontree.core.entries import Entry, Header
from sessiontree.dialects.canonical import CanonicalEntry, Destination, Encoder, SessionMeta
from sessiontree.dialects.client import Client
from sessiontree.dialects.contract import (
    UPDATE,
    Columns,
    Envelope,
    Facts,
    IndexedLines,
    LineMarks,
    ReadOptions,
    SessionFile,
    Traits,
)
from sessiontree.dialects.defaults import DialectBase
from sessiontree.dialects.qwen import header, locations, records

_TITLE_WINDOW = 64 * 1024


class Qwen(DialectBase):
    name = "qwen"
    traits = Traits(
        repeated_id_adds=True,
        is_writable=True,
        follows_tree=True,
        marks=LineMarks(
            usage=b'"usageMetadata"',
            tools=(b'"functionCall"', b'"functionResponse"'),
            prompts=(b'"user"',),
            results=(b'"functionResponse"',),
        ),
        title_types=frozenset({records.TITLE}),
        title_window=_TITLE_WINDOW,
        path_markers=("/.qwen/projects/",),
        skipped_folders=frozenset({"memory"}),
    )
    parent_key = "parentUuid"
    id_key = "uuid"

    @property
    def client(self) -> Client:
        from sessiontree.dialects.qwen.client import CLIENT

        return CLIENT

    def recognize(self, head: bytes) -> int:
        return header.recognize(head)

    def decode_block(self, data: memoryview, first: int) -> Columns | None:
        return records.decode_columns(data)

    def decode_line(self, fields: dict[str, Any], node: int) -> Envelope | None:
        return records.decode_envelope(fields)

    def is_record(self, fields: dict[str, Any]) -> bool:
        return records.is_record(fields)

    def join_lines(self, raws: list[bytes]) -> bytes:
        return records.join_lines(raws)

    def parse(self, raw: bytes) -> Entry:
        return records.parse_raw(raw)

    def find_header(self, lines: IndexedLines) -> Header | None:
        return header.find_header(lines)

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None:
        """The last record; after a rewind, the record that it leads back to."""
        types = lines.types
        node = next((node for node in range(len(types) - 1, -1, -1) if types[node] != UPDATE), None)
        while node is not None and types[node] == records.REWIND:
            node = lines.tree.parent(node)
        return node

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        from sessiontree.dialects.qwen.context import build_qwen_context

        return build_qwen_context(lines, self.find_path(lines, leaf, read_options), self.rules)

    def facts(self, lines: IndexedLines) -> Facts:
        return header.QwenFacts(lines)

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        from sessiontree.dialects.qwen import decode

        return decode.decode_entries(lines, nodes)

    def must_decode_together(self, lines: IndexedLines, node: int, child: int) -> bool:
        from sessiontree.dialects.qwen import decode

        return decode.must_decode_with_previous(lines, child)

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> Encoder:
        from sessiontree.dialects.qwen.encoder import QwenEncoder

        return QwenEncoder(meta, lines)

    def encode_fork(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        from sessiontree.dialects.qwen import fork

        return fork.encode_fork(lines, leaf, meta)

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        return locations.find_destination(meta, environment)

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return locations.session_roots(environment)

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return locations.classify_file(relative)


QWEN = Qwen()
