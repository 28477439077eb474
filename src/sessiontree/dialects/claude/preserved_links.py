"""Links of histories in a transcript with boundaries that preserve lines.

A history has each preserved line once, at its original position. So the history of a line that follows preserved ones
is that of their anchor (nearly always the summary), and then the line. Which boundary counts for a line is decided by
its ancestors: the last one before it that preserves one of them. A tree of intervals finds it for each line.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from msgspec import Struct

from sessiontree.dialects.claude.boundaries import LoadedLines, find_leaf_before, find_preserved
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.path import find_client_leaf


class PreservedLinks(Struct, frozen=True):
    """What boundaries preserve."""

    nodes: dict[int, tuple[int, ...]] = {}
    """By anchor: the preserved lines that follow it."""
    repeated: list[tuple[int, int]] = []
    """Lines that the links skip, and a leaf whose history has to have them: nothing would be lost then."""
    in_part: set[int] = set()
    """Lines that follow only some of the preserved ones."""
    ends: dict[int, int] = {}
    """The preserved line that is current, if one is: its history includes the boundary."""


def link_preserved_lines(
    chain: Chain, loaded: LoadedLines, boundaries: Sequence[int], parents: list[int | None]
) -> PreservedLinks | None:
    """Replace the parents of lines after preserved ones; None if their histories are not those of a parent."""
    last = boundaries[-1]
    if loaded.start != last or loaded.preserved != find_preserved(chain, last).nodes:
        return None  # the client ignores what the last boundary names, and then that of all others
    if any(parent is not None and parent > node for node, parent in enumerate(parents)):
        return None  # the loop below needs each parent before its children
    marks = _Marks(Forest(parents, range(len(parents))))
    found = PreservedLinks({}, [], set(), {})
    anchors: dict[int, int] = {}
    is_boundary = set(boundaries)
    starts = array("i", [-1]) * len(parents)
    """By line: the boundary that its context starts with."""
    for node, parent in enumerate(list(parents)):  # a copy: links replace parents on the way
        if node in is_boundary:
            starts[node] = node
            preserved = find_preserved(chain, node)
            if preserved.nodes:
                nodes = tuple(line for line in preserved.links if line in preserved.nodes)
                anchor = preserved.links[nodes[0]]
                leaf = find_leaf_before(chain, node)
                # The client preserves earlier lines only, and anchors them at the boundary or at its summary.
                if anchor is None or leaf is None or node not in (anchor, parents[anchor]) or max(nodes) > node:
                    return None
                if not is_boundary.isdisjoint(nodes):
                    return None
                anchors[node], found.nodes[anchor] = anchor, nodes
                found.repeated.extend((line, leaf) for line in nodes)
                marks.add(nodes, node)
        elif parent is not None:
            start = marks.newest(parent)
            if node > last > parent and parent not in loaded.preserved:
                # Hidden by the last boundary: only user and assistant lines follow the last preserved line instead.
                if not loaded.preserved or not chain.facts(node).is_turn:
                    return None
                start = last
            elif start > starts[parent]:
                leaf = find_leaf_before(chain, start)
                assert leaf is not None
                found.repeated.append((parent, leaf))
                if parent != found.nodes[anchors[start]][-1]:
                    found.in_part.add(node)
            if start > starts[parent]:
                parents[node] = anchors[start]
            starts[node] = max(start, starts[parent])
    current = find_client_leaf(chain)
    if current is not None and current in loaded.preserved:
        found.ends[current] = anchors[last]
    return found


def find_order(parents: Sequence[int | None]) -> array[int] | None:
    """Return all nodes, each of them after its parent; None if there is a cycle."""
    order = array("i")
    state = bytearray(len(parents))
    for start in range(len(parents)):
        walked: list[int] = []
        node: int | None = start
        while node is not None and not state[node]:
            state[node] = 1
            walked.append(node)
            node = parents[node]
        if node is not None and state[node] == 1:
            return None
        for node in walked:
            state[node] = 2
        order.extend(reversed(walked))
    return order


class Forest:
    """Trees as intervals: the interval of a node contains those of its descendants."""

    def __init__(self, parents: Sequence[int | None], nodes: Sequence[int]) -> None:
        """`nodes` has each node after its parent."""
        self.sizes = array("i", [1]) * len(parents)
        for node in reversed(nodes):
            parent = parents[node]
            if parent is not None:
                self.sizes[parent] += self.sizes[node]
        self.starts = array("i", [0]) * len(parents)
        free = array("i", [0]) * len(parents)
        """By node: where the interval of its next child starts."""
        end = 0
        for node in nodes:
            parent = parents[node]
            start = end if parent is None else free[parent]
            if parent is None:
                end += self.sizes[node]
            else:
                free[parent] += self.sizes[node]
            self.starts[node], free[node] = start, start + 1

    def is_above(self, ancestor: int, node: int) -> bool:
        """Whether a node is the other one, or descends from it."""
        return 0 <= self.starts[node] - self.starts[ancestor] < self.sizes[ancestor]


class _Marks:
    """Marks subtrees with ever larger numbers, and finds the largest number of a node, in logarithmic time.

    A segment tree: `_marks[1]` covers all starts, `_marks[i]` those of `_marks[2 * i]` and `_marks[2 * i + 1]`.
    """

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self._count = len(forest.starts)
        self._marks = array("i", [-1]) * (2 * self._count)

    def add(self, nodes: Iterable[int], mark: int) -> None:
        for node in nodes:
            low = self._forest.starts[node] + self._count
            high = low + self._forest.sizes[node]
            while low < high:
                if low & 1:
                    self._marks[low] = mark
                    low += 1
                if high & 1:
                    high -= 1
                    self._marks[high] = mark
                low, high = low >> 1, high >> 1

    def newest(self, node: int) -> int:
        at = self._forest.starts[node] + self._count
        found = -1
        while at:
            found = max(found, self._marks[at])
            at >>= 1
        return found
