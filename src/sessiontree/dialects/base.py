"""The contract of a dialect: one agent's file format and its rules of reading and writing.

A dialect is pure. It is handed bytes and decoded JSON and gives back values; it never opens, reads or writes a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from sessiontree.context import Rules
from sessiontree.entries import Entry, Header
from sessiontree.tree import Tree


class Envelope(Struct, frozen=True, gc=False):
    """The outside of an entry: enough to place it in the tree. An empty id means the line has none."""

    type: str
    id: str
    parent: str | None


class Columns(Struct, frozen=True):
    """The envelopes of a block of lines, one list per field."""

    types: list[str]
    ids: list[str]
    parents: list[str | None]


class Dialect(Protocol):
    """One agent's file format.

    Contract:
    * `recognise` gives 0 for a head that is not of this dialect, up to 100 for a certain one. It never raises.
    * `decode_block` is exact or silent: it gives the envelopes of a block in which every line is one ordinary entry,
      and None when any line needs a closer look. `envelope` takes it, at one decoded object.
    * `parse` turns an entry's raw bytes into a value and never raises: what it does not understand becomes `Unknown`
      or takes defaults. `render(parse(line))` is never used to copy a line; the raw line is.
    * `find_leaf` says where the session stands: a node, or None for "before the first entry".
    """

    @property
    def name(self) -> str: ...

    @property
    def rules(self) -> Rules: ...

    @property
    def version(self) -> int:
        """The newest version of the format this dialect writes."""
        ...

    @property
    def bookkeeping(self) -> frozenset[str]:
        """Types of entries that never move the leaf."""
        ...

    def recognise(self, head: bytes) -> int: ...

    def decode_block(self, data: memoryview) -> Columns | None: ...

    def is_record(self, fields: dict[str, Any]) -> bool: ...

    def is_header(self, fields: dict[str, Any]) -> bool: ...

    def header(self, fields: dict[str, Any]) -> Header: ...

    def envelope(self, fields: dict[str, Any]) -> Envelope: ...

    def parse(self, raw: bytes) -> Entry: ...

    def find_leaf(self, types: Sequence[str], tree: Tree) -> int | None: ...

    def render_header(self, header: Header) -> bytes: ...

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, body: bytes) -> bytes:
        """One line without its LF. `body` is the JSON object of the fields beyond the envelope."""
        ...
