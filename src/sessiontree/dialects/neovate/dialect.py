"""Neovate's sessions as a dialect: the contract, answered by the modules beside this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sessiontree.context import Context
from sessiontree.dialects.base import Columns, DialectBase, Envelope, Lines, Reading, Relink, SessionFile
from sessiontree.dialects.neovate import about, discovery, path, places, relinks, titles, wire
from sessiontree.dialects.scribe import Destination, Item, Scribe, Start
from sessiontree.entries import ENTRY_TYPES, Config, Entry, Header

_SPOKEN = frozenset({"message", "custom_message", "branch_summary", "compaction"})


class Neovate(DialectBase):
    name = "neovate"
    is_writable = True
    may_refer_to_blobs = False
    folders = ("/.neovate/projects/", "/.takumi/projects/")
    parent_key = "parentUuid"
    id_key = "uuid"
    barren_folders = discovery.BARREN
    bookkeeping = frozenset(ENTRY_TYPES) - _SPOKEN
    """Only messages move the leaf; everything else stands beside the tree."""

    def recognise(self, head: bytes) -> int:
        return about.recognise(head)

    def decode_block(self, data: memoryview) -> Columns | None:
        return wire.decode_columns(data)

    def is_record(self, fields: dict[str, Any]) -> bool:
        return wire.is_record(fields)

    def find_header(self, lines: Lines) -> Header | None:
        return about.find_header(lines)

    def envelope(self, fields: dict[str, Any]) -> Envelope:
        return wire.envelope_of(fields)

    def parse(self, raw: bytes) -> Entry:
        return wire.parse_raw(raw)

    def find_leaf(self, lines: Lines, reading: Reading) -> int | None:
        return path.find_leaf(lines)

    def find_path(self, lines: Lines, leaf: int | None, reading: Reading) -> list[int]:
        return path.find_path(lines, leaf, reading)

    def find_relinks(self, lines: Lines) -> list[Relink]:
        return relinks.find_relinks(lines)

    def build_context(self, lines: Lines, leaf: int | None, reading: Reading) -> Context:
        return path.build(lines, leaf, reading, self.rules)

    def find_config(self, lines: Lines) -> Config:
        return about.find_config(lines)

    def find_title(self, lines: Lines) -> str | None:
        return titles.find_title(lines)

    def find_given_title(self, lines: Lines) -> str | None:
        return titles.find_given_title(lines)

    def find_history(self, lines: Lines, leaf: int | None, reading: Reading) -> list[int]:
        return path.find_history(lines, leaf, reading)

    def tell(self, lines: Lines, nodes: Sequence[int]) -> Iterator[Item]:
        from sessiontree.dialects.neovate import telling

        return telling.tell(lines, nodes)

    def belong_together(self, lines: Lines, node: int, child: int) -> bool:
        from sessiontree.dialects.neovate import telling

        return telling.belong_together(lines, node, child)

    def scribe(self, start: Start, lines: Lines | None = None) -> Scribe:
        from sessiontree.dialects.neovate.scribe import NeovateScribe

        return NeovateScribe(start, lines)

    def copied(self, lines: Lines, leaf: int | None, start: Start) -> Iterator[bytes]:
        from sessiontree.dialects.neovate import copying

        return copying.copied(lines, leaf, start)

    def destination(self, start: Start, environment: Mapping[str, str]) -> Destination:
        return places.destination(start, environment)

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return discovery.roots(environment)

    def session_kind(self, root: str, relative: str) -> SessionFile | None:
        return discovery.kind_of(relative)

    def session_cwds(self, root: str, read: Callable[[str], bytes | None]) -> Mapping[str, str]:
        return discovery.cwds(root, read)


NEOVATE = Neovate()
