"""Complete histories of entries, in the order of the conversation, and the links that describe all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sessiontree.core.tree import Tree
from sessiontree.dialects.contract import HistoryLinks, is_metadata_id
from sessiontree.session.reader import Reader


def history_ids(session: Reader, leaf: str | None) -> list[str]:
    """Ids of the complete history of an entry, including entries before a compaction."""
    tree = session.journal.tree
    return [tree.ids[node] for node in history_nodes(session, leaf)]


def history_nodes(session: Reader, leaf: str | None) -> list[int]:
    """Nodes of the complete history of an entry, in the order of the conversation."""
    # Some clients use the order of lines, which can differ from the tree's after a rewrite.
    end = session.node_of(leaf)
    nodes = session.dialect.find_history(session.journal, end, session.read_options)
    return nodes if session.dialect.traits.one_line_per_entry else _sort_history(nodes, session.journal.tree, end)


def history_links(session: Reader) -> HistoryLinks | None:
    """The links of the histories of a session; None if each history has to be found on its own."""
    return session.dialect.find_history_links(session.journal, session.read_options)


def _sort_history(nodes: Sequence[int], tree: Tree, end: int | None) -> list[int]:
    """Sort a history with parents before children, and entries that are not below the path before it."""
    chain: list[int] = []
    metadata_before: dict[int, list[int]] = {}
    """The metadata lines before a node of the tree."""
    metadata: list[int] = []
    for node in nodes:
        if is_metadata_id(tree.ids[node]):
            metadata.append(node)
            continue
        chain.append(node)
        if metadata:
            metadata_before[node] = metadata
            metadata = []
    of_path, is_known = _flags(tree, tree.path(end)), _flags(tree, chain)
    for node in _parents_first(chain, tree):
        passed = [node]
        parent = tree.parent(node)
        while parent is not None and not is_known[parent] and not of_path[parent]:
            passed.append(parent)  # not part of the history, such as a progress line
            parent = tree.parent(parent)
        for each in passed:
            of_path[each] = of_path[each] or (parent is not None and of_path[parent])
            is_known[each] = True
    ordered = _parents_first([node for node in chain if not of_path[node]], tree)
    ordered += _parents_first([node for node in chain if of_path[node]], tree)
    if not metadata_before:
        return ordered + metadata
    return [each for node in ordered for each in (*metadata_before.get(node, ()), node)] + metadata


def _parents_first(nodes: Sequence[int], tree: Tree) -> list[int]:
    """Sort nodes so that each comes after its parent, changing as little as possible."""
    missing = _flags(tree, nodes)
    """By node: whether it is one of the nodes and not sorted yet."""
    waiting: dict[int, list[int]] = {}
    ordered: list[int] = []
    for node in nodes:
        parent = tree.parent(node)
        if parent is not None and missing[parent]:
            waiting.setdefault(parent, []).append(node)
            continue
        ready = [node]
        while ready:
            ordered.append(ready.pop())
            missing[ordered[-1]] = False
            ready += reversed(waiting.pop(ordered[-1], []))
    return ordered


def _flags(tree: Tree, nodes: Iterable[int]) -> bytearray:
    """By node: whether it is one of some nodes. A history can have half a million of them: a set takes more memory."""
    flags = bytearray(len(tree))
    for node in nodes:
        flags[node] = True
    return flags
