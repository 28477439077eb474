"""What there is to show of a session, in shapes that every format renders. None of them ever leads back to itself."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from sessiontree.core.jsonio import JsonObject


class Words(Struct, gc=False):
    """What someone said; mostly Markdown."""

    text: str


class Thought(Struct, gc=False):
    """What a model thought; without a text, it is there but nobody can read it."""

    text: str | None


class Picture(Struct, gc=False):
    mime: str
    data: str


class Command(Struct, gc=False):
    """A command that a person ran."""

    command: str
    output: str
    state: str = ""
    failed: bool = False


class Data(Struct, gc=False):
    """Something kept for programs."""

    title: str
    value: Any


class Note(Struct, gc=False):
    """A remark of ours about the entry; may lead to another one."""

    text: str
    target: str | None = None
    error: bool = False


class Call(Struct, gc=False):
    """A tool call, and its answer when it has come."""

    id: str
    name: str
    arguments: JsonObject
    answer: Answer | None = None


class Answer(Struct, gc=False):
    """What a tool answered: an entry of its own, shown beside its call."""

    id: str
    node: int
    time: str
    label: str | None
    call_id: str
    name: str
    error: bool
    pieces: list[Piece]


Piece: TypeAlias = Words | Thought | Picture | Command | Data | Note | Call


class Record(Struct, gc=False):
    """One entry to show. `who` is a word for the kind of speaker: it picks colours, never words."""

    id: str
    node: int
    who: str
    title: str
    time: str = ""
    facts: tuple[str, ...] = ()
    label: str | None = None
    mark: str = ""
    pieces: list[Piece] = []
    answer: Answer | None = None
    """For the answer of a tool that stands alone."""

    @property
    def is_small(self) -> bool:
        """Whether one line says it all."""
        return self.who == "note" and all(isinstance(piece, Note) for piece in self.pieces)
