"""The rows of a tree for screens: folded and filtered, decoded only when they are visible.

Which rows there are follows from columns of the session (layout and kinds of entries), so that a tree of 50,000
entries is arranged without decoding one of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from sessiontree.branches.merge_records import MergeRecord, find_merges
from sessiontree.branches.session_layout import find_layout
from sessiontree.core.call_target import call_target
from sessiontree.core.entries import CONVERSATION_TYPES, Entry, MessageEntry, type_of
from sessiontree.core.layout import NO_LANE, Layout, find_runs
from sessiontree.core.messages import Assistant, BashExecution, Message, Thinking, ToolCall, message_blocks, tool_calls
from sessiontree.session.session import Session
from sessiontree.views.branch_labels import Mark
from sessiontree.views.graph import gist
from sessiontree.views.rails import RailRow, find_rails, group_lanes
from sessiontree.views.text import one_line, plural

TreeFilter: TypeAlias = Literal["default", "no tools", "user", "labeled", "all"]
FILTERS: tuple[TreeFilter, ...] = ("default", "no tools", "user", "labeled", "all")

_TOOLS = frozenset({"calls", "result"})
_KEPT = 4_096
_MAX_COLUMNS = 16


class TreeRow(Struct, frozen=True):
    """One row: an entry, or a run of tool calls and results that is folded."""

    nodes: tuple[int, ...]
    rails: RailRow

    @property
    def node(self) -> int:
        return self.nodes[0]

    @property
    def is_folded(self) -> bool:
        return len(self.nodes) > 1


class TreeRows:
    """The tree of a session as rows."""

    def __init__(self, session: Session, marks: Mapping[str, Mark] | None = None) -> None:
        self.session = session
        self.marks = marks or {}
        self.filter: TreeFilter = "default"
        self.unfolded: set[int] = set()
        """First nodes of runs that are shown entry by entry."""
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self.reload()

    def reload(self) -> None:
        """Arrange the tree again, after the session has changed."""
        session = self.session
        journal = session.journal
        self.merges: dict[str, MergeRecord] = find_merges(session)
        self.layout: Layout = find_layout(session, self.merges)
        self.kinds = session.dialect.entry_kinds(journal)
        self.labels = session.labels
        self.rearrange()

    def rearrange(self) -> None:
        """Arrange the rows again, after the filter, a fold or the current entry has changed."""
        session = self.session
        tree = session.journal.tree
        path = session.path_ids() if session.leaf is not None else []
        self.active = {tree.node_of[id] for id in path}
        self.current = session.node_of(session.leaf)
        folds = self._find_folds()
        shown = group_lanes(self.layout, [node for node in self._visible() if node not in folds.hidden])
        rails = find_rails(self.layout, shown, _MAX_COLUMNS)
        self.rows = [TreeRow(folds.runs.get(row.node, (row.node,)), row) for row in rails]
        self._row_of: dict[int, int] = {}
        for number, row in enumerate(self.rows):
            for node in row.nodes:
                self._row_of[node] = number

    def _visible(self) -> list[int]:
        tree, types = self.session.journal.tree, self.session.journal.types
        ids, node_of, kinds = tree.ids, tree.node_of, self.kinds
        current = [node for node, id in enumerate(ids) if node_of[id] == node]
        match self.filter:
            case "all":
                return current
            case "default":
                return [node for node in current if types[node] in CONVERSATION_TYPES]
            case "no tools":
                return [node for node in current if types[node] in CONVERSATION_TYPES and kinds[node] not in _TOOLS]
            case "user":
                return [node for node in current if kinds[node] == "prompt"]
            case "labeled":
                return [node for node in current if ids[node] in self.labels]

    def _find_folds(self) -> _Folds:
        """Find runs of calls and results to fold. Labeled entries and the current one stay visible."""
        folds = _Folds({}, set())
        if self.filter != "default":
            return folds
        ids, types = self.session.journal.tree.ids, self.session.journal.types
        for run in find_runs(self.layout):
            found: list[int] = []
            for node in [*run, -1]:
                if node >= 0 and types[node] not in CONVERSATION_TYPES:
                    continue
                if node >= 0 and self.kinds[node] in _TOOLS and node != self.current and ids[node] not in self.labels:
                    found.append(node)
                    continue
                if len(found) > 1 and found[0] not in self.unfolded:
                    folds.runs[found[0]] = tuple(found)
                    folds.hidden.update(found[1:])
                found = []
        return folds

    def __len__(self) -> int:
        return len(self.rows)

    def row_of(self, node: int | None) -> int | None:
        """The row that shows a node, or the nearest one before it."""
        while node is not None and node not in self._row_of:
            node = self.session.journal.tree.parent(node)
        return None if node is None else self._row_of[node]

    def entry(self, node: int) -> Entry:
        """An entry, from memory if it was read lately."""
        found = self._entries.get(node)
        if found is None:
            (found,) = self.session.journal.entries([node])
            self._entries[node] = found
            while len(self._entries) > _KEPT:
                self._entries.popitem(last=False)
        return found

    def id_of(self, row: int) -> str:
        return self.session.journal.tree.ids[self.rows[row].node]

    def text(self, row: int) -> str:
        """The text of a row, sanitized, on one line."""
        shown = self.rows[row]
        if shown.is_folded:
            return self._run_text(shown.nodes)
        return entry_text(self.entry(shown.node))

    def speaker(self, row: int) -> str:
        """Who wrote the entry of a row, in one word."""
        shown = self.rows[row]
        if shown.is_folded:
            return "tools"
        entry = self.entry(shown.node)
        if entry.id in self.merges:
            return "merge"
        return one_line(entry.message.role if isinstance(entry, MessageEntry) else type_of(entry))

    def lane(self, row: int) -> int:
        lane = self.layout.lanes[self.rows[row].node]
        return 0 if lane == NO_LANE else lane

    def _run_text(self, nodes: Sequence[int]) -> str:
        calls: list[ToolCall] = []
        for node in nodes:
            entry = self.entry(node)
            if isinstance(entry, MessageEntry):
                calls += tool_calls(entry.message)
        results = sum(self.kinds[node] == "result" for node in nodes)
        what = plural(len(calls), "call") if calls else plural(results, "result")
        names: dict[str, int] = {}
        for call in calls:
            names[call.name] = names.get(call.name, 0) + 1
        listed = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in names.items())
        first = call_text(calls[0]) if len(calls) == 1 else listed
        took = _duration(self.entry(nodes[0]).timestamp, self.entry(nodes[-1]).timestamp)
        return one_line(" · ".join(filter(None, [what, first, took])))


class _Folds(Struct, frozen=True):
    runs: dict[int, tuple[int, ...]]
    hidden: set[int]


def entry_text(entry: Entry) -> str:
    """The text of an entry on one line: of a call its target, of thinking its first words."""
    if isinstance(entry, MessageEntry):
        return message_line(entry.message)
    return gist(entry)


def message_line(message: Message) -> str:
    """A message on one line, sanitized."""
    if isinstance(message, BashExecution):
        return one_line(f"$ {message.command}")
    parts: list[str] = []
    for block in message_blocks(message):
        match block:
            case ToolCall():
                parts.append(f"→ {call_text(block)}")
            case Thinking() if isinstance(message, Assistant):
                parts.append(f"∴ {one_line(block.thinking[:400])}")
            case _:
                text = getattr(block, "text", None)
                if isinstance(text, str):
                    parts.append(one_line(text))
    return " ".join(filter(None, parts))


def call_text(call: ToolCall) -> str:
    """A call with its target: `Read src/api.py`."""
    return one_line(f"{call.name} {call_target(call.arguments)[:400]}")


def _duration(first: str, last: str) -> str:
    try:
        seconds = (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    except (ValueError, TypeError):
        return ""
    if seconds < 1:
        return ""
    return (
        f"{seconds:.0f}s" if seconds < 100 else f"{seconds / 60:.0f}m" if seconds < 6_000 else f"{seconds / 3600:.0f}h"
    )
