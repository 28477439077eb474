"""Claude Code's transcripts as a dialect: the contract, answered by the modules beside this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.context import Context
from sessiontree.dialects.base import Beside, Columns, DialectBase, Envelope, Lines, Reading, Relink, SessionFile
from sessiontree.dialects.claude import (
    about,
    columns,
    discovery,
    leaf,
    path,
    places,
    relinks,
    wire,
)
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.scribe import Destination, Item, Start
from sessiontree.entries import ENTRY_TYPES, Entry, Header

if TYPE_CHECKING:  # what not everyone who reads needs is imported where it is used
    from sessiontree.dialects.claude import tail
    from sessiontree.dialects.claude.scribe import ClaudeScribe


class ClaudeCode(DialectBase):
    """The sessions of Claude Code; read as client 2.1.325 does, and written so that it resumes them."""

    name = "claude"
    version = 1
    is_writable = True
    may_refer_to_blobs = False
    bookkeeping = wire.METADATA_TYPES | (frozenset(ENTRY_TYPES) - wire.SPEAKING_ENTRIES)
    parent_key = "parentUuid"
    id_key = "uuid"
    title_types = frozenset({"custom-title", "ai-title"})
    title_window = 64 * 1024
    folders = ("/.claude/projects/",)
    barren_folders = discovery.BARREN

    def recognise(self, head: bytes) -> int:
        return about.recognise(head)

    def decode_block(self, data: memoryview) -> Columns | None:
        return columns.decode_columns(data)

    def decode_said(self, data: memoryview) -> Columns | None:
        from sessiontree.dialects.claude import gists

        return gists.decode_said(data)

    def is_record(self, fields: dict[str, Any]) -> bool:
        return about.is_record(fields)

    def envelope(self, fields: dict[str, Any]) -> Envelope:
        return wire.envelope_of(fields)

    def parse(self, raw: bytes) -> Entry:
        return wire.parse_line(raw)

    def find_header(self, lines: Lines) -> Header | None:
        return about.find_header(lines)

    def find_leaf(self, lines: Lines, reading: Reading) -> int | None:
        return leaf.find_leaf(Chain(lines), reading)

    def find_path(self, lines: Lines, leaf: int | None, reading: Reading) -> list[int]:
        return path.find_trail(Chain(lines), leaf, reading).nodes

    tells_by_parts = True

    def needed_parts(self, size: int, read: tail.Read) -> list[tail.Part] | None:
        from sessiontree.dialects.claude import tail

        return tail.needed_parts(size, read)

    def is_told_by_parts(self, lines: Lines, context: Context) -> bool:
        """The model is looked for before the boundary, if no answer behind it names one."""
        from sessiontree.dialects.claude import tail

        return context.state.model is not None and tail.is_told_by_parts(lines, context.path)

    def find_relinks(self, lines: Lines) -> list[Relink]:
        return relinks.find_relinks(Chain(lines))

    def build_context(self, lines: Lines, leaf: int | None, reading: Reading) -> Context:
        from sessiontree.dialects.claude import context

        chain = Chain(lines)
        return context.build_context(chain, path.find_trail(chain, leaf, reading))

    def find_title(self, lines: Lines) -> str | None:
        from sessiontree.dialects.claude import titles

        return titles.find_title(lines)

    def find_given_title(self, lines: Lines) -> str | None:
        return about.find_given_title(lines)

    def find_git_branch(self, lines: Lines) -> str | None:
        return about.find_git_branch(lines)

    def find_beside(self, lines: Lines) -> list[Beside]:
        from sessiontree.dialects.claude import beside

        return beside.find_beside(lines)

    def find_session_ids(self, lines: Lines) -> list[str]:
        from sessiontree.dialects.claude import beside

        return beside.find_session_ids(lines)

    def find_history(self, lines: Lines, leaf: int | None, reading: Reading) -> list[int]:
        from sessiontree.dialects.claude import history

        return history.find_history(lines, leaf, reading)

    def tell(self, lines: Lines, nodes: Sequence[int]) -> Iterator[Item]:
        from sessiontree.dialects.claude import telling

        return telling.tell(lines, nodes)

    def belong_together(self, lines: Lines, node: int, child: int) -> bool:
        from sessiontree.dialects.claude import telling

        return telling.belong_together(lines, node, child)

    def scribe(self, start: Start, lines: Lines | None = None) -> ClaudeScribe:
        from sessiontree.dialects.claude.scribe import ClaudeScribe

        return ClaudeScribe(start, lines)

    def copied(self, lines: Lines, leaf: int | None, start: Start) -> Iterator[bytes]:
        from sessiontree.dialects.claude import copying

        return copying.copied(lines, leaf, start)

    def destination(self, start: Start, environment: Mapping[str, str]) -> Destination:
        return places.destination(start, environment)

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return discovery.roots(environment)

    def session_kind(self, root: str, relative: str) -> SessionFile | None:
        return discovery.kind_of(relative)


CLAUDE = ClaudeCode()
