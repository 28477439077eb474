"""Ends of branches: the last message of each history that is not in the middle of a newer one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from sessiontree.core.entries import CONTEXT_TYPES
from sessiontree.dialects.contract import HistoryLinks
from sessiontree.session.history import history_nodes
from sessiontree.session.reader import Reader

IsMessage = Callable[[int], bool]


class BranchEnd(Struct, frozen=True):
    """The end of a branch, and the leaf that it was found from."""

    node: int
    """Its last message. Labels, settings and moves after it do not count."""
    before: int | None
    """The node before it. Histories with the same last message can differ in it, for example after a compaction."""
    leaf: int


def find_branch_ends(
    session: Reader,
    links: HistoryLinks | None,
    leaves: Iterable[int],
    *,
    is_message: IsMessage | None = None,
    distinct_contexts: bool = False,
) -> list[BranchEnd]:
    """Find the ends of the branches of some leaves, newest first.

    An entry in the history of a newer end is not an end: a result next to other results of its call, for example, or
    an entry before a compaction. Of leaves with the same end, the first one counts; with `distinct_contexts`, the first
    one for each node before that end.
    """
    is_message = is_message or _context_test(session)
    if links is None:
        return _compare_histories(session, leaves, is_message, distinct_contexts=distinct_contexts)
    return _follow_links(links, leaves, is_message)


def newest_leaves(session: Reader, current: str | None) -> list[int]:
    """The leaves that branches are found from, newest first: those of the tree, and the current entry.

    The current entry can have children that belong to no branch, such as lines of a sub-agent.
    """
    node_of = session.journal.tree.node_of
    leaves = {node_of[leaf] for leaf in session.leaves()}
    node = session.node_of(current)
    return sorted(leaves if node is None else leaves | {node}, reverse=True)


def _context_test(session: Reader) -> IsMessage:
    types = session.journal.types
    return lambda node: types[node] in CONTEXT_TYPES


def _follow_links(links: HistoryLinks, leaves: Iterable[int], is_message: IsMessage) -> list[BranchEnd]:
    """Find the ends by links alone: each entry is visited a few times, however many branches there are."""
    parents = links.parents
    ends: dict[int, BranchEnd] = {}
    visited = bytearray(len(parents))
    for leaf in leaves:
        if leaf in links.hidden:
            continue
        node: int | None = links.ends.get(leaf, leaf)
        while node is not None and not visited[node] and not is_message(node):
            visited[node] = True  # a leaf below it has the same last message
            node = parents[node]
        if node is not None and not visited[node]:
            visited[node] = True
            ends[node] = BranchEnd(node, parents[node], leaf)
    found: list[BranchEnd] = []
    passed = bytearray(len(parents))
    for end in sorted(ends, reverse=True):
        if not passed[end]:
            found.append(ends[end])
            node = end
            while node is not None and not passed[node]:
                passed[node] = True
                node = parents[node]
    return found


def _compare_histories(
    session: Reader, leaves: Iterable[int], is_message: IsMessage, *, distinct_contexts: bool
) -> list[BranchEnd]:
    """Find the ends of a session whose histories are not simply paths. Only one history is in memory at a time."""
    tree = session.journal.tree
    ends: dict[tuple[int, int | None], BranchEnd] = {}
    seen = bytearray(len(tree))
    newest_end = array("q", [-1]) * len(tree)
    """By node: the newest end that has it in its history."""
    for leaf in leaves:
        # A result of a parallel call is a leaf of its own. A transcript can have thousands, each with a long history.
        if newest_end[leaf] >= 0 or (seen[leaf] and not distinct_contexts):
            continue
        backwards = _iter_back(session, leaf, seen)
        end = next(filter(is_message, backwards), None)
        if end is None:
            continue
        before = None
        for node in backwards:
            before = node if before is None else before
            newest_end[node] = max(newest_end[node], end)
        ends.setdefault((end, before if distinct_contexts else None), BranchEnd(end, before, leaf))
    found = [end for end in ends.values() if newest_end[end.node] < end.node]
    return sorted(found, key=lambda end: end.node, reverse=True)


def _iter_back(session: Reader, leaf: int, seen: bytearray) -> Iterator[int]:
    """Iterate over the nodes of a history, the last one first."""
    for node in reversed(history_nodes(session, session.journal.tree.ids[leaf])):
        seen[node] = True
        yield node
