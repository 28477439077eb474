"""The Claude Code dialect: delegates the dialect contract to the other modules of this package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.core.context import Context
from sessiontree.core.entries import Entry, Header
from sessiontree.core.layout import LayoutColumns
from sessiontree.core.messages import Message
from sessiontree.dialects.canonical import CanonicalEntry, Destination, SessionMeta
from sessiontree.dialects.claude import header, index, locations, messages, path, records, reparent
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.client import Client
from sessiontree.dialects.contract import (
    CANONICAL_MARKS,
    ClientNotes,
    Columns,
    EntryKind,
    Envelope,
    Facts,
    HistoryLinks,
    IndexedLines,
    PartialReads,
    ReadOptions,
    RelatedFile,
    Reparenting,
    SessionFile,
    Traits,
)
from sessiontree.dialects.defaults import DefaultFacts, DialectBase

if TYPE_CHECKING:  # modules that not every reader needs are imported where they are used
    from sessiontree.dialects.claude.encoder import ClaudeEncoder


class ClaudeCode(DialectBase):
    """Claude Code transcripts: read as client 2.1.325 reads them, written so that it resumes them."""

    name = "claude"
    traits = Traits(
        note_type=index.LineSummary,
        bookkeeping=records.METADATA_TYPES | records.METADATA_ENTRY_TYPES,
        marks=CANONICAL_MARKS,
        title_types=frozenset({"custom-title", "ai-title"}),
        title_window=64 * 1024,
        is_writable=True,
        path_markers=("/.claude/projects/",),
        skipped_folders=locations.SKIPPED_FOLDERS,
    )
    parent_key = "parentUuid"
    id_key = "uuid"

    @property
    def client(self) -> Client:
        from sessiontree.dialects.claude.client import CLIENT

        return CLIENT

    def recognize(self, head: bytes) -> int:
        return header.recognize(head)

    def decode_block(self, data: memoryview, first: int) -> Columns | None:
        return index.decode_columns(data)

    def is_record(self, fields: dict[str, Any]) -> bool:
        return header.is_record(fields)

    def decode_line(self, fields: dict[str, Any], node: int) -> Envelope | None:
        return records.decode_envelope(fields)

    def parse(self, raw: bytes) -> Entry:
        return messages.parse_line(raw)

    def parse_usage(self, raw: bytes) -> Entry:
        return messages.parse_usage(raw)

    def find_header(self, lines: IndexedLines) -> Header | None:
        return header.find_header(lines)

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None:
        return path.find_leaf(Chain(lines), read_options)

    def find_path(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        return path.find_path(Chain(lines), leaf, read_options).nodes

    @property
    def partial_reads(self) -> PartialReads:
        import sessiontree.dialects.claude.tail_scan as tail_scan

        return tail_scan

    def find_reparentings(self, lines: IndexedLines) -> list[Reparenting]:
        return reparent.find_reparentings(Chain(lines))

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        from sessiontree.dialects.claude.context import build_context

        chain = Chain(lines)
        return build_context(chain, path.find_path(chain, leaf, read_options), read_options)

    def facts(self, lines: IndexedLines) -> Facts:
        return _ClaudeFacts(lines)

    def find_history(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        from sessiontree.dialects.claude.history import find_history

        return find_history(lines, leaf, read_options)

    def find_history_links(self, lines: IndexedLines, read_options: ReadOptions) -> HistoryLinks | None:
        from sessiontree.dialects.claude.history_links import find_history_links

        return find_history_links(Chain(lines), read_options)

    def build_messages(
        self, lines: IndexedLines, nodes: list[int], read_options: ReadOptions
    ) -> Sequence[Message] | None:
        from sessiontree.dialects.claude.context import build_messages

        return build_messages(Chain(lines), nodes, read_options)

    def entry_kinds(self, lines: IndexedLines) -> list[EntryKind]:
        from sessiontree.dialects.claude.layout import entry_kinds

        return entry_kinds(lines)

    def layout_columns(self, lines: IndexedLines) -> LayoutColumns:
        from sessiontree.dialects.claude.layout import layout_columns

        return layout_columns(lines)

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        from sessiontree.dialects.claude.decode import decode_entries

        return decode_entries(lines, nodes)

    def must_decode_together(self, lines: IndexedLines, node: int, child: int) -> bool:
        from sessiontree.dialects.claude.decode import must_decode_together

        return must_decode_together(lines, node, child)

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> ClaudeEncoder:
        from sessiontree.dialects.claude.encoder import ClaudeEncoder

        return ClaudeEncoder(meta, lines)

    def encode_fork(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        from sessiontree.dialects.claude.fork import encode_fork

        return encode_fork(lines, leaf, meta)

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        return locations.destination(meta, environment)

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return locations.session_roots(environment)

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return locations.classify_file(relative)


class _ClaudeFacts(DefaultFacts):
    @property
    def title(self) -> str | None:
        return header.find_title(self.lines)

    @property
    def given_title(self) -> str | None:
        return header.find_given_title(self.lines)

    @property
    def git_branch(self) -> str | None:
        return header.find_git_branch(self.lines)

    @property
    def client_notes(self) -> ClientNotes:
        return header.find_client_notes(self.lines)

    @property
    def related_files(self) -> list[RelatedFile]:
        from sessiontree.dialects.claude.related_files import find_related_files

        return find_related_files(self.lines)

    @property
    def session_ids(self) -> list[str]:
        from sessiontree.dialects.claude.related_files import find_session_ids

        return find_session_ids(self.lines)


CLAUDE = ClaudeCode()
