"""Fold the entries that a compaction replaced under a line with their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from sessiontree.core.entries import Compaction
from sessiontree.export.escape import anchor
from sessiontree.export.html.environment import environment
from sessiontree.session.reader import Reader


class Fold(Struct, frozen=True):
    """Successive entries that a summary replaced."""

    compaction: str
    """The entry with the summary."""
    start: int
    end: int
    """Positions in the sequence of entries; `end` is the first one that is not folded."""


class Folds:
    """The folds of a sequence of entries, as markup between its cards."""

    def __init__(self, nodes: Sequence[int], folds: Sequence[Fold]) -> None:
        self._position = {node: at for at, node in enumerate(nodes)} if folds else {}
        self._waiting = list(reversed(folds))
        self._open: Fold | None = None

    def markup_before(self, node: int) -> Iterator[str]:
        """The markup before the card of a node: the ends and beginnings of folds."""
        at = self._position.get(node)
        if at is None:
            return
        if self._open is not None and at >= self._open.end:
            yield from self.markup_at_end()
        while self._waiting and self._waiting[-1].end <= at:
            self._waiting.pop()
        if self._open is None and self._waiting and self._waiting[-1].start <= at:
            self._open = self._waiting.pop()
            count = self._open.end - self._open.start
            macros = environment().get_template("export.html").module
            yield macros.fold_start(f"replaced-{anchor(self._open.compaction)}", anchor(self._open.compaction), count)  # type: ignore[attr-defined]

    def markup_at_end(self) -> Iterator[str]:
        if self._open is not None:
            self._open = None
            yield "</details>"


def find_folds(session: Reader, nodes: Sequence[int]) -> Folds:
    """The folds of a path or a part of one. Reads the compactions only."""
    types = session.journal.types
    compactions = [at for at, node in enumerate(nodes) if types[node] == "compaction"]
    entries = session.journal.entries([nodes[at] for at in compactions])
    position = {session.journal.tree.ids[node]: at for at, node in enumerate(nodes)} if compactions else {}
    folds: list[Fold] = []
    start = 0
    for at, entry in zip(compactions, entries, strict=True):
        if not isinstance(entry, Compaction):
            continue
        kept = position.get(entry.first_kept_entry_id or "", at)
        end = min(kept, at)
        if end > start:
            folds.append(Fold(entry.id, start, end))
        start = max(start, end)
    return Folds(nodes, folds)
