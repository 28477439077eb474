"""The contract of a dialect: one agent's file format and its rules of reading and writing.

A dialect is pure. It is handed bytes, decoded JSON and the indexed lines of a session, and gives back values; it never
opens, reads or writes a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from sessiontree.context import Context, Path, Rules, build_context
from sessiontree.entries import Entry, Header
from sessiontree.errors import ReadOnlyError
from sessiontree.tree import Tree


class Envelope(Struct, frozen=True, gc=False):
    """The outside of an entry: enough to place it in the tree. An empty id means the line has none.

    An aside is a line that is no part of the tree (a title, a setting): it is kept and can be read, and never has a
    parent or children.
    """

    type: str
    id: str
    parent: str | None
    aside: bool = False


class Columns(Struct, frozen=True):
    """The envelopes of a block of lines, one list per field. An empty id means an aside."""

    types: list[str]
    ids: list[str]
    parents: list[str | None]


class Reading(Struct, frozen=True):
    """How a session is to be read, where there is a choice.

    By default as its owner, the program whose format it is, reads it today.
    """

    recovered: bool = False
    """Bring back what the owner loses: history behind a missing parent, summaries off the path and the like."""

    as_of: Literal["now", "timestamps"] = "now"
    """Where the owner's rule for the leaf has changed: today's, or the older one that takes the newest time."""

    snips: bool = False
    """Leave out what the owner's snip marks name, which its current versions ignore."""


AS_THE_OWNER = Reading()


class Lines(Protocol):
    """The lines of a session as a dialect may ask about them. Nodes are numbers in file order, asides included."""

    @property
    def header(self) -> Header | None: ...

    @property
    def tree(self) -> Tree: ...

    @property
    def types(self) -> Sequence[str]: ...

    @property
    def location(self) -> str: ...

    def entries(self, nodes: Sequence[int]) -> list[Entry]:
        """The entries of some nodes, in the order asked for."""
        ...

    def fields(self, nodes: Sequence[int]) -> list[dict[str, Any]]:
        """The decoded objects of some nodes' lines, as they stand there, in the order asked for."""
        ...


class Dialect(Protocol):
    """One agent's file format.

    Contract:
    * `recognise` gives 0 for a head that is not of this dialect, up to 100 for a certain one. It never raises.
    * `decode_block` is exact or silent: it gives the envelopes of a block in which every line is one ordinary entry or
      aside, and None when any line needs a closer look. `envelope` takes it, at one decoded object.
    * `parse` turns an entry's raw bytes into a value and never raises: what it does not understand becomes `Unknown`
      or takes defaults. `render(parse(line))` is never used to copy a line; the raw line is.
    * `find_leaf` says where the session stands: a node, or None for "before the first entry". `find_path` gives the
      nodes that belong to a leaf in the order of the conversation; `build_context` what a model is sent for them. None
      of them raises or hangs, whatever the tree looks like.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int:
        """The newest version of the format that this dialect knows."""
        ...

    @property
    def has_header(self) -> bool:
        """Whether the format begins with a line that says which session it is."""
        ...

    @property
    def is_writable(self) -> bool: ...

    @property
    def bookkeeping(self) -> frozenset[str]:
        """Types of entries that never move the leaf."""
        ...

    def recognise(self, head: bytes) -> int: ...

    def decode_block(self, data: memoryview) -> Columns | None: ...

    def is_record(self, fields: dict[str, Any]) -> bool: ...

    def is_header(self, fields: dict[str, Any]) -> bool: ...

    def header(self, fields: dict[str, Any]) -> Header: ...

    def find_header(self, lines: Lines) -> Header | None:
        """For a format without a header line: what the other lines tell of the session."""
        ...

    def envelope(self, fields: dict[str, Any]) -> Envelope: ...

    def parse(self, raw: bytes) -> Entry: ...

    def find_leaf(self, lines: Lines, reading: Reading) -> int | None: ...

    def find_path(self, lines: Lines, leaf: int | None, reading: Reading) -> list[int]: ...

    def build_context(self, lines: Lines, leaf: int | None, reading: Reading) -> Context: ...

    def find_title(self, lines: Lines) -> str | None:
        """The name the owner shows for the session, by the owner's own rule."""
        ...

    def render_header(self, header: Header) -> bytes: ...

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, body: bytes) -> bytes:
        """One line without its LF. `body` is the JSON object of the fields beyond the envelope."""
        ...


class DialectBase:
    """What most dialects share: a tree that is walked by parents, a context by the common rules, no writing."""

    name = ""
    version = 1
    has_header = False
    is_writable = False
    bookkeeping: frozenset[str] = frozenset()
    rules = Rules()

    def is_header(self, fields: dict[str, Any]) -> bool:
        return False

    def header(self, fields: dict[str, Any]) -> Header:
        return Header(id="")

    def find_header(self, lines: Lines) -> Header | None:
        return lines.header

    def find_path(self, lines: Lines, leaf: int | None, reading: Reading) -> list[int]:
        return lines.tree.path(leaf)

    def build_context(self, lines: Lines, leaf: int | None, reading: Reading) -> Context:
        return build_context(path_of(lines, self.find_path(lines, leaf, reading)), self.rules)

    def find_title(self, lines: Lines) -> str | None:
        return lines.header.title if lines.header else None

    def render_header(self, header: Header) -> bytes:
        raise ReadOnlyError(f"sessions of {self.name} cannot be written")

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, body: bytes) -> bytes:
        raise ReadOnlyError(f"sessions of {self.name} cannot be written")


def path_of(lines: Lines, nodes: list[int]) -> Path:
    """Nodes as a path whose entries can be asked for."""
    ids, types = lines.tree.ids, lines.types
    return Path(
        [ids[node] for node in nodes],
        [types[node] for node in nodes],
        lambda positions: lines.entries([nodes[at] for at in positions]),
    )
