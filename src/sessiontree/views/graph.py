"""The entries of a tree with their place in it: each branch in one piece, in the order in which branches start.

The order follows from the layout of the session (`core.layout`), so it does not depend on the current entry. Rows for
terminals are in `tree_rows`.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, overload

from msgspec import Struct

from sessiontree.branches.merge_records import MergeRecord, find_merges
from sessiontree.branches.session_layout import find_layout
from sessiontree.core.entries import (
    CONVERSATION_TYPES,
    BranchSummary,
    Compaction,
    CustomMessage,
    Entry,
    MessageEntry,
    ModeChange,
    ModelChange,
    ThinkingLevelChange,
    type_of,
)
from sessiontree.core.layout import NO_NODE, Layout
from sessiontree.core.messages import message_text, text_of, tool_calls
from sessiontree.core.tree import Tree
from sessiontree.session.reader import Reader
from sessiontree.session.stored_entries import StoredEntries
from sessiontree.views.branch_labels import Mark, describe_mark
from sessiontree.views.rails import group_lanes
from sessiontree.views.text import one_line


class Node(Struct, frozen=True):
    """One entry in the drawn tree. `parent` is its nearest drawn ancestor."""

    number: int
    """Its number in file order."""
    entry: Entry
    parent: str | None
    depth: int
    lane: int
    """Its lane in the layout."""
    active: bool
    is_leaf: bool
    label: str | None
    join: MergeRecord | None = None
    """For a merge: where it came from."""
    merged_into: tuple[str, ...] = ()
    """The merges that brought the branch that ends here into others."""
    mark: Mark | None = None
    """Set for the first visible entry of a lane's or sub-agent's branch."""


class Graph(Struct, frozen=True):
    """The entries in the order of their rows, and their layout."""

    nodes: GraphNodes
    layout: Layout


class GraphNodes(Sequence[Node]):
    """The nodes of a drawing in the order of their rows, created on access: only a few entries are in memory."""

    def __init__(self, session: Reader, numbers: Sequence[int], create: Callable[[int, Entry], Node]) -> None:
        self.numbers = numbers
        """By row: the node's number in file order."""
        self._entries = StoredEntries(session.journal, numbers)
        self._create = create

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Node: ...
    @overload
    def __getitem__(self, at: slice) -> list[Node]: ...
    def __getitem__(self, at: int | slice) -> Node | list[Node]:
        if isinstance(at, slice):
            return [self[each] for each in range(len(self))[at]]
        return self._create(self.numbers[at], self._entries[at])

    def __iter__(self) -> Iterator[Node]:
        return map(self._create, self.numbers, self._entries)


def build_graph(session: Reader, *, everything: bool = False, marks: Mapping[str, Mark] | None = None) -> Graph:
    """Collect what the tree shows. `marks` belong to branches that begin with the given entries."""
    tree, types = session.journal.tree, session.journal.types
    active = _flags(len(tree), session.path_nodes(session.leaf))
    node_of = tree.node_of
    joins = find_merges(session)
    layout = find_layout(session, joins)
    chosen = [
        node
        for node, (id, kind) in enumerate(zip(tree.ids, types, strict=True))
        if (everything or kind in CONVERSATION_TYPES) and node_of[id] == node
    ]
    numbers = array("q", group_lanes(layout, chosen))
    del chosen
    shown = _flags(len(tree), numbers)
    depths = _depths(layout)
    above = tree.parents()
    here = _nearest_shown(tree, session.node_of(session.leaf), shown)
    labels = session.labels
    merged_into: dict[str | None, list[str]] = {}
    for id, join in joins.items():
        if join.session is None and join.entry in session:
            merged_into.setdefault(_nearest_shown(tree, node_of[join.entry], shown), []).append(id)
    marked = first_shown(tree, numbers, shown, marks) if marks else {}

    def create(node: int, entry: Entry) -> Node:
        id = tree.ids[node]
        return Node(
            node,
            entry,
            _nearest_shown(tree, above[node], shown),
            depths[node],
            layout.lanes[node],
            bool(active[node]),
            id == here,
            labels.get(id),
            joins.get(id),
            tuple(merged_into[id]) if id in merged_into else (),
            marked.get(id),
        )

    return Graph(GraphNodes(session, numbers, create), layout)


def _flags(size: int, nodes: Iterable[int]) -> bytearray:
    """By node: whether it is one of some nodes."""
    flags = bytearray(size)
    for node in nodes:
        flags[node] = True
    return flags


def _depths(layout: Layout) -> array[int]:
    """By node: the number of placed entries before it."""
    depths = array("q")
    for node in layout.before:
        depths.append(0 if node == NO_NODE else depths[node] + 1)
    return depths


def _nearest_shown(tree: Tree, node: int | None, shown: bytearray) -> str | None:
    """The id of a node, or of its nearest visible ancestor."""
    while node is not None:
        if shown[node]:
            return tree.ids[node]
        node = tree.parent(node)
    return None


def first_shown(tree: Tree, numbers: Sequence[int], shown: bytearray, marks: Mapping[str, Mark]) -> dict[str, Mark]:
    """Marks by the first visible entry of their branch."""
    found = {}
    for number in numbers:
        at, node = tree.ids[number], tree.parent(number)
        while at not in marks and node is not None and not shown[node]:
            at, node = tree.ids[node], tree.parent(node)
        if at in marks:
            found[tree.ids[number]] = marks[at]
    return found


def gist(entry: Entry, room: int | None = None) -> str:
    """The text of an entry on one line; with `room`, only as much as fits into that many columns."""
    match entry:
        case MessageEntry():
            text, calls = beginning(message_text(entry.message), room), tool_calls(entry.message)
            if not calls and not entry.more_messages:
                return text  # the common case
            texts = [text, *(beginning(message_text(message), room) for message in entry.more_messages)]
            calls += tuple(call for message in entry.more_messages for call in tool_calls(message))
            return " ".join(filter(None, [*texts, *(f"→ {one_line(call.name)}" for call in calls)]))
        case CustomMessage():
            return beginning(text_of(entry.content), room)
        case Compaction() | BranchSummary():
            return beginning(entry.summary, room)
        case ModelChange():
            return one_line(entry.selector or "")
        case ThinkingLevelChange():
            return one_line(entry.thinking_level or "")
        case ModeChange():
            return one_line(entry.mode)
        case _:
            return ""


def beginning(text: str, room: int | None) -> str:
    """A text on one line. Of a long one only the visible part is processed, if that is enough."""
    if room is None or len(text) <= 2 * room:
        return one_line(text)
    start = one_line(text[: 2 * room])
    return start if len(start) > room else one_line(text)


def clock(timestamp: str, now: datetime | None = None) -> str:
    """Local time: the hour for today's entries, the day for older ones."""
    now = now or datetime.now().astimezone()
    if len(timestamp) == len("2026-02-16T10:20:30.000Z") and timestamp[-1] == "Z":
        timestamp = f"{timestamp[:16]}Z"  # seconds are not shown, and without them the cache hits often
    return _local_clock(timestamp, now)


@functools.lru_cache(1024)
def _local_clock(timestamp: str, now: datetime) -> str:
    try:
        moment = datetime.fromisoformat(timestamp).astimezone()
    except (ValueError, OverflowError):
        return ""
    if moment.year != now.year:
        return f"{moment.year:04}-{moment.month:02}-{moment.day:02}"
    hour = f"{moment.hour:02}:{moment.minute:02}"
    return hour if moment.date() == now.date() else f"{moment.month:02}-{moment.day:02} {hour}"


def describe_node(node: Node) -> dict[str, Any]:
    entry = node.entry
    return {
        "id": entry.id,
        "parent": node.parent,
        "type": type_of(entry),
        "role": entry.message.role if isinstance(entry, MessageEntry) else None,
        "label": node.label,
        "depth": node.depth,
        "column": node.lane,
        "active": node.active,
        "leaf": node.is_leaf,
        "time": entry.timestamp,
        "text": gist(entry),
        "mergedFrom": None if node.join is None else node.join.fields(),
        "mergedInto": list(node.merged_into),
        **describe_mark(node.mark),
    }
