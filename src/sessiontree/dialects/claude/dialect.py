"""The Claude Code dialect: delegates the dialect contract to the other modules of this package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.core.context import Context
from sessiontree.core.entries import ENTRY_TYPES, Entry, Header
from sessiontree.dialects.canonical import CanonicalEntry, Destination, SessionMeta
from sessiontree.dialects.claude import header, index, locations, messages, path, records, reparent
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.contract import (
    Columns,
    Envelope,
    IndexedLines,
    ReadOptions,
    RelatedFile,
    Reparenting,
    SessionFile,
)
from sessiontree.dialects.defaults import DialectBase

if TYPE_CHECKING:  # modules that not every reader needs are imported where they are used
    from sessiontree.dialects.claude import tail_scan
    from sessiontree.dialects.claude.encoder import ClaudeEncoder


class ClaudeCode(DialectBase):
    """Claude Code transcripts: read as client 2.1.325 reads them, written so that it resumes them."""

    name = "claude"
    version = 1
    is_writable = True
    may_refer_to_blobs = False
    bookkeeping = records.METADATA_TYPES | (frozenset(ENTRY_TYPES) - records.CONVERSATION_TYPES)
    parent_key = "parentUuid"
    id_key = "uuid"
    title_types = frozenset({"custom-title", "ai-title"})
    title_window = 64 * 1024
    path_markers = ("/.claude/projects/",)
    skipped_folders = locations.SKIPPED_FOLDERS

    def recognize(self, head: bytes) -> int:
        return header.recognize(head)

    def decode_block(self, data: memoryview) -> Columns | None:
        return index.decode_columns(data)

    def is_record(self, fields: dict[str, Any]) -> bool:
        return header.is_record(fields)

    def envelope(self, fields: dict[str, Any]) -> Envelope:
        return records.envelope_of(fields)

    def parse(self, raw: bytes) -> Entry:
        return messages.parse_line(raw)

    def find_header(self, lines: IndexedLines) -> Header | None:
        return header.find_header(lines)

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None:
        return path.find_leaf(Chain(lines), read_options)

    def find_path(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        return path.find_path(Chain(lines), leaf, read_options).nodes

    supports_partial_read = True

    def find_context_ranges(self, size: int, read: tail_scan.Read) -> list[tail_scan.Range] | None:
        from sessiontree.dialects.claude import tail_scan

        return tail_scan.find_context_ranges(size, read)

    def is_partial_context_exact(self, lines: IndexedLines, context: Context) -> bool:
        from sessiontree.dialects.claude import tail_scan

        # Without a model after the boundary, the one before it would be needed, which the ranges do not include.
        return context.state.model is not None and tail_scan.is_path_exact(lines, context.path)

    def find_reparentings(self, lines: IndexedLines) -> list[Reparenting]:
        return reparent.find_reparentings(Chain(lines))

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        from sessiontree.dialects.claude import context

        chain = Chain(lines)
        return context.build_context(chain, path.find_path(chain, leaf, read_options))

    def find_title(self, lines: IndexedLines) -> str | None:
        return header.find_title(lines)

    def find_given_title(self, lines: IndexedLines) -> str | None:
        return header.find_given_title(lines)

    def find_git_branch(self, lines: IndexedLines) -> str | None:
        return header.find_git_branch(lines)

    def find_related_files(self, lines: IndexedLines) -> list[RelatedFile]:
        from sessiontree.dialects.claude import related_files

        return related_files.find_related_files(lines)

    def find_session_ids(self, lines: IndexedLines) -> list[str]:
        from sessiontree.dialects.claude import related_files

        return related_files.find_session_ids(lines)

    def find_history(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        from sessiontree.dialects.claude import history

        return history.find_history(lines, leaf, read_options)

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        from sessiontree.dialects.claude import decode

        return decode.decode_entries(lines, nodes)

    def must_decode_together(self, lines: IndexedLines, node: int, child: int) -> bool:
        from sessiontree.dialects.claude import decode

        return decode.must_decode_together(lines, node, child)

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> ClaudeEncoder:
        from sessiontree.dialects.claude.encoder import ClaudeEncoder

        return ClaudeEncoder(meta, lines)

    def encode_fork(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        from sessiontree.dialects.claude import fork

        return fork.encode_fork(lines, leaf, meta)

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        return locations.destination(meta, environment)

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return locations.session_roots(environment)

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return locations.classify_file(relative)


CLAUDE = ClaudeCode()
