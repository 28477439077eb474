"""Split a session into strands: the active path first, then every other branch from where it forks.

The dialect decides which entries follow each other (`find_history`). Entries without content or successors (labels,
usage, settings) do not form a branch: they are placed after their parent.
"""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct

from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.reader import Reader
from sessiontree.views.graph import SPEAKING

_MAX_HISTORIES = 64
"""Branches whose history the dialect computes, each by a walk to the root. The others use the parents in the file."""


class Strand(Struct):
    """A sequence of entries, by their numbers in file order."""

    nodes: list[int]
    fork: int | None = None
    """The entry it forks from; None for a root."""
    active: bool = False


class Outline(Struct, frozen=True):
    """All strands, parents before children, and the entries outside of them."""

    strands: list[Strand]
    outside: list[int]
    """Metadata lines, and entries that a later one with the same id replaced."""


def build_outline(session: Reader) -> Outline:
    """Build the strands of a session without reading bodies, unless the dialect needs them."""
    history = _history(session, session.node_of(session.leaf))
    parents = _conversation_parents(session, history)
    children: dict[int | None, list[int]] = {}
    for node in sorted(parents):
        children.setdefault(parents[node], []).append(node)
    in_branches = _nodes_in_branches(session, parents)

    first = Strand([], active=True)
    strands = [first]
    on_path = set(history)
    pending: list[tuple[int, int | None]] = []

    def follow(strand: Strand, run: list[int]) -> None:
        """Append a run of entries to a strand, and collect the branches that fork from it.

        Entries that do not form a branch are placed after their parent.
        """
        after = dict(pairwise(run))
        for node in run:
            strand.nodes.append(node)
            for child in children.get(node, ()):
                if child == after.get(node) or child in on_path:
                    continue
                if child in in_branches:
                    pending.append((child, node))
                else:
                    strand.nodes += _below(child, children)

    follow(first, history)
    roots = [root for root in children.get(None, []) if root not in on_path]
    pending += [(root, None) for root in roots]
    while pending:
        start, fork = pending.pop(0)
        run = [start]
        while True:
            below = [child for child in children.get(run[-1], ()) if child in in_branches and child not in on_path]
            if not below:
                break
            run.append(below[-1])
        strand = Strand([], fork)
        strands.append(strand)
        follow(strand, run)
    placed = {node for strand in strands for node in strand.nodes}
    return Outline(strands, [node for node in range(len(session)) if node not in placed])


def _history(session: Reader, leaf: int | None) -> list[int]:
    return session.dialect.find_history(session.journal, leaf, session.read_options)


def _conversation_parents(session: Reader, history: list[int]) -> dict[int, int | None]:
    """The predecessor of each entry: by the dialect's history, else its parent in the file."""
    tree = session.journal.tree
    parents: dict[int, int | None] = {}

    def link(nodes: list[int]) -> None:
        before: int | None = None
        for node in nodes:
            parents.setdefault(node, before)
            before = node

    link(history)
    histories = 0
    for leaf in session.leaves():
        node = tree.node_of[leaf]
        if node not in parents:
            histories += 1
            if histories > _MAX_HISTORIES:
                break
            link(_history(session, node))
    shadowed = session.shadowed
    for node, id in enumerate(tree.ids):
        if node not in parents and not is_metadata_id(id) and node not in shadowed:
            parents[node] = tree.parent(node)
    return parents


def _nodes_in_branches(session: Reader, parents: dict[int, int | None]) -> set[int]:
    """Entries that form branches: those with content, and their ancestors."""
    types = session.journal.types
    found: set[int] = set()
    for node in parents:
        at: int | None = node
        if types[node] in SPEAKING:
            while at is not None and at not in found:
                found.add(at)
                at = parents.get(at)
    return found


def _below(node: int, children: dict[int | None, list[int]]) -> list[int]:
    """An entry and all of its descendants."""
    found, pending = [], [node]
    while pending:
        found.append(pending.pop())
        pending += reversed(children.get(found[-1], ()))
    return found
