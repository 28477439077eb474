"""Tips: the last message of each branch of a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sessiontree.branches.merge_records import history_nodes
from sessiontree.core.entries import CONTEXT_TYPES
from sessiontree.session.reader import Reader


def find_tips(session: Reader) -> dict[int, list[int]]:
    """Find the tips with their histories, the newest first.

    An entry in the history of another tip is not a tip: a result next to other results of its call, for example, or an
    entry before a compaction.
    """
    return _ends(session, session.leaves(), history_nodes)


def count_tips(session: Reader) -> int:
    """Count the tips. Listings call this for every session, so the common case of one leaf is fast."""
    types, leaves = session.journal.types, session.leaves()
    if len(leaves) <= 1:
        return int(not CONTEXT_TYPES.isdisjoint(types))
    return len(_ends(session, leaves, history_nodes if "compaction" in types else _path_nodes))


def _path_nodes(session: Reader, leaf: str | None) -> list[int]:
    """History of a leaf in a session without compactions, where it is simply the path."""
    return session.dialect.find_path(session.journal, session.node_of(leaf), session.read_options)


def _ends(
    session: Reader, leaves: Sequence[str], before: Callable[[Reader, str | None], list[int]]
) -> dict[int, list[int]]:
    ends: dict[int, list[int]] = {}
    seen: set[int] = set()
    node_of = session.journal.tree.node_of
    for leaf in sorted(leaves, key=lambda leaf: node_of[leaf], reverse=True):
        if node_of[leaf] in seen:
            continue
        history = before(session, leaf)
        seen.update(history)
        end = tip_of(session, history)
        if end is not None:
            ends.setdefault(end, history[: history.index(end) + 1])
    found: dict[int, list[int]] = {}
    passed: set[int] = set()
    for end in sorted(ends, reverse=True):
        if end not in passed:
            found[end] = ends[end]
            passed.update(ends[end])
    return found


def tip_of(session: Reader, history: Sequence[int]) -> int | None:
    """Last message of a history; labels, settings and moves are not tips."""
    types = session.journal.types
    return next((node for node in reversed(history) if types[node] in CONTEXT_TYPES), None)
