"""The chain of a transcript: what the tree alone does not say of a line, and the walk from a leaf to its root.

A link is a line that can stand on a path: of a chain type, not progress, and not replaced by a later line with the same
id. Bodies are decoded only for the lines that are asked about, and only a few facts of each are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import cast

from msgspec import Struct

from sessiontree.core.context import milliseconds
from sessiontree.core.entries import Entry, type_of
from sessiontree.dialects.claude.line_summary import LineSummary, speech_of
from sessiontree.dialects.claude.records import Fields, parse_fields, string_in
from sessiontree.dialects.contract import IndexedLines

LINK_TYPES = frozenset({"message", "compaction", "attachment", "system"})
_STEP = 64


class Facts(Struct, frozen=True):
    """What the rules ask about a line."""

    time: int | None
    session: str
    is_sidechain: bool
    is_summary: bool


class Chain:
    """The lines of one session, asked by the rules. Made for one question and then forgotten."""

    def __init__(self, lines: IndexedLines) -> None:
        self.lines = lines
        self.types = lines.types
        self.tree = lines.tree
        self.parents: Sequence[int | None] = lines.tree.parents()
        self._facts: dict[int, Facts] = {}
        self._entries: dict[int, Entry] = {}
        self._speech: dict[int, LineSummary] = {}
        self.noted = cast("Mapping[int, LineSummary | None]", lines.notes)
        self._rings: dict[int, int] | None = None
        self._all_sidechain: bool | None = None
        self._times: list[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self.types)

    def is_link(self, node: int) -> bool:
        return self.types[node] in LINK_TYPES and self.is_placed(node)

    def is_placed(self, node: int) -> bool:
        """Whether the line is part of the tree under its id: no aside, and not replaced by a later line."""
        id = self.tree.ids[node]
        return id != f"@{node}" and self.tree.node_of.get(id) == node

    def node(self, id: object) -> int | None:
        """The link with an id, if there is one."""
        found = self.tree.node_of.get(id) if isinstance(id, str) else None
        if found is None or self.types[found] not in LINK_TYPES or id == f"@{found}":
            return None
        return found

    def iter_links_before(self, end: int) -> Iterator[int]:
        return (node for node in range(end - 1, -1, -1) if self.is_link(node))

    def boundaries_before(self, end: int) -> Iterator[int]:
        """Compaction boundaries up to a node, the last one first."""
        if "compaction" not in self.types:
            return iter(())
        return (node for node in range(end, -1, -1) if self.types[node] == "compaction" and self.is_placed(node))

    def named_parent(self, node: int) -> int | None:
        """The parent a line names, also where the tree had to open a ring there."""
        parent = self.parents[node]
        return parent if parent is not None else self._ring_parents().get(node)

    def _ring_parents(self) -> dict[int, int]:
        if self._rings is None:
            kinds = ("cycle", "self-parent")
            found = (problem for problem in self.tree.problems() if problem.kind in kinds)
            self._rings = {problem.node: self.tree.node_of[problem.id] for problem in found}
        return self._rings

    def is_in_ring(self, node: int) -> bool:
        return node in self._ring_parents()

    def children(self, node: int) -> list[int]:
        """Searching is the list's own, as there can be very many lines."""
        found: list[int] = []
        at = -1
        for _ in range(self.parents.count(node)):
            at = self.parents.index(node, at + 1)
            found.append(at)
        return found

    def facts(self, node: int) -> Facts:
        if node not in self._facts:
            self.load([node])
        return self._facts[node]

    def load(self, nodes: Sequence[int]) -> None:
        """Read the facts of some lines in one go."""
        missing = [node for node in nodes if node not in self._facts]
        for start in range(0, len(missing), _STEP):
            step = missing[start : start + _STEP]
            for node, fields in zip(step, self.lines.fields(step), strict=True):
                self._facts[node] = _facts_of(fields)

    def entries(self, nodes: Sequence[int]) -> list[Entry]:
        """The entries of some lines. They are kept, as the same lines are often asked about twice."""
        missing = [node for node in nodes if node not in self._entries]
        for start in range(0, len(missing), _STEP):
            step = missing[start : start + _STEP]
            self._entries.update(zip(step, read_entries(self.lines, step), strict=True))
        return [self._entries[node] for node in nodes]

    def speech(self, node: int) -> LineSummary:
        """What a line says: as it was noted, else as its entry tells."""
        speech = self.noted.get(node) or self._speech.get(node)
        if speech is None:
            (entry,) = self.entries([node])
            speech = self._speech[node] = speech_of(entry)
        return speech

    def prepare_speech(self, nodes: Iterable[int]) -> None:
        """Read in one go the entries that `speech` will have to ask."""
        self.entries([node for node in nodes if self.noted.get(node) is None])

    @property
    def is_all_sidechain(self) -> bool:
        """Whether this is the transcript of a sub-agent: then its lines count, which elsewhere they do not."""
        if self._all_sidechain is None:
            links = (node for node in range(len(self)) if self.is_link(node))
            self._all_sidechain = all(self.facts(node).is_sidechain for node in links)
        return self._all_sidechain

    def counts(self, node: int) -> bool:
        """Whether a line can be where the session stands."""
        return self.is_link(node) and (not self.facts(node).is_sidechain or self.is_all_sidechain)

    def iter_by_time(self, node: int, within: float) -> Iterator[int]:
        """Links that are not younger than a line and at most so many milliseconds older, the youngest first.

        Among lines of the same time, those that stand before it in the file come first, the nearest first.
        """
        own = self.facts(node)
        if own.time is None:
            return
        times = self._by_time()
        upto = bisect_right(times, (own.time, len(self)))
        younger_first = (times[at] for at in range(upto - 1, -1, -1))
        for time, same in groupby(younger_first, key=lambda pair: pair[0]):
            if own.time - time > within:
                return
            others = [other for _, other in same if other != node]
            for other in sorted(others, key=lambda other: (other > node, -other)):
                if self.facts(other).is_sidechain == own.is_sidechain:
                    yield other

    def _by_time(self) -> list[tuple[int, int]]:
        if self._times is None:
            links = [node for node in range(len(self)) if self.is_link(node)]
            self.load(links)
            timed = ((self.facts(node).time, node) for node in links)
            self._times = sorted((time, node) for time, node in timed if time is not None)
        return self._times


def read_entries(lines: IndexedLines, nodes: Sequence[int]) -> list[Entry]:
    """Entries as this dialect means them: a text that looks like a reference of ours is only a text here."""
    types = lines.types
    return [
        entry if type_of(entry) == types[node] else parse_fields(lines.fields([node])[0])
        for node, entry in zip(nodes, lines.entries(nodes), strict=True)
    ]


def _facts_of(fields: Fields) -> Facts:
    return Facts(
        milliseconds(string_in(fields, "timestamp") or ""),
        string_in(fields, "sessionId") or "",
        fields.get("isSidechain") is True,
        fields.get("isCompactSummary") is True,
    )


def walk(
    chain: Chain,
    leaf: int,
    links: Mapping[int, int | None],
    mend: Callable[[int, int, set[int]], int | None],
) -> list[int]:
    """Root to leaf over named parents, or over `links` where they say otherwise. Progress is passed through.

    Where the walk comes to an end, `mend` is asked for a way on with the last line on the path, the line the walk
    stands at (progress may lie between them) and everything walked so far. A boundary is a proper end.
    """
    path: list[int] = []
    seen: set[int] = set()
    node: int | None = leaf
    types, parents = chain.types, chain.parents
    while node is not None and node not in seen:
        seen.add(node)
        kind = types[node]
        if kind != "progress":
            path.append(node)
        parent = links[node] if node in links else parents[node] or chain.named_parent(node)
        if (parent is None or parent in seen) and kind != "compaction":
            parent = mend(path[-1] if path else node, node, seen)
        node = parent
    path.reverse()
    return path
