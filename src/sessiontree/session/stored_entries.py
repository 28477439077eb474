"""A sequence of a session's entries that stays in the file if it is large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sessiontree.core.entries import Entry
from sessiontree.core.messages import MAX_KEPT
from sessiontree.session.journal import Journal


class StoredEntries:
    """The entries of some nodes. Up to `MAX_KEPT` bytes of lines are read once; more than that on each iteration."""

    def __init__(self, journal: Journal, nodes: Sequence[int]) -> None:
        self._journal = journal
        self._nodes = nodes
        self._entries: list[Entry] | None = None
        if journal.size <= MAX_KEPT or sum(journal.sizes(nodes)) <= MAX_KEPT:
            self._entries = journal.entries(nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, at: int) -> Entry:
        return self._entries[at] if self._entries is not None else self._journal.entries([self._nodes[at]])[0]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries) if self._entries is not None else self._journal.iter_entries(self._nodes)
