"""Where the branches of a session end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sessiontree.branches.merge_records import history_nodes
from sessiontree.session.reader import Reader

SPEAKING = frozenset({"message", "custom_message", "branch_summary"})
"""Entries that say something and can be said again elsewhere."""

_ENDING = SPEAKING | {"compaction"}


def find_ends(session: Reader) -> dict[int, list[int]]:
    """The last thing said on each branch, with what leads to it, the newest first. One that another branch passes by
    is no end: a result that stands beside the others of its answer, say, or what stands before a compaction."""
    return _ends(session, session.leaves(), history_nodes)


def count_ends(session: Reader) -> int:
    """How many branches there are, in as little time as that takes: whoever lists sessions asks for each of them."""
    types, leaves = session.journal.types, session.leaves()
    if len(leaves) <= 1:
        return int(not _ENDING.isdisjoint(types))
    return len(_ends(session, leaves, history_nodes if "compaction" in types else _path_nodes))


def _path_nodes(session: Reader, leaf: str | None) -> list[int]:
    """Where nothing was compacted, all that was said before a leaf is on its path."""
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
        end = end_of(session, history)
        if end is not None:
            ends.setdefault(end, history[: history.index(end) + 1])
    found: dict[int, list[int]] = {}
    passed: set[int] = set()
    for end in sorted(ends, reverse=True):
        if end not in passed:
            found[end] = ends[end]
            passed.update(ends[end])
    return found


def end_of(session: Reader, history: Sequence[int]) -> int | None:
    """The last thing that was said; labels, settings and moves end no branch."""
    types = session.journal.types
    return next((node for node in reversed(history) if types[node] in _ENDING), None)
