"""An entry with its neighbors on the branch through it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sessiontree.core.entries import BranchSummary, Compaction, CustomMessage, Entry, MessageEntry
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.reader import Reader
from sessiontree.views.json import describe_shown
from sessiontree.views.text import one_line
from sessiontree.views.transcript import show_entry, show_role

_READ_PER_NEIGHBOR = 4
"""Entries read per wanted neighbor: some of them have no text."""


class Passage(Struct, frozen=True):
    """Consecutive entries of a branch."""

    entries: list[Entry]
    at: int | None
    """Index of the requested entry; None if there is none."""
    before: int
    """Number of entries before these on the branch."""
    after: int

    @property
    def around(self) -> tuple[list[Entry], list[Entry]]:
        """The neighbors before and after the entry."""
        at = -1 if self.at is None else self.at
        return self.entries[: max(at, 0)], self.entries[at + 1 :]


def path_through(session: Reader, id: str) -> list[str]:
    """The ids of the branch through an entry: the active one, else the newest that continues from it."""
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


def find_passage(session: Reader, id: str, neighbors: int) -> Passage:
    """Find an entry and `neighbors` entries with text on each side. Without an id, start at the beginning."""
    path = path_through(session, id) if id in session else session.path_ids()
    at = path.index(id) if id in path else 0
    reach = neighbors * _READ_PER_NEIGHBOR + _READ_PER_NEIGHBOR
    first, last = max(0, at - reach), min(len(path), at + reach + 1)
    entries = session.entries(path[first:last])
    here = at - first
    before = [entry for entry in entries[:here] if has_text(entry)]
    before = before[-neighbors:] if neighbors else []
    after = [entry for entry in entries[here + 1 :] if has_text(entry)][:neighbors]
    shown = [*before, *entries[here : here + 1], *after]
    ends = [path.index(entry.id) for entry in (shown[0], shown[-1])] if shown else [0, len(path) - 1]
    return Passage(shown, len(before) if id in path else None, ends[0], len(path) - ends[1] - 1)


def has_text(entry: Entry) -> bool:
    """Whether an entry has text of a person or a model."""
    return isinstance(entry, MessageEntry | CustomMessage | Compaction | BranchSummary)


def entry_text(entry: Entry) -> str:
    """The full text of an entry, with thinking, calls and results."""
    return "\n".join(line.removeprefix("   ") for line in list(show_entry(entry))[1:-1])


def speaker(entry: Entry) -> str:
    """The speaker in a word or two."""
    if isinstance(entry, MessageEntry):
        return show_role(entry.message)
    return "summary" if isinstance(entry, Compaction | BranchSummary) else one_line(describe_shown(entry)["type"])


def describe_neighbor(entry: Entry, longest: int) -> dict[str, Any]:
    """An entry in a few fields, with its text cut."""
    text = entry_text(entry)
    return {
        "entry": entry.id,
        "role": speaker(entry),
        "time": entry.timestamp,
        "text": text[:longest],
        "length": len(text),
    }
