"""The tree as rows: which entries to show, in which order, in which column.

The branch of the current entry is drawn straight down. Every other branch gets its own column, to the right of the
branch it forks from, directly below the entry where it forks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from sessiontree.branches.merge_records import MergeRecord, find_merges
from sessiontree.core.entries import (
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
from sessiontree.core.messages import ToolResult, message_text, text_of, tool_calls
from sessiontree.core.tree import Tree
from sessiontree.session.session import Session
from sessiontree.views.branch_labels import Mark, describe_mark
from sessiontree.views.text import columns, cut, fitted, one_line

SPEAKING = frozenset({"message", "custom_message", "compaction", "branch_summary", "reset_boundary", "merge"})
"""Types of entries that the tree shows by default. Others (state, labels, settings) are skipped."""

_MIN_TEXT = 8
"""Minimum width of the text in a row, however narrow the terminal is."""


class Node(Struct, frozen=True):
    """One entry in the drawn tree. `parent` is its nearest ancestor that is drawn too."""

    entry: Entry
    parent: str | None
    depth: int
    column: int
    starts_branch: bool
    active: bool
    is_leaf: bool
    label: str | None
    join: MergeRecord | None = None
    """For a merge: where it came from."""
    merged_into: tuple[str, ...] = ()
    """The merges that brought the branch that ends here into others."""
    mark: Mark | None = None
    """Set for the first visible entry of a lane's or sub-agent's branch."""


def build_graph(session: Session, *, everything: bool = False, marks: Mapping[str, Mark] | None = None) -> list[Node]:
    """Build the nodes in drawing order. `marks` belong to branches that begin with the given entries.

    The active path is one line in conversation order, even if a format stores results of parallel calls as siblings.
    Such results do not become branches elsewhere either.
    """
    path = session.path_ids() if session.leaf is not None else []
    active = set(path)
    tree, types = session.journal.tree, session.journal.types
    node_of = tree.node_of
    shown = [id for id in tree.ids if everything or types[node_of[id]] in SPEAKING]
    entries = dict(zip(shown, session.entries(shown), strict=True))
    above = tree.parents()
    parents = {id: _nearest_shown(tree, above[node_of[id]], entries) for id in entries}
    on_path = [id for id in path if id in entries]
    drawn_under = parents | dict(zip(on_path, [None, *on_path], strict=False))
    children: dict[str | None, list[str]] = {}
    for id in entries:
        children.setdefault(drawn_under[id], []).append(id)
    here = _nearest_shown(tree, session.node_of(session.leaf), entries)
    labels = session.labels
    joins = find_merges(session)
    merged_into: dict[str | None, list[str]] = {}
    for id, join in joins.items():
        if join.session is None and join.entry in session:
            merged_into.setdefault(_nearest_shown(tree, node_of[join.entry], entries), []).append(id)
    marked = _first_shown(tree, entries, marks) if marks else {}
    return [
        Node(
            entries[id],
            parents[id],
            depth,
            column,
            starts,
            id in active,
            id == here,
            labels.get(id),
            joins.get(id),
            tuple(merged_into[id]) if id in merged_into else (),
            marked.get(id),
        )
        for id, depth, column, starts in _order(children, active, _Results(session, entries, children))
    ]


def _nearest_shown(tree: Tree, node: int | None, entries: Mapping[str, Entry]) -> str | None:
    """The id of a node, or of its nearest visible ancestor."""
    while node is not None:
        id = tree.ids[node]
        if id in entries:
            return id
        node = tree.parent(node)
    return None


def _first_shown(tree: Tree, entries: Mapping[str, Entry], marks: Mapping[str, Mark]) -> dict[str, Mark]:
    """Marks by the first visible entry of their branch."""
    found = {}
    for id in entries:
        at, node = id, tree.parent(tree.node_of[id])
        while at not in marks and node is not None and tree.ids[node] not in entries:
            at, node = tree.ids[node], tree.parent(node)
        if at in marks:
            found[id] = marks[at]
    return found


def _order(
    children: dict[str | None, list[str]], active: set[str], results: _Results
) -> Iterator[tuple[str, int, int, bool]]:
    """(id, depth, column, whether a branch starts there); side branches come before the rest of their parent branch."""
    pending = [(root, 0, 0, False) for root in reversed(children.get(None, []))]
    while pending:
        id, depth, column, starts = pending.pop()
        yield id, depth, column, starts
        below = children.get(id, ())
        if len(below) <= 1:
            pending += [(child, depth + 1, column, False) for child in below]
            continue
        completing = results.completing(id, below)
        straight = next((child for child in below if child in active), None)
        if straight is None:
            straight = next(child for child in reversed(below) if child not in completing)
        pending.append((straight, depth + 1, column, False))
        pending += [(child, depth + 1, column, False) for child in reversed(completing) if child != straight]
        branches = [child for child in below if child != straight and child not in completing]
        pending += [(child, depth + 1, column + 1, True) for child in reversed(branches)]


class _Results:
    """Distinguishes the rest of a response (other calls and their results) from real branches."""

    def __init__(self, session: Session, entries: dict[str, Entry], children: dict[str | None, list[str]]) -> None:
        self._session, self._entries, self._children = session, entries, children

    def completing(self, id: str, below: Sequence[str]) -> list[str]:
        """Children that only complete a response while the conversation continues in a sibling."""
        ends = [child for child in below if self._only_completes(id, child)]
        if not ends or len(ends) == len(below):
            return []
        answered = {self._call_of(child) for child in below if child not in ends}
        return [child for child in ends if self._call_of(child) is None or self._call_of(child) not in answered]

    def _only_completes(self, id: str, child: str) -> bool:
        """Whether an entry and all its descendants are a part of the response before it, or results of it."""
        pending = [(id, child)]
        while pending:
            before, at = pending.pop()
            is_result = self._call_of(at) is not None
            below = self._children.get(at, [])
            if not is_result and not (below and self._are_one_response(before, at)):
                return False
            if is_result and below:
                return False
            pending += [(at, child) for child in below]
        return True

    def _are_one_response(self, first: str, other: str) -> bool:
        journal = self._session.journal
        node_of = journal.tree.node_of
        return journal.dialect.must_decode_together(journal, node_of[first], node_of[other])

    def _call_of(self, id: str) -> str | None:
        """The call whose result an entry is; None for any other entry."""
        entry = self._entries[id]
        message = entry.message if isinstance(entry, MessageEntry) else None
        return message.tool_call_id if isinstance(message, ToolResult) else None


def draw(nodes: list[Node], width: int, now: datetime | None = None) -> Iterator[str]:
    """Render the rows; none is wider than `width` columns."""
    names = ["merge" if node.join is not None else _speaker(node.entry) for node in nodes]
    name_width = min(max(map(len, names), default=0), 18)
    fitting = {name: fitted(name, name_width) for name in set(names)}
    moment = now or datetime.now().astimezone()
    for node, name in zip(nodes, names, strict=True):
        if node.depth == 0 and node is not nodes[0]:
            yield ""
        entry = node.entry
        short = _short(entry.id)
        rail = "│ " * (node.column - node.starts_branch) + "├─" * node.starts_branch if node.column else ""
        right = f"  {_clock(entry.timestamp, moment)}"
        whose = ""
        if node.is_leaf or node.label or node.merged_into or node.mark:
            merged = "".join(f"  ⇢ {_short(id)}" for id in node.merged_into)
            called = f"{merged}{f'  [{one_line(node.label)}]' if node.label else ''}"
            right = f"{'  ◀ here' * node.is_leaf}{right}"
            if node.mark is not None:  # it gets the width that the other parts leave
                taken = 2 * node.column + columns(short) + name_width + columns(called) + columns(right) + 6
                whose = _fitted_mark(node.mark, width - taken)
            right = f"{called}{whose}{right}"
        free = width - 2 * node.column - columns(short) - name_width - columns(right) - 6  # the dot and spaces
        least = 1 if whose else _MIN_TEXT
        room = free if free > least else least
        text = gist(entry, room)
        if node.join is not None:
            text = _came_from(node.join) + text
        row = f"{rail}{_dot(node)} {short}  {fitting[name]}  {fitted(text, room)}{right}".rstrip()
        yield row if free >= least else cut(row, width)


def _fitted_mark(mark: Mark, room: int) -> str:
    """The longest mark that leaves room for the text; the shortest one may leave a single column."""
    room -= len("  []")
    text = mark.fitting(room - _MIN_TEXT) or mark.texts[-1]
    return f"  [{text}]" if columns(text) < room else ""


def _dot(node: Node) -> str:
    if node.join is not None:
        return "◆" if node.active else "◇"
    return "●" if node.active else "○"


def _came_from(join: MergeRecord) -> str:
    where = f"{_short(join.session)}:" if join.session else ""
    return f"⇠ {where}{_short(join.entry)}  "


def _short(id: str) -> str:
    """The first characters of an id, sanitized because it comes from the file."""
    beginning = id[:8]
    return beginning if beginning.isascii() and beginning.isalnum() else one_line(beginning)


def gist(entry: Entry, room: int | None = None) -> str:
    """The text of an entry on one line; with `room`, only as much as fits into that many columns."""
    match entry:
        case MessageEntry():
            text, calls = _beginning(message_text(entry.message), room), tool_calls(entry.message)
            if not calls and not entry.more_messages:
                return text  # the common case
            texts = [text, *(_beginning(message_text(message), room) for message in entry.more_messages)]
            calls += tuple(call for message in entry.more_messages for call in tool_calls(message))
            return " ".join(filter(None, [*texts, *(f"→ {one_line(call.name)}" for call in calls)]))
        case CustomMessage():
            return _beginning(text_of(entry.content), room)
        case Compaction() | BranchSummary():
            return _beginning(entry.summary, room)
        case ModelChange():
            return one_line(entry.selector or "")
        case ThinkingLevelChange():
            return one_line(entry.thinking_level or "")
        case ModeChange():
            return one_line(entry.mode)
        case _:
            return ""


def _beginning(text: str, room: int | None) -> str:
    """A text on one line. Of a long one only the visible part is processed, if that is enough."""
    if room is None or len(text) <= 2 * room:
        return one_line(text)
    start = one_line(text[: 2 * room])
    return start if len(start) > room else one_line(text)


def _speaker(entry: Entry) -> str:
    return _name(entry.message.role if isinstance(entry, MessageEntry) else type_of(entry))


_name = functools.lru_cache(64)(one_line)  # few roles and types, many entries


def _clock(timestamp: str, now: datetime) -> str:
    """Local time: the hour for today's entries, the day for older ones."""
    if len(timestamp) == len("2026-02-16T10:20:30.000Z") and timestamp[-1] == "Z":
        timestamp = f"{timestamp[:16]}Z"  # seconds are not shown, and without them the cache hits often
    return _local_clock(timestamp, now)


@functools.lru_cache(1024)
def _local_clock(timestamp: str, now: datetime) -> str:
    try:
        moment = datetime.fromisoformat(timestamp).astimezone()
    except (ValueError, OverflowError):
        return ""
    if moment.date() == now.date():
        return moment.strftime("%H:%M")
    return moment.strftime("%m-%d %H:%M" if moment.year == now.year else "%Y-%m-%d")


def describe_node(node: Node) -> dict[str, Any]:
    entry = node.entry
    return {
        "id": entry.id,
        "parent": node.parent,
        "type": type_of(entry),
        "role": entry.message.role if isinstance(entry, MessageEntry) else None,
        "label": node.label,
        "depth": node.depth,
        "column": node.column,
        "active": node.active,
        "leaf": node.is_leaf,
        "time": entry.timestamp,
        "text": gist(entry),
        "mergedFrom": None if node.join is None else node.join.fields(),
        "mergedInto": list(node.merged_into),
        **describe_mark(node.mark),
    }
