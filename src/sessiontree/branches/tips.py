"""Tips: the last message of each branch of a session."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from sessiontree.branches.merge_records import history_nodes
from sessiontree.core.entries import CONTEXT_TYPES
from sessiontree.dialects.contract import HistoryLinks
from sessiontree.session.reader import Reader


def find_tips(session: Reader) -> list[int]:
    """Find the tips, newest first.

    An entry in the history of another tip is not a tip: a result next to other results of its call, for example, or an
    entry before a compaction.
    """
    return find_linked_tips(session, history_links(session))


def find_linked_tips(session: Reader, links: HistoryLinks | None) -> list[int]:
    """Find the tips, given the links of histories if there are any."""
    return _compare_histories(session) if links is None else _follow_links(session, links)


def count_tips(session: Reader) -> int:
    """Count the tips. Listings call this for every session, so the common case of one leaf is fast."""
    if len(session.leaves()) <= 1:
        return int(not CONTEXT_TYPES.isdisjoint(session.journal.types))
    return len(find_tips(session))


def history_links(session: Reader) -> HistoryLinks | None:
    """The links of the histories of a session; None if each history has to be found on its own."""
    return session.dialect.find_history_links(session.journal, session.read_options)


def _follow_links(session: Reader, links: HistoryLinks) -> list[int]:
    """Find the tips by links alone: each entry is visited a few times, however many branches there are."""
    parents, types = links.parents, session.journal.types
    ends = set[int]()
    visited = bytearray(len(parents))
    for leaf in _newest_leaves(session):
        if leaf in links.hidden:
            continue
        node: int | None = links.ends.get(leaf, leaf)
        while node is not None and not visited[node] and types[node] not in CONTEXT_TYPES:
            visited[node] = True  # a leaf below it has the same last message
            node = parents[node]
        if node is not None and not visited[node]:
            visited[node] = True
            ends.add(node)
    found: list[int] = []
    passed = bytearray(len(parents))
    for end in sorted(ends, reverse=True):
        if not passed[end]:
            found.append(end)
            node = end
            while node is not None and not passed[node]:
                passed[node] = True
                node = parents[node]
    return found


def _compare_histories(session: Reader) -> list[int]:
    """Find the tips of a session whose histories are not simply paths. Only one history is in memory at a time."""
    tree = session.journal.tree
    ends: set[int] = set()
    seen = bytearray(len(tree))
    newest_end = array("q", [-1]) * len(tree)
    """By node: the newest end that has it in its history."""
    for leaf in _newest_leaves(session):
        if seen[leaf]:
            continue
        history = history_nodes(session, tree.ids[leaf])
        end = tip_of(session, history)
        before = len(history) if end is None else history.index(end)
        for at, node in enumerate(history):
            seen[node] = True
            if end is not None and at < before and newest_end[node] < end:
                newest_end[node] = end
        if end is not None:
            ends.add(end)
    return sorted((end for end in ends if newest_end[end] < end), reverse=True)


def _newest_leaves(session: Reader) -> list[int]:
    node_of = session.journal.tree.node_of
    leaves = {node_of[leaf] for leaf in session.leaves()}
    # The current entry can have children that belong to no branch, such as lines of a sub-agent.
    current = session.node_of(session.leaf)
    return sorted(leaves if current is None else leaves | {current}, reverse=True)


def tip_of(session: Reader, history: Sequence[int]) -> int | None:
    """Last message of a history; labels, settings and moves are not tips."""
    types = session.journal.types
    return next((node for node in reversed(history) if types[node] in CONTEXT_TYPES), None)
