"""The rows of a tree for terminals: filtered, folded, and decoded only when they are drawn.

Which rows there are follows from columns of the session (layout and kinds of entries), so that a tree of 50,000
entries is arranged without decoding them. Two things fold into one row: a run of tool calls with their results, and the
entries that a compaction replaced, which are folded into the compaction.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import compress
from operator import gt
from typing import Literal, TypeAlias

from msgspec import Struct

from sessiontree.branches.merge_records import MergeRecord, find_merges
from sessiontree.branches.session_layout import find_layout
from sessiontree.core.call_target import call_target
from sessiontree.core.entries import CONVERSATION_TYPES, Compaction, ContextEdit, Entry, MessageEntry, type_of
from sessiontree.core.layout import NO_LANE, NO_NODE, Layout, find_runs
from sessiontree.core.messages import Assistant, BashExecution, Message, Thinking, ToolCall, message_blocks, tool_calls
from sessiontree.core.tree import NodeSet
from sessiontree.dialects.contract import EntryKind
from sessiontree.session.reader import Reader
from sessiontree.views.branch_labels import Mark
from sessiontree.views.graph import beginning, first_shown, gist
from sessiontree.views.rails import NO_ROW, RailRow, Rails, group_lanes
from sessiontree.views.text import one_line, plural

TreeFilter: TypeAlias = Literal["default", "no tools", "user", "labeled", "all", "branches"]
"""`branches` is for overviews: only where branches start, fork, merge and end."""
FILTERS: tuple[TreeFilter, ...] = ("default", "no tools", "user", "labeled", "all")

_TOOLS = frozenset({"calls", "result"})
MAX_COLUMNS = 16
_MAX_ARRANGED = 16
_STEPS = 4
_SPEAKERS = {
    "toolResult": "result",
    "bashExecution": "shell",
    "branch_summary": "summary",
    "custom_message": "extension",
    "model_change": "model",
    "thinking_level_change": "thinking",
    "mode_change": "mode",
    "session_info": "name",
    "context_edit": "edit",
}


class TreeRow(Struct, frozen=True):
    """One row: an entry, or several folded entries. The first node represents the row."""

    nodes: Sequence[int]
    rails: RailRow
    fold: Literal["none", "folded", "unfolded"] = "none"

    @property
    def node(self) -> int:
        return self.nodes[0]


class _Folds(Struct, frozen=True):
    """What can be folded into which rows."""

    runs: Mapping[int, list[int]]
    """By the node of a row: the nodes that can be folded into it, itself first."""
    fold_of: Sequence[int]
    """By node: the node of the row it can be folded into, or `NO_NODE`. Of nested folds, the innermost."""
    count: bytearray
    """By node: the number of folds it is in."""

    def around(self, node: int) -> int:
        """The node of the row that a node can be folded into, or `NO_NODE`."""
        return self.fold_of[node] if self.fold_of else NO_NODE


_NO_FOLDS = _Folds({}, (), bytearray())


class TreeRows:
    """The tree of a session as rows, created on access."""

    def __init__(
        self,
        session: Reader,
        marks: Mapping[str, Mark] | None = None,
        *,
        filter: TreeFilter = "default",
        folds: bool = True,
        max_columns: int = MAX_COLUMNS,
    ) -> None:
        """`marks` belong to branches that begin with the given entries. Only the default filter folds."""
        self.session = session
        self.marks = marks or {}
        self.filter: TreeFilter = filter
        self.unfolded: set[int] = set()
        """Nodes of rows that are unfolded."""
        self._can_fold = folds
        self._max_columns = max_columns
        self.reload()

    def reload(self) -> None:
        """Arrange the tree again, after the session has changed."""
        session = self.session
        # A session that was replaced by an action is closed; its rows stay on the screen until the new ones are read.
        self.journal = session.journal
        self.tree, self.types = self.journal.tree, self.journal.types
        self.merges: dict[str, MergeRecord] = find_merges(session)
        self.layout: Layout = find_layout(session, self.merges)
        self.labels = session.labels
        for found in ("kinds", "_replaced", "_conversation", "_foldable"):
            self.__dict__.pop(found, None)
        self._find_active()
        self.rearrange()

    def _find_active(self) -> None:
        """Find what depends on the current entry."""
        session = self.session
        self.leaf = session.leaf
        self._arranged: dict[tuple[TreeFilter, frozenset[int]], Rails] = {}
        """The rows of views that were shown. Copies share it."""
        self.current = session.node_of(self.leaf)
        self.active = NodeSet(len(self.types), session.path_nodes(self.leaf))
        self.left_out = self._find_left_out()
        """Entries that are left out of the context of the active path."""
        self.__dict__.pop("_foldable", None)

    @cached_property
    def kinds(self) -> Sequence[EntryKind]:
        """By node: what it is in the conversation."""
        return self.session.dialect.entry_kinds(self.journal)

    @cached_property
    def _replaced(self) -> dict[int, list[int]]:
        """By the node of a compaction: the nodes that it replaced, in file order."""
        return find_replaced(self.session, self.layout)

    def rearrange(self) -> None:
        """Arrange the rows again, after the filter, a fold or the current entry has changed."""
        if self.session.leaf != self.leaf:
            self._find_active()
        self._folds = self._foldable if self._can_fold and self.filter == "default" else _NO_FOLDS
        rails = self._arranged.get(self._view)
        if rails is None:
            rails = Rails(self.layout, group_lanes(self.layout, self._visible()), self._max_columns)
        self._set_rails(rails)

    @property
    def _view(self) -> tuple[TreeFilter, frozenset[int]]:
        """What the rows depend on, as long as the session and its current entry are the same."""
        return self.filter, frozenset(self.unfolded) if self.filter == "default" else frozenset()

    @property
    def is_arranged(self) -> bool:
        """Whether `rearrange` takes no time, because these rows were shown before."""
        return self.session.leaf == self.leaf and self._view in self._arranged

    def arrange_views(self, filters: Iterable[TreeFilter]) -> None:
        """Arrange other views ahead. It may run in another thread."""
        for each in filters:
            view = self.copy()
            view.filter = each
            view.rearrange()

    def _set_rails(self, rails: Rails) -> None:
        self._rails = self._arranged[self._view] = rails
        while len(self._arranged) > _MAX_ARRANGED:
            del self._arranged[next(iter(self._arranged))]
        self.nodes = rails.nodes
        """By row: the node that represents it."""
        self.here = self.row_of(self.current)
        """The row of the current entry."""
        self._place_marks()

    def _find_left_out(self) -> set[str]:
        types = self.types
        edits = [node for node, kind in enumerate(types) if kind == "context_edit" and node in self.active]
        found: set[str] = set()
        for entry in self.journal.entries(edits):
            if isinstance(entry, ContextEdit):
                (found.add if entry.replacement is None else found.discard)(entry.target_id)
        return found

    def _place_marks(self) -> None:
        """Find the first visible entry of each marked branch, and of each merged one its last."""
        tree, joins = self.tree, self.merges
        self.branch_marks: dict[str, Mark] = {}
        """By entry: the mark of the branch that begins there."""
        if self.marks:
            shown = bytearray(len(tree))
            for node in self.nodes:
                shown[node] = True
            self.branch_marks = first_shown(tree, self.nodes, shown, self.marks)
        self.merged_into: dict[int, list[str]] = {}
        """By row: the merges that brought the branch that ends there into others."""
        for id, join in joins.items():
            row = self.row_of(tree.node_of[join.entry]) if join.session is None and join.entry in tree.node_of else None
            if row is not None:
                self.merged_into.setdefault(row, []).append(id)

    @cached_property
    def _conversation(self) -> bytes:
        """By node: whether it is part of the conversation, and not replaced by a later line with its id."""
        tree, types = self.tree, self.types
        found = bytearray(kind in CONVERSATION_TYPES for kind in types)
        if len(tree.node_of) < len(tree.ids):
            for node, id in enumerate(tree.ids):
                found[node] &= tree.node_of[id] == node
        return bytes(found)

    def _visible(self) -> Iterable[int]:
        """The nodes of the view that are not folded away, in file order."""
        tree, conversation = self.tree, self._conversation
        match self.filter:
            case "all":
                return sorted(tree.node_of.values())
            case "default" if self._folds is not _NO_FOLDS:
                hidden = self._folds.count.copy()
                for first in self.unfolded & self._folds.runs.keys():
                    for node in self._folds.runs[first][1:]:
                        hidden[node] -= 1
                return compress(range(len(tree)), map(gt, conversation, hidden))
            case "default":
                return compress(range(len(tree)), conversation)
            case "no tools":
                return compress(range(len(tree)), map(gt, conversation, self._tools))
            case "user":
                node_of, ids = tree.node_of, tree.ids
                prompts = [node for node, kind in enumerate(self.kinds) if kind == "prompt"]
                return [node for node in prompts if node_of[ids[node]] == node]
            case "labeled":
                return sorted(tree.node_of[id] for id in self.labels if id in tree.node_of)
            case "branches":
                layout = self.layout
                ends = {*layout.first, *layout.last, *(node for edge in layout.joins for node in edge)}
                ends |= {layout.fork(lane) for lane in range(len(layout.first))}
                return sorted(node for node in ends if node != NO_NODE and conversation[node])

    @property
    def _tools(self) -> bytearray:
        """By node: whether it is a tool call or a result."""
        return bytearray(map(_TOOLS.__contains__, self.kinds))

    @cached_property
    def _foldable(self) -> _Folds:
        """What can be folded while the current entry is the same."""
        runs = self._find_folds()
        fold_of = array("q", [NO_NODE]) * len(self._conversation)
        count = bytearray(len(fold_of))
        for first, nodes in reversed(runs.items()):  # the inner ones, runs of tool calls, come first
            for node in nodes[1:]:
                fold_of[node] = first
                count[node] += 1
        return _Folds(runs, fold_of, count)

    def _find_folds(self) -> dict[int, list[int]]:
        """By the node of a row: the nodes that can be folded into it, itself first.

        Labeled entries, the current one and forks stay visible, so that no branch is hidden.
        """
        layout, conversation = self.layout, self._conversation
        kept = {layout.fork(lane) for lane in range(len(layout.first))}
        kept |= {node for edge in layout.joins for node in edge}
        labeled = {self.tree.node_of[id] for id in self.labels if id in self.session}
        kept |= labeled
        if self.current is not None:
            kept.add(self.current)
        # A run ends where a compaction begins to keep entries.
        owners = {node: compaction for compaction, replaced in self._replaced.items() for node in replaced}
        folds: dict[int, list[int]] = {}
        tools = self._tools
        # The last call of a run may be a fork: its row shows the branches at the same place.
        for node in {self.current, *labeled} - {None}:
            assert node is not None
            tools[node] = False
        for run in find_runs(layout):
            found: list[int] = []
            for node in run:
                is_tool = tools[node]
                if found and (not is_tool or owners.get(node) != owners.get(found[0])):
                    if len(found) > 1:
                        folds[found[0]] = found
                    found = []
                if is_tool:
                    found.append(node)
            if len(found) > 1:
                folds[found[0]] = found
        for compaction, replaced in self._replaced.items():
            nodes = [node for node in replaced if node not in kept and conversation[node]]
            if nodes:
                folds[compaction] = [compaction, *nodes]
        return folds

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, row: int) -> TreeRow:
        node, rails, runs = self.nodes[row], self._rails[row], self._folds.runs
        if node not in runs:
            return TreeRow((node,), rails)
        if node in self.unfolded:
            return TreeRow((node,), rails, "unfolded")
        return TreeRow(runs[node], rails, "folded")

    def is_folded(self, row: int) -> bool:
        """Whether other entries are folded into a row."""
        node = self.nodes[row]
        return node in self._folds.runs and node not in self.unfolded

    def __iter__(self) -> Iterator[TreeRow]:
        return (self[row] for row in range(len(self)))

    def set_fold(self, row: int, *, is_folded: bool) -> int | None:
        """Fold or unfold what a row belongs to. Returns the node that the cursor should be on; None if nothing changes.

        An entry of an unfolded run folds that run, and one that a compaction replaced folds the compaction.
        """
        node = self.nodes[row]
        if not is_folded:
            if node not in self._folds.runs or node in self.unfolded:
                return None
            self.unfolded.add(node)
            return node
        if node not in self.unfolded:
            node = self._folds.around(node)
        if node not in self.unfolded:
            return None
        self.unfolded.discard(node)
        return node

    def splice_fold(self, node: int) -> bool:
        """Show or hide the rows of one fold that has changed; False if other rows change too (then `rearrange`)."""
        nodes, count = self._folds.runs[node], self._folds.count
        row = self._rails.find_row(node)
        if row == NO_ROW or self.is_compaction(node) or any(count[other] > 1 for other in nodes[1:]):
            return False  # what a compaction replaced may be anywhere before it
        if node in self.unfolded:
            rails = self._rails.splice(row, 0, nodes[1:])
        else:
            rails = self._rails.splice(row, len(nodes) - 1, ())
        if rails is not None:
            self._set_rails(rails)
        return rails is not None

    def copy(self) -> TreeRows:
        """The same rows, to be arranged in another way. What is known about the session is shared."""
        from copy import copy  # only screens need it

        rows = copy(self)
        rows.unfolded = set(self.unfolded)
        return rows

    def reveal(self, node: int) -> None:
        """Unfold everything that hides a node. Takes effect with `rearrange`."""
        while (node := self._folds.around(node)) != NO_NODE:
            self.unfolded.add(node)

    def row_of(self, node: int | None) -> int | None:
        """The row that shows a node, or the nearest one before it."""
        while node is not None and self.nodes:
            shown = node
            while shown != NO_NODE:
                row = self._rails.find_row(shown)
                if row != NO_ROW:
                    return row
                shown = self._folds.around(shown)
            node = self.tree.parent(node)
        return None

    def id_of(self, row: int) -> str:
        return self.tree.ids[self.nodes[row]]

    def needed(self, shown: TreeRow) -> Sequence[int]:
        """The nodes whose entries a row shows."""
        is_run = shown.fold == "folded" and not self.is_compaction(shown.node)
        return shown.nodes if is_run else shown.nodes[:1]

    def is_compaction(self, node: int) -> bool:
        return self.types[node] == "compaction"

    def text_of(self, shown: TreeRow, entries: Sequence[Entry], room: int | None = None) -> str:
        """The text of a row, sanitized, on one line; with `room`, at least as much as fits into that many columns.

        `entries` are those of `needed`.
        """
        if shown.fold != "folded":
            return entry_text(entries[0], room)
        if self.is_compaction(shown.node):
            replaced = plural(len(shown.nodes) - 1, "entry", "entries")
            summary = gist(entries[0], room)
            return f"{replaced} replaced{' · ' if summary else ''}{summary}"
        return self._run_text(shown.nodes, entries)

    def speaker(self, row: int, entry: Entry) -> str:
        """The role or type of a row's first entry, in one word."""
        node = self.nodes[row]
        if self.tree.ids[node] in self.merges:
            return "merge"
        if node in self._folds.runs and node not in self.unfolded and not self.is_compaction(node):
            return "tools"
        return _speaker(entry.message.role if isinstance(entry, MessageEntry) else type_of(entry))

    def lane(self, row: int) -> int:
        lane = self.layout.lanes[self.nodes[row]]
        return 0 if lane == NO_LANE else lane

    def _run_text(self, nodes: Sequence[int], entries: Sequence[Entry]) -> str:
        calls = [
            call
            for entry in entries
            if isinstance(entry, MessageEntry)
            for message in entry.messages
            for call in tool_calls(message)
        ]
        results = sum(self.kinds[node] == "result" for node in nodes)
        what = plural(len(calls), "call") if calls else plural(results, "result")
        names = Counter(call.name for call in calls)
        listed = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in names.items())
        first = call_text(calls[0]) if len(calls) == 1 else listed
        took = _duration(entries[0].timestamp, entries[-1].timestamp)
        return one_line(" · ".join(filter(None, [what, first, took])))


@lru_cache(64)  # few roles and types, many entries
def _speaker(name: str) -> str:
    return one_line(_SPEAKERS.get(name, name))


def find_replaced(session: Reader, layout: Layout) -> dict[int, list[int]]:
    """By the node of each compaction: the nodes it replaced, without those of an earlier compaction, in file order.

    Compactions of the active branch come first.
    """
    types, tree = session.journal.types, session.journal.tree
    compactions = {
        node for node, kind in enumerate(types) if kind == "compaction" and tree.node_of[tree.ids[node]] == node
    }
    if not compactions:
        return {}
    following = _find_following(compactions, layout)
    found: dict[int, list[int]] = {}
    taken: set[int] = set()

    def take(compaction: int, before: Sequence[int]) -> None:
        """Assign the nodes before the first kept one to a compaction, up to those that are assigned already."""
        (entry,) = session.journal.entries([compaction])
        bound = entry.first_kept_entry_id if isinstance(entry, Compaction) else None
        if bound is not None:
            kept = {tree.node_of[bound]} if bound in tree.node_of else set()
        else:
            context = session.context(tree.ids[following.get(compaction, compaction)])
            kept = {tree.node_of[id] for id in context.sources if id in tree.node_of}
        end = next((at for at, node in enumerate(before) if node in kept), len(before))
        replaced = [node for node in before[:end] if node not in taken and node != compaction]
        taken.update(replaced)
        found[compaction] = sorted(replaced)

    def visit(leaf: str | None) -> list[int]:
        """Visit the compactions of a path, the earliest first. Returns the nodes of the path."""
        paths = [session.path_nodes(leaf)]
        while paths[-1] and paths[-1][0] in compactions:
            # Some clients record no link across a compaction: what it replaced is on a path that ends there.
            paths.append(session.path_nodes(tree.ids[paths[-1][0]])[:-1])
        for path, earlier in zip(paths[::-1], [[], *paths[:0:-1]], strict=True):
            for at, node in enumerate(path):
                if node in compactions and node not in found:
                    take(node, path[:at] or earlier)
        return [node for path in paths for node in path]

    active = visit(session.leaf)
    taken.update(active)  # the part that other branches share with the active one is folded by the active one only
    for node in sorted(compactions):
        if node not in found:
            visit(tree.ids[node])
    return found


def _find_following(compactions: Set[int], layout: Layout) -> dict[int, int]:
    """By compaction: an entry a few steps later. Some clients link the messages they keep after the summary."""
    following: dict[int, int] = {}
    steps: dict[int, tuple[int, int]] = {node: (node, 0) for node in compactions}
    """By node after a compaction: the compaction, and the number of steps from it."""
    for node, before in enumerate(layout.before):
        compaction, step = steps.get(before, (NO_NODE, _STEPS))
        if (
            step < _STEPS
            and node not in compactions
            and layout.placed[node]
            and layout.lanes[node] == layout.lanes[before]
        ):
            steps[node] = compaction, step + 1
            following[compaction] = node
    return following


def entry_text(entry: Entry, room: int | None = None) -> str:
    """The text of an entry on one line: of a call its target, of thinking its first words."""
    if not isinstance(entry, MessageEntry):
        return gist(entry, room)
    if not entry.more_messages:
        return message_line(entry.message, room)
    return " ".join(filter(None, [message_line(message, room) for message in entry.messages]))


def message_line(message: Message, room: int | None = None) -> str:
    """A message on one line, sanitized; with `room`, at least as much as fits into that many columns."""
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
                    parts.append(beginning(text, room))
    return parts[0] if len(parts) == 1 else " ".join(filter(None, parts))


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
