"""Records as cards: one for each prompt, answer, summary and remark.

An answer that its format stores in several entries (thinking, text, calls) is one card with its usage once. Each entry
keeps its own element, so that links to it work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from markupsafe import Markup
from msgspec import Struct

from sessiontree.core.jsonio import render_indented_json
from sessiontree.export.escape import anchor
from sessiontree.export.html.code_highlighter import highlight, language_of
from sessiontree.export.html.edit_diff import FileChange, find_change
from sessiontree.export.html.environment import environment
from sessiontree.export.html.markdown_renderer import render_message
from sessiontree.export.record_builder import call_gist, first_words
from sessiontree.export.records import (
    Call,
    Command,
    Data,
    ImagePiece,
    Note,
    Piece,
    Record,
    ResultPiece,
    TextPiece,
    ThinkingPiece,
)
from sessiontree.views.text import human_size, plural

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")
_LONG = 1_500
"""System prompts and summaries of at least this length are folded."""
_SHORT_OUTPUT, _SHORT_LINES = 800, 12
"""Tool output up to this size is shown at once."""
_OPEN_DIFF = 60
"""Lines of a diff up to which it is shown at once."""
_BAD_FACTS = frozenset({"failed", "error", "aborted", "length"})

State: TypeAlias = Literal["abandoned", "recovered"]
"""Abandoned: not on the path to the current entry. Recovered: the session's own client would not show it."""


class Card(Struct, gc=False):
    """What one element of the page shows."""

    records: list[Record]
    states: tuple[State, ...] = ()

    @property
    def first(self) -> Record:
        return self.records[0]

    @property
    def facts(self) -> list[str]:
        """The facts about all parts: each once, and the usage that the last part has."""
        if len(self.records) == 1:
            return list(self.first.facts)
        usages = {record.usage for record in self.records if record.usage}
        last = next((record.usage for record in reversed(self.records) if record.usage), "")
        facts = dict.fromkeys(fact for record in self.records for fact in record.facts if fact not in usages)
        return [*facts, last] if last else [*facts]


def group_cards(
    records: Iterable[Record], states_of: Callable[[int], tuple[State, ...]] = lambda _node: ()
) -> Iterator[Card]:
    """Group records into cards. `states_of` finds the states of an entry by its number."""
    waiting: Card | None = None
    for record in records:
        states = states_of(record.node)
        if waiting is not None and _continues(waiting, record) and waiting.states == states:
            waiting.records.append(record)
            continue
        if waiting is not None:
            yield waiting
        waiting = Card([record], states)
    if waiting is not None:
        yield waiting


def _continues(card: Card, record: Record) -> bool:
    last = card.records[-1]
    return record.response is not None and record.response == last.response and not record.mark and not last.mark


class CardRenderer:
    """Renders the cards of one session."""

    def __init__(self, agent: str, find_subagent: Callable[[str, Call], Markup | None] | None = None) -> None:
        """`find_subagent` renders the sub-agent that a call started, by the id of the entry with it."""
        self._agent = agent
        self._find_subagent = find_subagent
        self._macros: Any = environment().get_template("card.html").module

    def render(self, card: Card) -> Markup:
        first = card.first
        parts = [(self._anchor(record), self._body(record)) for record in card.records]
        remarks = [self._note(piece) for piece in first.pieces if isinstance(piece, Note)] if first.is_small else ()
        classes = " ".join([first.who, *(["replaced"] if first.mark else []), *card.states])
        labels = [record.label for record in card.records if record.label]
        name, body = parts[0]
        rendered: Markup = self._macros.card(
            first, name, classes, card.states, labels, card.facts, body, parts[1:], remarks, _BAD_FACTS
        )
        return rendered

    def _anchor(self, record: Record) -> str:
        return anchor(record.id) if not record.mark else f"{anchor(record.id)}-{record.node}"

    def _body(self, record: Record) -> Markup:
        if record.result is not None:
            return self._result(record.result)
        if record.is_small:
            return Markup("")
        fold = record.who == "system"
        return _joined([self._piece(piece, record.id, fold=fold) for piece in record.pieces])

    def _piece(self, piece: Piece, entry: str, *, fold: bool = False) -> Markup:
        macros = self._macros
        rendered: Markup
        match piece:
            case TextPiece():
                rendered = render_message(piece.text)
                if fold and len(piece.text) > _LONG:
                    rendered = macros.folded(first_words(piece.text, 120), rendered)
            case ThinkingPiece():
                rendered = macros.thinking(first_words(piece.text or "", 100), piece.text)
            case Call():
                rendered = self._call(piece, entry)
            case ImagePiece():
                rendered = self._picture(piece)
            case Command():
                rendered = macros.command(piece)
            case Data():
                rendered = macros.data(piece.title, render_indented_json(piece.value))
            case Note():
                rendered = macros.note(self._note(piece), piece.error)
        return rendered

    def _note(self, note: Note) -> Markup:
        rendered: Markup = self._macros.note_text(note.text, note.target)
        return rendered

    def _picture(self, picture: ImagePiece) -> Markup:
        """An image of a type that cannot contain scripts; others are only mentioned."""
        data = "".join(picture.data.split()) if picture.mime in PICTURES else ""
        if _NOT_BASE64.search(data):
            data = ""
        rendered: Markup = self._macros.picture(picture.mime, data, len(picture.data))
        return rendered

    def _call(self, call: Call, entry: str) -> Markup:
        result = call.result
        change = find_change(self._agent, call.name, call.arguments)
        arguments = [] if change is not None else [(str(name), _shown(value)) for name, value in call.arguments.items()]
        rendered: Markup = self._macros.call(
            call,
            call_gist(call),
            None if result is None else anchor(result.id),
            change,
            self._content(change),
            change is not None and 0 < len(change.lines) <= _OPEN_DIFF,
            arguments,
            "" if result is None else self._result(result),
            "" if result is None else _describe_size(result),
            None if self._find_subagent is None else self._find_subagent(entry, call),
        )
        return rendered

    def _content(self, change: FileChange | None) -> Markup | None:
        if change is None or change.content is None:
            return None
        return highlight(change.content, language_of(change.path))

    def _result(self, result: ResultPiece) -> Markup:
        """Tool output is shown verbatim: it is not Markdown."""
        macros = self._macros
        if not result.pieces:
            return Markup('<p class="quiet">(empty)</p>')
        parts: list[Markup] = []
        for piece in result.pieces:
            if isinstance(piece, TextPiece):
                lines = piece.text.count("\n") + 1
                is_long = len(piece.text) > _SHORT_OUTPUT or lines > _SHORT_LINES
                parts.append(macros.output(piece.text, result.error, is_long, describe_text(piece.text)))
            else:
                parts.append(self._piece(piece, result.id))
        return _joined(parts)


def _joined(parts: Sequence[Markup]) -> Markup:
    """Markup in a row; `Markup.join` would look at each part again."""
    return parts[0] if len(parts) == 1 else Markup("".join(parts))  # noqa: S704 - every part is markup


def _shown(value: object) -> str:
    return value if isinstance(value, str) else render_indented_json(value)


def describe_text(text: str) -> str:
    """The size of a text: "1.2 kB, 30 lines"."""
    return f"{human_size(len(text))}, {plural(text.count(chr(10)) + 1, 'line')}"


def _describe_size(result: ResultPiece) -> str:
    size = sum(len(piece.text) for piece in result.pieces if isinstance(piece, TextPiece))
    return human_size(size) if size else ""
