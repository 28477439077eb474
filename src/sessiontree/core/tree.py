"""The tree of a session's entries: parents, children, roots, leaves, paths, common ancestors.

A node is an entry's number in file order. Nodes are added in that order (`extend`), even after queries. Damaged input
never raises an error and never causes an endless loop. Each of these is reported as a `TreeProblem`:

* a duplicate id: the later entry has the id and all children, the earlier one stays as a node without children;
* a missing parent: the node is a root until the parent is added, which may be later in the file;
* a node that is its own parent, or a cycle: the first node of the cycle in file order becomes a root.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

_NONE = -1
"""In columns of nodes: none."""

TreeProblemKind = Literal["duplicate-id", "missing-parent", "self-parent", "cycle", "forward-reference"]


class TreeProblem(Struct, frozen=True):
    """A broken link of a node, and the id concerned."""

    node: int
    kind: TreeProblemKind
    id: str


class TreeColumns(Struct, frozen=True, array_like=True):
    """The nodes of a tree and their links, as `Tree.columns` gives them and `Tree.load` takes them."""

    ids: list[str]
    parents: bytes
    """The number of each node's parent, four bytes each; any number for the nodes of `parentless`."""
    parentless: bytes
    unresolved: dict[int, str]
    has_forward_links: bool
    cut_links: dict[int, int]


class NodeSet:
    """A set of nodes, as flags: a set of 500,000 numbers takes 33 MB."""

    __slots__ = ("flags",)

    def __init__(self, size: int, nodes: Iterable[int] = ()) -> None:
        self.flags = bytearray(size)
        for node in nodes:
            self.flags[node] = True

    def __contains__(self, node: object) -> bool:
        return isinstance(node, int) and node < len(self.flags) and bool(self.flags[node])


class Tree:
    """The tree of one session. Cheap to extend; links are checked before the first query. None means "no node"."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.node_of: dict[str, int] = {}
        self._parents: list[int | None] = []
        self._unresolved: dict[int, str] = {}
        self._has_forward_links = False
        self._settled = 0
        self._oddities: tuple[TreeProblem, ...] = ()
        self._cut_links: dict[int, int] = {}
        """Nodes that were made roots to break a cycle -> the parents they name."""
        self._children: dict[int | None, list[int]] = {}
        self._children_upto = 0

    def __len__(self) -> int:
        return len(self.ids)

    def columns(self) -> TreeColumns:
        """The nodes and links, for storing."""
        parentless = array("i", [node for node, parent in enumerate(self._parents) if parent is None])
        parents = array("i", (parent or 0 for parent in self._parents))
        return TreeColumns(
            self.ids,
            parents.tobytes(),
            parentless.tobytes(),
            self._unresolved,
            self._has_forward_links,
            self._cut_links,
        )

    def load(self, columns: TreeColumns) -> None:
        """Add stored nodes and links to an empty tree."""
        assert not self.ids, "the tree has nodes"
        parents, parentless = array("i"), array("i")
        parents.frombytes(columns.parents)
        parentless.frombytes(columns.parentless)
        self.ids = columns.ids
        self.node_of = dict(zip(columns.ids, range(len(columns.ids)), strict=True))
        self._parents = [*parents]
        for node in parentless:
            self._parents[node] = None
        self._unresolved = columns.unresolved
        self._has_forward_links = columns.has_forward_links
        self._cut_links = columns.cut_links

    def append(self, id: str, parent: str | None) -> int:
        """Add one node and return its number."""
        node = len(self.ids)
        found = self.node_of.get(parent) if parent is not None else None
        if id in self.node_of or (found is None and parent is not None):
            self.extend([id], [parent])
            return node
        self.ids.append(id)
        self.node_of[id] = node
        self._parents.append(found)
        if self._settled == node and not self._unresolved:  # a valid link does not affect earlier nodes
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
            return  # each node is a child of the one before it, as in most files: no link to check
        if found.count(None) == [*parents].count(None):  # every parent is known: only its position has to be checked
            later = any(parent is not None and parent >= node for node, parent in enumerate(found, first))
            self._has_forward_links = self._has_forward_links or later
            return
        for node, (parent, parent_id) in enumerate(zip(found, parents, strict=True), first):
            if parent is None:
                if parent_id is not None:
                    self._unresolved[node] = parent_id
            elif parent >= node:
                self._has_forward_links = True

    def parent(self, node: int) -> int | None:
        """Parent of a node, or None for a root."""
        self._settle()
        return self._parents[node]

    def parents(self) -> Sequence[int | None]:
        """Parents of all nodes, by number."""
        self._settle()
        return self._parents

    def earlier_parents(self) -> Sequence[int | None]:
        """Parents of all nodes as far as they come before them in the file, by number.

        Unlike `parents`, this never changes when nodes are added: a forward reference is a missing parent, and of
        entries with the same id the last one before the child is its parent.
        """
        self._settle()
        if not self._unresolved and not self._has_forward_links and len(self.node_of) == len(self.ids):
            return self._parents
        earlier: dict[str, int] = {}
        found: list[int | None] = []
        for node, (id, parent) in enumerate(zip(self.ids, self._parents, strict=True)):
            named = parent if parent is not None else self._cut_links.get(node)
            name = self.ids[named] if named is not None else self._unresolved.get(node)
            found.append(earlier.get(name) if name is not None else None)
            earlier[id] = node
        return found

    def find_before(self, id: str, node: int) -> int | None:
        """The last node before another one that has an id."""
        found = self.node_of.get(id)
        if found is None or found < node:
            return found
        return next((earlier for earlier in range(node - 1, -1, -1) if self.ids[earlier] == id), None)

    def is_orphan(self, node: int) -> bool:
        """Whether a node names a missing parent."""
        return self.missing_parent(node) is not None

    def missing_parent(self, node: int) -> str | None:
        """Id of the parent that a node names, if there is no such entry."""
        self._settle()
        return self._unresolved.get(node)

    def path(self, node: int | None) -> list[int]:
        """Nodes from the root to a node; empty for None."""
        self._settle()
        parents = self._parents
        path: list[int] = []
        while node is not None:
            path.append(node)
            node = parents[node]
        path.reverse()
        return path

    def children(self, node: int | None) -> list[int]:
        """Children of a node in file order; for None, the roots."""
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
        """Nodes without children, in file order."""
        self._settle()
        inner = set(self._parents)
        return [node for node in range(len(self.ids)) if node not in inner]

    def common_ancestor(self, one: int | None, other: int | None) -> int | None:
        """Deepest node on both paths (possibly one of the two nodes); None if the paths share no node."""
        on_path = set(self.path(one))
        parents = self._parents
        while other is not None and other not in on_path:
            other = parents[other]
        return other

    def find_ancestors(self, others: Mapping[int, int]) -> set[int]:
        """Nodes whose path contains the node that `others` maps them to. Each link is followed once for all of them."""
        self._settle()
        if not others:
            return set()
        # A subtree is an interval in depth-first order. Children are linked lists, which take little memory.
        size = len(self.ids)
        first, last, following = (array("q", [0]) * size for _ in range(3))
        children = array("q", [_NONE]) * (size + 1)
        """By node: its first child; the last item is the first root."""
        for node in range(size - 1, -1, -1):
            parent = self._parents[node]
            place = size if parent is None else parent
            following[node], children[place] = children[place], node
        node, order = children[size], 0
        pending: list[int] = []
        while node != _NONE or pending:
            if node == _NONE:
                node = pending.pop()
                last[node] = order
                node = following[node]
                continue
            first[node] = order = order + 1
            pending.append(node)
            node = children[node]
        return {node for node, other in others.items() if first[other] <= first[node] <= last[other]}

    def iter_subtree(self, node: int | None) -> Iterator[int]:
        """Iterate over a node and its descendants, depth first, children in file order; for None, over all nodes."""
        pending = [node] if node is not None else self.roots()[::-1]
        while pending:
            current = pending.pop()
            yield current
            pending.extend(reversed(self.children(current)))

    def problems(self) -> tuple[TreeProblem, ...]:
        """Broken links in file order."""
        self._settle()
        return self._oddities

    def _settle(self) -> None:
        """Repair links after nodes were added. Costs nothing when all links are valid."""
        size = len(self.ids)
        if self._settled == size:
            return
        self._settled = size
        if not self._unresolved and not self._has_forward_links and len(self.node_of) == size:
            return
        # Start from the links as the lines name them: a later duplicate id may have broken a cycle that was cut before.
        for node, parent in self._cut_links.items():
            self._parents[node] = parent
        self._cut_links = {}
        # The order matters: duplicates and late parents create new links, and only then can cycles be found.
        problems = self._settle_duplicates() + self._settle_missing()
        if self._has_forward_links:
            problems += self._cut_cycles() + self._forward_references()
        self._children_upto = 0
        self._oddities = tuple(sorted(problems, key=lambda problem: problem.node))

    def _settle_duplicates(self) -> list[TreeProblem]:
        if len(self.node_of) == len(self.ids):
            return []
        shadowed = {node: self.node_of[id] for node, id in enumerate(self.ids) if self.node_of[id] != node}
        for node, parent in enumerate(self._parents):
            if parent in shadowed:
                self._parents[node] = shadowed[parent]
                self._has_forward_links = True  # the later entry with this id may come after its child
        return [TreeProblem(node, "duplicate-id", self.ids[node]) for node in shadowed]

    def _settle_missing(self) -> list[TreeProblem]:
        problems: list[TreeProblem] = []
        for node, parent in list(self._unresolved.items()):
            found = self.node_of.get(parent)
            if found is None:
                problems.append(TreeProblem(node, "missing-parent", parent))
            else:
                self._parents[node] = found
                self._has_forward_links = True
                del self._unresolved[node]
        return problems

    def _cut_cycles(self) -> list[TreeProblem]:
        """Make the first node of each cycle a root. Every node is visited once."""
        problems: list[TreeProblem] = []
        parents = self._parents
        # Follow parents from each node, marking nodes as "walking". Meeting a node of the same walk again is a cycle;
        # meeting a node that is done ends the walk, because everything above it was already checked.
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
                cycle = walk[walk.index(node) :]
                first = min(cycle)
                named = cycle[cycle.index(first) + 1] if first != cycle[-1] else cycle[0]
                problems.append(TreeProblem(first, "self-parent" if len(cycle) == 1 else "cycle", self.ids[named]))
                self._cut_links[first] = named
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
