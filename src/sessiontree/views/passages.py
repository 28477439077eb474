"""An entry among its neighbours: the branch that leads through it, and what was said before and after it there."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sessiontree.core.entries import BranchSummary, Compaction, CustomMessage, Entry, MessageEntry
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.session import Session
from sessiontree.views.json import describe_shown
from sessiontree.views.text import one_line
from sessiontree.views.transcript import show_entry, show_role

_LOOKED_AT = 4
"""Entries that are read for each neighbour that is wanted: some of them say nothing."""


class Passage(Struct, frozen=True):
    """Some entries of a branch that follow each other."""

    entries: list[Entry]
    at: int | None
    """Which of them was asked for; None for a session without it."""
    before: int
    """Entries of the branch that stand before these."""
    after: int

    @property
    def around(self) -> tuple[list[Entry], list[Entry]]:
        """The neighbours before and after the entry."""
        at = -1 if self.at is None else self.at
        return self.entries[: max(at, 0)], self.entries[at + 1 :]


def path_through(session: Session, id: str) -> list[str]:
    """The ids of the branch on which an entry lies: the active one, else the newest that goes on from it."""
    active = session.path_ids() if session.leaf is not None else []
    if id in active:
        return active
    path = session.path_ids(id)
    if id not in path:
        path.append(id)
    seen = set(path)
    while following := [
        child for child in session.children(path[-1]) if child not in seen and not is_metadata_id(child)
    ]:
        path.append(following[-1])
        seen.add(following[-1])
    return path


def find_passage(session: Session, id: str, neighbours: int) -> Passage:
    """An entry with as many neighbours on each side that say something. Without an id, where the session begins."""
    path = path_through(session, id) if id in session else session.path_ids()
    at = path.index(id) if id in path else 0
    reach = neighbours * _LOOKED_AT + _LOOKED_AT
    first, last = max(0, at - reach), min(len(path), at + reach + 1)
    entries = session.entries(path[first:last])
    here = at - first
    before = [entry for entry in entries[:here] if is_telling(entry)]
    before = before[-neighbours:] if neighbours else []
    after = [entry for entry in entries[here + 1 :] if is_telling(entry)][:neighbours]
    shown = [*before, *entries[here : here + 1], *after]
    places = [path.index(entry.id) for entry in (shown[0], shown[-1])] if shown else [0, len(path) - 1]
    return Passage(shown, len(before) if id in path else None, places[0], len(path) - places[1] - 1)


def is_telling(entry: Entry) -> bool:
    """Whether someone said something with it."""
    return isinstance(entry, MessageEntry | CustomMessage | Compaction | BranchSummary)


def told(entry: Entry) -> str:
    """All that an entry says, as it is printed: thoughts, calls and results with it."""
    return "\n".join(line.removeprefix("   ") for line in list(show_entry(entry))[1:-1])


def speaker(entry: Entry) -> str:
    """Who says it, in a word or two."""
    if isinstance(entry, MessageEntry):
        return show_role(entry.message)
    return "summary" if isinstance(entry, Compaction | BranchSummary) else one_line(describe_shown(entry)["type"])


def describe_neighbour(entry: Entry, longest: int) -> dict[str, Any]:
    """An entry in a few fields, its text cut."""
    text = told(entry)
    return {
        "entry": entry.id,
        "role": speaker(entry),
        "time": entry.timestamp,
        "text": text[:longest],
        "length": len(text),
    }
