"""Positions of the entries of a session in a drawing of its tree: rows in file order, one lane per branch.

The layout reads only columns (parents, types), never a body, and places each entry when it arrives:

* An entry continues the lane of the entry it follows if that is the last one of its lane.
* Otherwise it starts a new lane, which forks from that entry. So does a root.

So a position never depends on later entries: the layout of the first lines of a file is the first part of the layout of
the whole file, and moving the current entry changes nothing. For the same reason, no lane is reused: a branch can be
continued at any time, so a lane never ends for certain. A view that has the whole session may draw several lanes in one
column (`views.rails`).

Not every entry has its own position. Entries without content (labels, settings, state) take the lane of the entry they
belong to and never start one, so they do not look like branches. Metadata lines have no lane.

Damaged trees need no special case: only links to earlier entries count, and an entry with any other link is placed as a
root. So cycles cannot occur, and an entry whose id is reused later keeps its position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

NO_NODE = -1
"""In columns of nodes: none."""
NO_LANE = -1
"""The lane of an entry that belongs to no placed entry: a metadata line, or a setting before the first message."""


class LayoutColumns(Struct, frozen=True):
    """The facts about entries that determine their positions, one list per fact, in file order."""

    parents: Sequence[int | None]
    """The entry that each one follows. It comes earlier in the file, or is ignored."""
    placed: Sequence[bool]
    """Whether it has content, and therefore its own position."""
    responses: Sequence[object] = ()
    """For entries that are part of one response (its blocks, the results of its calls): an equal value, not None.

    Such entries may be siblings in the file and are still one sequence. Empty if the format has none.
    """

    def __len__(self) -> int:
        return len(self.parents)

    def __getitem__(self, part: slice) -> LayoutColumns:
        return LayoutColumns(self.parents[part], self.placed[part], self.responses[part])


class Layout(Struct):
    """The positions of the entries read so far. `extend` adds further ones."""

    lanes: list[int] = msgspec.field(default_factory=list)
    """By node: its lane. Lanes are numbered in the order in which they start."""
    before: list[int] = msgspec.field(default_factory=list)
    """By node: the placed entry that it follows in its lane or, at the start of a lane, forks from."""
    placed: list[bool] = msgspec.field(default_factory=list)
    first: list[int] = msgspec.field(default_factory=list)
    """By lane: its first placed node."""
    last: list[int] = msgspec.field(default_factory=list)
    """By lane: its last placed node."""
    joins: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Merges as edges between lanes: (last merged node, merge node)."""
    responses: list[object] = msgspec.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lanes)

    def fork(self, lane: int) -> int:
        """The node that a lane forks from; `NO_NODE` if it starts with a root."""
        return self.before[self.first[lane]]

    def rows(self) -> list[int]:
        """The placed nodes in file order: one row each."""
        return [node for node, is_placed in enumerate(self.placed) if is_placed]

    def extend(self, columns: LayoutColumns, joins: Iterable[tuple[int, int]] = ()) -> None:
        """Add the entries that follow in the file. Parents are numbers in the whole file."""
        lanes, before, placed, last = self.lanes, self.before, self.placed, self.last
        start = len(lanes)
        self._extend_responses(columns)
        for node, (parent, is_placed) in enumerate(zip(columns.parents, columns.placed, strict=True), start):
            at = NO_NODE
            if parent is not None and parent < node:
                # An entry without a position passes on the placed entry that it follows itself.
                at = parent if placed[parent] else before[parent]
            if not is_placed:
                lane = lanes[at] if at != NO_NODE else NO_LANE
            elif at != NO_NODE and ((end := last[lanes[at]]) == at or self._are_one_response(at, end)):
                lane, at = lanes[at], end
                last[lane] = node
            else:
                lane = len(last)
                self.first.append(node)
                last.append(node)
            lanes.append(lane)
            before.append(at)
            placed.append(is_placed)
        self.joins += [
            (source, merge) for source, merge in joins if start <= merge < len(lanes) and 0 <= source < merge
        ]

    def _extend_responses(self, columns: LayoutColumns) -> None:
        if columns.responses or self.responses:
            self.responses += [None] * (len(self) - len(self.responses))
            self.responses += columns.responses or [None] * len(columns)

    def _are_one_response(self, one: int, other: int) -> bool:
        responses = self.responses
        return bool(responses) and responses[one] is not None and responses[one] == responses[other]


def lay_out(columns: LayoutColumns, joins: Iterable[tuple[int, int]] = ()) -> Layout:
    """Lay out a whole session."""
    layout = Layout()
    layout.extend(columns, joins)
    return layout


def find_runs(layout: Layout) -> list[list[int]]:
    """Split the placed nodes into runs: successive nodes of a lane with no fork and no merge in between.

    A view can fold a run into one row without hiding a branch. Runs are in the order of their first nodes.
    """
    forks = {layout.fork(lane) for lane in range(len(layout.first))}
    ends = forks | {source for source, _ in layout.joins}
    starts = {merge for _, merge in layout.joins}
    runs: list[list[int]] = []
    open_runs: dict[int, list[int]] = {}
    """By lane: the run that its next node continues."""
    for node in layout.rows():
        lane = layout.lanes[node]
        run = open_runs.get(lane) if node not in starts else None
        if run is None:
            run = open_runs[lane] = []
            runs.append(run)
        run.append(node)
        if node in ends:
            del open_runs[lane]
    return runs
