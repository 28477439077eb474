"""The chain of a transcript: the facts its rules need about each line, and the walk from a leaf to its root.

A link is a line that can be on a path: of a chain type, not progress, and not replaced by a later line with the same
uuid (the client indexes lines by uuid, so a later one wins). Bodies are decoded only for lines that the rules need, and
only a few facts of each are kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from sys import intern
from typing import TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from sessiontree.core.entries import Entry, milliseconds, type_of
from sessiontree.core.jsonio import parse_object
from sessiontree.core.tree import NodeSet, Tree
from sessiontree.dialects.claude.index import LineSummary, summarize_entry
from sessiontree.dialects.claude.messages import parse_fields
from sessiontree.dialects.claude.records import string_in, timestamp_in
from sessiontree.dialects.contract import IndexedLines

LINK_TYPES = frozenset({"message", "compaction", "attachment", "system"})
_BATCH = 64
MAX_SEARCHES = 8
"""Number of searches of a whole transcript before an index of its lines is built."""

T = TypeVar("T")

# Commands ask about each branch of a transcript in turn, each time with another chain.
_computed: WeakKeyDictionary[Tree, _Computed] = WeakKeyDictionary()

Bridge: TypeAlias = Callable[[int, int, "NodeSet"], int | None]
"""Returns a parent where the walk ends: (last link on the path, line where it ended, lines walked) -> line."""


class _Computed(Struct):
    """What was computed about a transcript, by the function that did it, as long as it has this number of lines."""

    line_count: int
    found: dict[object, object] = {}
    searches: int = 0
    """Number of times that all lines were searched for a few."""


class Facts(Struct, frozen=True, gc=False):
    """The fields of a line that the rules need."""

    time: int | None
    session: str
    is_sidechain: bool
    is_summary: bool
    is_turn: bool
    """Whether it is a user or assistant line, and not a system line or an attachment that the client sends."""
    is_system: bool
    is_meta: bool
    """Whether the client wrote a prompt by itself."""


class _FactLine(Struct, gc=False):
    """The fields of a line that its facts need. The others, nearly all of its bytes, are not built."""

    type: str
    timestamp: str
    sessionId: str = ""  # noqa: N815 - the file's spelling
    isSidechain: bool = False  # noqa: N815 - likewise
    isCompactSummary: bool = False  # noqa: N815 - likewise
    isMeta: bool = False  # noqa: N815 - likewise


_decode_fact_line = msgspec.json.Decoder(_FactLine).decode


class Chain:
    """The lines of one session, with a cache of what was read. Created for a single query."""

    def __init__(self, lines: IndexedLines) -> None:
        self.lines = lines
        self.types = lines.types
        self.tree = lines.tree
        self.parents: Sequence[int | None] = lines.tree.parents()
        self.summaries = cast("Sequence[LineSummary | None]", lines.notes)
        """The summaries created at open. Lines of an unusual form have none."""
        self._facts: dict[int, Facts] = {}
        self._entries: dict[int, Entry] = {}
        self._computed_summaries: dict[int, LineSummary] = {}
        self._cycles: dict[int, int] | None = None
        self._first_places: dict[int, int] | None = None
        self._is_subagent: bool | None = None
        self._times: list[tuple[int, int]] | None = None
        self._walked: NodeSet | None = None

    def __len__(self) -> int:
        return len(self.types)

    def once(self, compute: Callable[[Chain], T]) -> T:
        """Return what a function computes about the whole transcript; it is called again after lines were added.

        The result must not refer to the chain or its tree, which it would keep in memory.
        """
        known = self._computed_facts()
        if compute not in known.found:
            known.found[compute] = compute(self)
        return cast("T", known.found[compute])

    def count_search(self) -> int:
        """Count a search of the whole transcript, and return how many there were. After a few, an index pays off."""
        known = self._computed_facts()
        known.searches += 1
        return known.searches

    def _computed_facts(self) -> _Computed:
        known = _computed.get(self.tree)
        if known is None or known.line_count != len(self):
            known = _computed[self.tree] = _Computed(len(self))
        return known

    def is_link(self, node: int) -> bool:
        return self.types[node] in LINK_TYPES and self.is_in_tree(node)

    def is_in_tree(self, node: int) -> bool:
        """Whether a line is in the tree: not a metadata line, and not replaced by a later line with its uuid."""
        id = self.tree.ids[node]
        return id != f"@{node}" and self.tree.node_of.get(id) == node

    def find_link(self, id: object) -> int | None:
        """Return the link with a uuid, if there is one."""
        found = self.tree.node_of.get(id) if isinstance(id, str) else None
        # The tree calls line 5 "@5" if it has no uuid. A file that names "@5" does not mean that line.
        if found is None or self.types[found] not in LINK_TYPES or id == f"@{found}":
            return None
        return found

    def iter_links_before(self, end: int) -> Iterator[int]:
        """Iterate over the links before a line in the file, the nearest first."""
        return (node for node in range(end - 1, -1, -1) if self.is_link(node))

    def iter_boundaries(self, end: int) -> Iterator[int]:
        """Iterate over compaction boundaries up to a line, the last one first."""
        if "compaction" not in self.types:
            return iter(())
        found = (node for node in range(end, -1, -1) if self.types[node] == "compaction" and self.is_in_tree(node))
        return iter(self.in_order(found)[::-1]) if self.repeated_lines() else found

    def iter_ancestors(self, node: int | None) -> Iterator[int]:
        """Iterate over a line and its ancestors. The tree has cut all cycles, so this ends."""
        while node is not None:
            yield node
            node = self.parents[node]

    def recorded_parent(self, node: int) -> int | None:
        """Return the parent that a line names, even where the tree cut a cycle."""
        parent = self.parents[node]
        return parent if parent is not None else self._cut_parents().get(node)

    def _cut_parents(self) -> dict[int, int]:
        if self._cycles is None:
            kinds = ("cycle", "self-parent")
            found = (problem for problem in self.tree.problems() if problem.kind in kinds)
            self._cycles = {problem.node: self.tree.node_of[problem.id] for problem in found}
        return self._cycles

    def is_in_cycle(self, node: int) -> bool:
        return node in self._cut_parents()

    def in_order(self, nodes: Iterable[int]) -> list[int]:
        """Sort lines by their position among the others: that of the first line with the same uuid.

        The client indexes lines by uuid in a map: a later line replaces the value, but not the position.
        """
        return sorted(nodes, key=self.position) if self.repeated_lines() else sorted(nodes)

    def position(self, node: int) -> int:
        """Return the first line with the same uuid as a line; nearly always the line itself."""
        return self.repeated_lines().get(node, node)

    def repeated_lines(self) -> dict[int, int]:
        """Lines whose uuid occurred before -> the first line with that uuid."""
        if self._first_places is None:
            shadowed = [problem.node for problem in self.tree.problems() if problem.kind == "duplicate-id"]
            # From the last to the first, so that the first one stays.
            self._first_places = {self.tree.node_of[self.tree.ids[node]]: node for node in reversed(shadowed)}
        return self._first_places

    def children(self, node: int) -> list[int]:
        """Return the lines that name a line as their parent, even where the tree cut a cycle."""
        if self.count_search() > MAX_SEARCHES:
            found = self.once(_Children).of(node)
            return found + [child for child, parent in self._cut_parents().items() if parent == node]
        # `list.count` and `list.index` run in C: much faster than a loop over the many lines of a large file.
        found = []
        at = -1
        for _ in range(self.parents.count(node)):
            at = self.parents.index(node, at + 1)
            found.append(at)
        return found + [child for child, parent in self._cut_parents().items() if parent == node]

    def facts(self, node: int) -> Facts:
        if node not in self._facts:
            self.load_facts([node])
        return self._facts[node]

    def load_facts(self, nodes: Sequence[int]) -> None:
        """Read the facts of some lines in batches."""
        missing = [node for node in nodes if node not in self._facts]
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            self._facts.update(zip(batch, map(_read_facts, self.lines.iter_raw(batch)), strict=True))

    def entries(self, nodes: Sequence[int]) -> list[Entry]:
        """Return the entries of some lines. They are cached: rules often need the same lines twice."""
        missing = [node for node in nodes if node not in self._entries]
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            self._entries.update(zip(batch, read_entries(self.lines, batch), strict=True))
        return [self._entries[node] for node in nodes]

    def summary(self, node: int) -> LineSummary:
        """Return the summary of a line: the one created at open, else one computed from its entry."""
        summary = self.summaries[node] or self._computed_summaries.get(node)
        if summary is None:
            (entry,) = self.entries([node])
            summary = self._computed_summaries[node] = summarize_entry(entry)
        return summary

    def load_summaries(self, nodes: Iterable[int]) -> None:
        """Read, in batches, the entries whose summaries were not created at open."""
        self.entries([node for node in nodes if self.summaries[node] is None])

    def borrow_node_set(self) -> NodeSet:
        """Return an empty set of lines. Thousands of short walks share one: creating it takes as long as a walk."""
        borrowed, self._walked = self._walked, None
        return borrowed or NodeSet(len(self))

    def return_node_set(self, borrowed: NodeSet, *members: Iterable[int]) -> None:
        """Take a set back, and empty it."""
        for nodes in members:
            for node in nodes:
                borrowed.flags[node] = False
        self._walked = borrowed

    @property
    def is_subagent(self) -> bool:
        """Whether this is the transcript of a sub-agent, in which every line is a sidechain line."""
        if self._is_subagent is None:
            links = [node for node in range(len(self)) if self.is_link(node)]
            self._is_subagent = all(self.facts(node).is_sidechain for node in links[:1])
            if self._is_subagent:
                self.load_facts(links)
                self._is_subagent = all(self.facts(node).is_sidechain for node in links)
        return self._is_subagent

    def can_be_leaf(self, node: int) -> bool:
        """Whether a line can be the current one: the client ignores sidechain lines in a main transcript."""
        return self.is_link(node) and (not self.facts(node).is_sidechain or self.is_subagent)

    def iter_timestamps(self, nodes: Sequence[int]) -> Iterator[str]:
        """Iterate over the timestamps of lines as they were written; empty for lines that the client ignores.

        They are not kept: nearly all lines of a huge session can be asked for.
        """
        for raw in self.lines.iter_raw(nodes):
            line = _read_fact_line(raw)
            yield "" if line.isSidechain and not self.is_subagent else line.timestamp

    def iter_older_links(self, node: int, max_gap: float) -> Iterator[int]:
        """Iterate over the links that are at most `max_gap` milliseconds older than a line, the newest first.

        Of lines with the same time, the first one of the file comes first.
        """
        facts = self.facts(node)
        if facts.time is None:
            return
        times = self._links_by_time()
        end = bisect_right(times, (facts.time, len(self)))
        newest_first = (times[at] for at in range(end - 1, -1, -1))
        for time, group in groupby(newest_first, key=lambda pair: pair[0]):
            if facts.time - time > max_gap:
                return
            for other in self.in_order(other for _, other in group if other != node):
                if self.facts(other).is_sidechain == facts.is_sidechain:
                    yield other

    def _links_by_time(self) -> list[tuple[int, int]]:
        if self._times is None:
            links = [node for node in range(len(self)) if self.is_link(node)]
            self.load_facts(links)
            timed = ((self.facts(node).time, node) for node in links)
            self._times = sorted((time, node) for time, node in timed if time is not None)
        return self._times


def _read_facts(raw: bytes) -> Facts:
    line = _read_fact_line(raw)
    return Facts(
        milliseconds(line.timestamp),
        intern(line.sessionId),  # nearly always the same: a huge session has facts of hundreds of thousands of lines
        line.isSidechain,
        line.isCompactSummary,
        is_turn=line.type in ("user", "assistant"),
        is_system=line.type == "system",
        is_meta=line.isMeta,
    )


def _read_fact_line(raw: bytes) -> _FactLine:
    try:
        return _decode_fact_line(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        fields = parse_object(raw)  # damaged, or a field has another type
        return _FactLine(
            string_in(fields, "type") or "",
            timestamp_in(fields),
            string_in(fields, "sessionId") or "",
            fields.get("isSidechain") is True,
            fields.get("isCompactSummary") is True,
            fields.get("isMeta") is True,
        )


class _Children:
    """The children of all lines, in a few bytes for each."""

    def __init__(self, chain: Chain) -> None:
        parents = chain.parents
        self._first = array("i", [-1]) * len(parents)
        """By line: its first child."""
        self._next = array("i", [-1]) * len(parents)
        """By line: the next child of the same parent."""
        for node in range(len(parents) - 1, -1, -1):
            parent = parents[node]
            if parent is not None:
                self._next[node], self._first[parent] = self._first[parent], node

    def of(self, node: int) -> list[int]:
        """Return the children of a line in file order."""
        found: list[int] = []
        child = self._first[node]
        while child >= 0:
            found.append(child)
            child = self._next[child]
        return found


def read_entries(lines: IndexedLines, nodes: Sequence[int]) -> list[Entry]:
    """Read entries without resolving blob references: a string that looks like one is only text in this dialect."""
    types = lines.types
    return [
        entry if type_of(entry) == types[node] else parse_fields(lines.fields([node])[0])
        for node, entry in zip(nodes, lines.entries(nodes), strict=True)
    ]


def walk(
    chain: Chain, leaf: int, links: Mapping[int, int | None], bridge: Bridge, *, past_boundaries: bool = False
) -> list[int]:
    """Return the lines from root to leaf, following recorded parents or, where given, those in `links`.

    Where the walk ends early, `bridge` may return a parent. The context begins at a boundary, but the client also walks
    on to the parent that a boundary may name (`past_boundaries`).
    """
    path: list[int] = []
    passed: list[int] = []
    walked = chain.borrow_node_set()
    seen = walked.flags
    node: int | None = leaf
    types, parents = chain.types, chain.parents
    # A line that was seen before ends the walk. The client stops there too, with a partial chain; versions up to 2.0.77
    # hung on such cycles.
    while node is not None and not seen[node]:
        seen[node] = True
        kind = types[node]
        # Clients up to about 2.1.8x put progress lines into the chain. Current ones bridge them: their children count
        # as children of the nearest ancestor that is not progress.
        (path if kind != "progress" else passed).append(node)
        is_root = kind == "compaction" and not past_boundaries
        if node in links:
            parent = links[node]
        else:
            parent = None if is_root else parents[node] or chain.recorded_parent(node)
            if parent is not None and parent > node and types[parent] == "progress":
                # The client bridges progress lines while it reads: one that is repeated later counts as it was then.
                parent = min(parent, chain.position(parent))
        if (parent is None or seen[parent]) and not is_root:
            parent = bridge(path[-1] if path else node, node, walked)
        node = parent
    chain.return_node_set(walked, path, passed)
    path.reverse()
    return path
