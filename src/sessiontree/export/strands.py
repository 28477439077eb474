"""Split a session into strands: the active path first, then every other branch from where it forks.

The dialect decides which entries the active path has (`find_history`). The other strands are the lanes of the layout,
as far as they are not on that path. Entries without content or successors (labels, usage, settings) do not form a
branch: they are placed after their parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise

from msgspec import Struct

from sessiontree.branches.session_layout import find_layout
from sessiontree.core.layout import NO_NODE
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.reader import Reader

_MAX_HISTORIES = 64
"""Branches whose history the dialect computes to find their metadata lines, each by a walk to the root."""


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
    strands = [Strand(history, active=True), *_find_branches(session, _flags(session, [history]))]
    following = _find_following(session, strands)
    strands += [Strand([root]) for root in following.get(None, ())]
    for strand in strands:
        strand.nodes = _with_following(strand.nodes, following)
    placed = _flags(session, (strand.nodes for strand in strands))
    return Outline(strands, [node for node in range(len(session)) if not placed[node]])


def _flags(session: Reader, parts: Iterable[Sequence[int]]) -> bytearray:
    """By node: whether it is in one of some sequences. A set takes much more memory in a huge session."""
    flags = bytearray(len(session))
    for part in parts:
        for node in part:
            flags[node] = True
    return flags


def _history(session: Reader, leaf: int | None) -> list[int]:
    return session.dialect.find_history(session.journal, leaf, session.read_options)


def _find_branches(session: Reader, on_path: bytearray) -> list[Strand]:
    """The parts of lanes that are not on the active path, in the order in which they start."""
    layout, tree, shadowed = find_layout(session, {}), session.journal.tree, session.shadowed
    parents = tree.parents()
    found: list[Strand] = []
    current: dict[int, Strand] = {}
    """By lane: the strand that its next entry continues."""
    used = bytearray(on_path)
    for node in layout.rows():
        lane = layout.lanes[node]
        if on_path[node]:
            current.pop(lane, None)
        elif node not in shadowed:
            run = [node]
            above = parents[node]
            while above is not None and not layout.placed[above] and not used[above]:
                run.append(above)  # a setting between two messages of the branch
                above = parents[above]
            if lane not in current:
                fork = above if above is not None else layout.before[node]  # a compaction may be a root in the file
                current[lane] = Strand([], None if fork == NO_NODE else fork)
                found.append(current[lane])
            current[lane].nodes += reversed(run)
            for each in run:
                used[each] = True
    return found


def _find_following(session: Reader, strands: Sequence[Strand]) -> dict[int | None, list[int]]:
    """Entries that are in no strand yet, by the entry they are placed after."""
    tree, shadowed = session.journal.tree, session.shadowed
    placed = _flags(session, (strand.nodes for strand in strands))
    following: dict[int | None, list[int]] = {}
    for node, (id, parent) in enumerate(zip(tree.ids, tree.parents(), strict=True)):
        if not placed[node] and node not in shadowed and not is_metadata_id(id):
            following.setdefault(parent, []).append(node)
    for before, node in _iter_metadata(session, strands[0].nodes):
        if placed[node]:
            continue
        placed[node] = True
        following.setdefault(before, []).append(node)
    return following


def _iter_metadata(session: Reader, active: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Metadata lines that are part of a branch, each with the entry before it."""
    if session.dialect.traits.one_line_per_entry:
        return
    ids, known = session.journal.tree.ids, set(active)
    # Most leaves of a transcript with parallel calls are results, which the history of another leaf includes.
    leaves = (leaf for leaf in map(session.node_of, session.leaves()) if leaf is not None and leaf not in known)
    for leaf in islice(leaves, _MAX_HISTORIES):
        history = _history(session, leaf)
        known.update(history)
        yield from ((before, node) for before, node in pairwise(history) if is_metadata_id(ids[node]))


def _with_following(nodes: Sequence[int], following: dict[int | None, list[int]]) -> list[int]:
    """Insert entries after those they follow."""
    found: list[int] = []
    pending = list(reversed(nodes))
    while pending:
        found.append(pending.pop())
        pending += reversed(following.get(found[-1], ()))
    return found
