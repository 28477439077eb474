"""Entries to a tree: parents, children, roots, leaves, paths, common ancestors. Pure, and it never hangs.

A node is an entry's number in file order. The tree is fed ids and parent ids in that order (`extend`), may be fed more
at any time, and answers for whatever it has. Rules for what should not happen:

* the same id twice: the later entry stands for the id, the earlier one is kept as a node of its own without children;
* a parent that is not there (yet): the node is a root until its parent comes, which may be later in the file;
* a node that is its own parent, or a ring of nodes: the earliest of the ring in file order becomes a root.

Each of these is an `Oddity`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

TreeProblemKind = Literal["duplicate-id", "missing-parent", "self-parent", "cycle", "forward-reference"]


class TreeProblem(Struct, frozen=True):
    """Something about a node that should not be, and the id it is about."""

    node: int
    kind: TreeProblemKind
    id: str


class Tree:
    """The tree of one session. Cheap to extend, lazy in everything else. "No node" is None throughout."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.node_of: dict[str, int] = {}
        self._parents: list[int | None] = []
        self._unresolved: dict[int, str] = {}
        self._looks_ahead = False
        self._settled = 0
        self._oddities: tuple[TreeProblem, ...] = ()
        self._cuts: dict[int, int] = {}
        """Nodes that were made roots to open a ring, and the parents they name."""
        self._children: dict[int | None, list[int]] = {}
        self._children_upto = 0

    def __len__(self) -> int:
        return len(self.ids)

    def append(self, id: str, parent: str | None) -> int:
        """Add one node; its number is given back."""
        node = len(self.ids)
        found = self.node_of.get(parent) if parent is not None else None
        if id in self.node_of or (found is None and parent is not None):
            self.extend([id], [parent])
            return node
        self.ids.append(id)
        self.node_of[id] = node
        self._parents.append(found)
        if self._settled == node and not self._unresolved:  # nothing odd came in: what was settled still is
            self._settled = node + 1
        return node

    def extend(self, ids: Sequence[str], parents: Sequence[str | None]) -> None:
        """Add nodes in file order."""
        first = len(self.ids)
        last = first + len(ids)
        self.ids.extend(ids)
        self.node_of.update(zip(ids, range(first, last), strict=True))
        found: list[int | None] = list(map(self.node_of.get, parents))  # type: ignore[arg-type]
        self._parents += found
        if found == list(range(first - 1, last - 1)):
            return  # each follows the one before it: nothing can be missing or point ahead
        for node, (parent, parent_id) in enumerate(zip(found, parents, strict=True), first):
            if parent is None:
                if parent_id is not None:
                    self._unresolved[node] = parent_id
            elif parent >= node:
                self._looks_ahead = True

    def parent(self, node: int) -> int | None:
        """The parent of a node, or None for a root."""
        self._settle()
        return self._parents[node]

    def parents(self) -> Sequence[int | None]:
        """The parent of each node, by number."""
        self._settle()
        return self._parents

    def is_orphan(self, node: int) -> bool:
        """Whether a node names a parent that is not there."""
        return self.missing_parent(node) is not None

    def missing_parent(self, node: int) -> str | None:
        """The id of the parent a node names, if that parent is not there."""
        self._settle()
        return self._unresolved.get(node)

    def path(self, node: int | None) -> list[int]:
        """Root to node. Of None, an empty path."""
        self._settle()
        parents = self._parents
        path: list[int] = []
        while node is not None:
            path.append(node)
            node = parents[node]
        path.reverse()
        return path

    def children(self, node: int | None) -> list[int]:
        """The children of a node in file order; of None, the roots."""
        self._settle()
        if self._children_upto != len(self.ids):
            self._children = {}
            for child, parent in enumerate(self._parents):
                self._children.setdefault(parent, []).append(child)
            self._children_upto = len(self.ids)
        return self._children.get(node, [])

    def roots(self) -> list[int]:
        return self.children(None)

    def leaves(self) -> list[int]:
        """The nodes without children, in file order."""
        self._settle()
        inner = set(self._parents)
        return [node for node in range(len(self.ids)) if node not in inner]

    def common_ancestor(self, one: int | None, other: int | None) -> int | None:
        """The deepest node on both paths, a node itself included; None when they share none."""
        on_path = set(self.path(one))
        parents = self._parents
        while other is not None and other not in on_path:
            other = parents[other]
        return other

    def iter_subtree(self, node: int | None) -> Iterator[int]:
        """A node and everything below it, depth first, children in file order. Of None, the whole tree."""
        pending = [node] if node is not None else self.roots()[::-1]
        while pending:
            current = pending.pop()
            yield current
            pending.extend(reversed(self.children(current)))

    def problems(self) -> tuple[TreeProblem, ...]:
        """What should not be, in file order."""
        self._settle()
        return self._oddities

    def _settle(self) -> None:
        """Bring links up to date after an `extend` that left something open. Free when there was nothing odd."""
        size = len(self.ids)
        if self._settled == size:
            return
        self._settled = size
        if not self._unresolved and not self._looks_ahead and len(self.node_of) == size:
            return
        for node, parent in self._cuts.items():  # what came since may have opened the ring elsewhere
            self._parents[node] = parent
        self._cuts = {}
        problems = self._settle_duplicates() + self._settle_missing()
        if self._looks_ahead:
            problems += self._cut_rings() + self._forward_references()
        self._children_upto = 0
        self._oddities = tuple(sorted(problems, key=lambda problem: problem.node))

    def _settle_duplicates(self) -> list[TreeProblem]:
        if len(self.node_of) == len(self.ids):
            return []
        shadowed = {node: self.node_of[id] for node, id in enumerate(self.ids) if self.node_of[id] != node}
        for node, parent in enumerate(self._parents):
            if parent in shadowed:
                self._parents[node] = shadowed[parent]
                self._looks_ahead = True  # the id's later entry may stand behind its child
        return [TreeProblem(node, "duplicate-id", self.ids[node]) for node in shadowed]

    def _settle_missing(self) -> list[TreeProblem]:
        problems: list[TreeProblem] = []
        for node, parent in list(self._unresolved.items()):
            found = self.node_of.get(parent)
            if found is None:
                problems.append(TreeProblem(node, "missing-parent", parent))
            else:
                self._parents[node] = found
                self._looks_ahead = True
                del self._unresolved[node]
        return problems

    def _cut_rings(self) -> list[TreeProblem]:
        """Make the earliest node of each ring a root. Every node is walked once."""
        problems: list[TreeProblem] = []
        parents = self._parents
        fresh, walking, done = 0, 1, 2
        state = bytearray(len(parents))
        for start in range(len(parents)):
            walk: list[int] = []
            node: int | None = start
            while node is not None and state[node] == fresh:
                state[node] = walking
                walk.append(node)
                node = parents[node]
            if node is not None and state[node] == walking:
                ring = walk[walk.index(node) :]
                first = min(ring)
                named = ring[ring.index(first) + 1] if first != ring[-1] else ring[0]
                problems.append(TreeProblem(first, "self-parent" if len(ring) == 1 else "cycle", self.ids[named]))
                self._cuts[first] = named
                parents[first] = None
            for walked in walk:
                state[walked] = done
        return problems

    def _forward_references(self) -> list[TreeProblem]:
        return [
            TreeProblem(node, "forward-reference", self.ids[parent])
            for node, parent in enumerate(self._parents)
            if parent is not None and parent > node
        ]
