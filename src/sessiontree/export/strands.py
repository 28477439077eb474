"""A session as strands: the active path first, then every other branch from where it leaves another one.

Which entries follow each other is the dialect's knowledge (`find_history`). Entries that say nothing and lead nowhere
(labels, usage, settings hung on an entry) make no branch of their own: they ride along behind the entry they hang on.
"""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct

from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.reader import Reader
from sessiontree.views.graph import SPEAKING

_ASKED = 64
"""How many branches the dialect is asked about. Beyond that the parents have to do: asking takes a walk to the root."""


class Strand(Struct):
    """Entries that follow each other, by their numbers in file order."""

    nodes: list[int]
    fork: int | None = None
    """The entry it leaves from; None for one that starts from nothing."""
    active: bool = False


class Outline(Struct, frozen=True):
    """All strands, parents before children, and the entries that belong to none."""

    strands: list[Strand]
    loose: list[int]
    """Lines beside the tree, and entries that a later one with the same id replaced."""


def build_outline(session: Reader) -> Outline:
    """The strands of a session. No body is read but by the dialect."""
    history = _history(session, session.node_of(session.leaf))
    parents = _conversation_parents(session, history)
    children: dict[int | None, list[int]] = {}
    for node in sorted(parents):
        children.setdefault(parents[node], []).append(node)
    speaking = _speaking(session, parents)

    first = Strand([], active=True)
    strands = [first]
    on_path = set(history)
    pending: list[tuple[int, int | None]] = []

    def follow(strand: Strand, run: list[int]) -> None:
        """Put a run of entries on a strand, with what rides along; note the branches that leave it."""
        after = dict(pairwise(run))
        for node in run:
            strand.nodes.append(node)
            for child in children.get(node, ()):
                if child == after.get(node) or child in on_path:
                    continue
                if child in speaking:
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
            below = [child for child in children.get(run[-1], ()) if child in speaking and child not in on_path]
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
    """What each entry follows: as the dialect tells a history, else by the parent its line names."""
    tree = session.journal.tree
    parents: dict[int, int | None] = {}

    def place(nodes: list[int]) -> None:
        before: int | None = None
        for node in nodes:
            parents.setdefault(node, before)
            before = node

    place(history)
    asked = 0
    for leaf in session.leaves():
        node = tree.node_of[leaf]
        if node not in parents:
            asked += 1
            if asked > _ASKED:
                break
            place(_history(session, node))
    shadowed = session.shadowed
    for node, id in enumerate(tree.ids):
        if node not in parents and not is_metadata_id(id) and node not in shadowed:
            parents[node] = tree.parent(node)
    return parents


def _speaking(session: Reader, parents: dict[int, int | None]) -> set[int]:
    """The entries that say something, and those that lead to one that does."""
    types = session.journal.types
    speaking: set[int] = set()
    for node in parents:
        at: int | None = node
        if types[node] in SPEAKING:
            while at is not None and at not in speaking:
                speaking.add(at)
                at = parents.get(at)
    return speaking


def _below(node: int, children: dict[int | None, list[int]]) -> list[int]:
    """An entry and everything under it."""
    found, pending = [], [node]
    while pending:
        found.append(pending.pop())
        pending += reversed(children.get(found[-1], ()))
    return found
