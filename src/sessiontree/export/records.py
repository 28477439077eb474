"""Records: the content of an export, independent of the output format. References are never cyclic."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from sessiontree.core.jsonio import JsonObject


class TextPiece(Struct, gc=False):
    """Text of a message; usually Markdown."""

    text: str


class ThinkingPiece(Struct, gc=False):
    """Thinking of a model; None if it is encrypted."""

    text: str | None


class ImagePiece(Struct, gc=False):
    mime: str
    data: str


class Command(Struct, gc=False):
    """A shell command of the user."""

    command: str
    output: str
    state: str = ""
    failed: bool = False


class Data(Struct, gc=False):
    """Structured data."""

    title: str
    value: Any


class Note(Struct, gc=False):
    """Our own remark about an entry, optionally with a link to another one."""

    text: str
    target: str | None = None
    error: bool = False


class Call(Struct, gc=False):
    """A tool call with its result, if there is one."""

    id: str
    name: str
    arguments: JsonObject
    result: ResultPiece | None = None


class ResultPiece(Struct, gc=False):
    """A tool result: a separate entry, shown with its call."""

    id: str
    node: int
    time: str
    label: str | None
    call_id: str
    name: str
    error: bool
    pieces: list[Piece]


Piece: TypeAlias = TextPiece | ThinkingPiece | ImagePiece | Command | Data | Note | Call


class Record(Struct, gc=False):
    """One entry to show. `who` is the kind of speaker; it selects colors only."""

    id: str
    node: int
    who: str
    title: str
    time: str = ""
    facts: tuple[str, ...] = ()
    label: str | None = None
    mark: str = ""
    pieces: list[Piece] = []
    result: ResultPiece | None = None
    """Set for a tool result without its call."""
    response: str | None = None
    """The provider's id of the answer that it is a part of: some formats store an answer in several entries."""
    usage: str = ""
    """The one of `facts` that is the usage of the answer."""

    @property
    def is_small(self) -> bool:
        """Whether the record fits on one line."""
        return self.who == "note" and all(isinstance(piece, Note) for piece in self.pieces)
