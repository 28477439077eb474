"""The lines of a drawn tree: per row, the column of its entry and the lines in each column.

A lane of the layout is drawn in one column from its first entry to its last. The line to a lane starts at the entry it
forks from. Lanes that fork from the same entry share that line: the last of them continues it, the others branch off
from it where they start. A merge extends the line of the merged lane to its own row.

A column is used again when its lane has ended, so a drawing has few columns. Unlike lanes, columns therefore depend on
the whole session. They do not depend on the current entry.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from operator import itemgetter
from typing import overload

from msgspec import Struct

from sessiontree.core.layout import NO_LANE, NO_NODE, Layout

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
"""Directions in which lines leave a cell; a cell is their sum."""

NO_ROW = -1
"""In columns of rows: none."""

_GLYPHS = " │││─╯╮┤─╰╭├─┴┬┼"


class RailRow(Struct, frozen=True):
    """One row of a drawing."""

    node: int
    column: int
    """The column of the node."""
    cells: tuple[int, ...]
    """By column: the directions of the lines there."""

    def text(self, dot: str) -> str:
        """The row as text, two characters per column, with a character for the node."""
        return _text(self.cells, self.column, dot)


@lru_cache(1024)  # few different rows, many entries
def _text(cells: tuple[int, ...], at: int, dot: str) -> str:
    parts = []
    for column, cell in enumerate(cells):
        parts.append(dot if column == at else _GLYPHS[cell])
        parts.append("─" if cell & RIGHT else " ")
    return "".join(parts).rstrip()


class _Lane(Struct, gc=False):
    """The extent of a lane in the drawing."""

    start: int
    end: int
    """The last row that its line reaches."""
    column: int = -1
    rail: int = -1
    """The column of the line that it branches off from; -1 for a root."""
    continues_rail: bool = False


def group_lanes(layout: Layout, nodes: Iterable[int]) -> list[int]:
    """Sort nodes, given in file order, so that each lane is in one piece, as far as merges allow.

    Like `git log --topo-order`: parallel branches can be read one after the other, and an entry still comes after all
    that it follows. It changes nothing if only one branch was written at a time.
    """
    queues = _queues(layout, nodes)
    placed = dict.fromkeys(queues, 0)
    """By lane: how many of its nodes are placed."""
    sources: dict[int, list[int]] = {}
    merges: dict[int, list[int]] = {}
    """By lane: its merges, which may have to wait for other lanes. So may its first node; all others cannot."""
    for source, merge in sorted(layout.joins, key=itemgetter(1)):
        sources.setdefault(merge, []).append(source)
        merges.setdefault(layout.lanes[merge], []).append(merge)

    def is_waiting(node: int) -> bool:
        lane = layout.lanes[node]
        queue = queues.get(lane)
        return queue is not None and placed[lane] < len(queue) and queue[placed[lane]] <= node

    done: list[int] = []
    for lane in sorted(queues):
        pending = [(lane, len(layout))]
        while pending:
            lane, until = pending[-1]
            queue, start = queues[lane], placed[lane]
            if start == len(queue) or queue[start] > until:
                pending.pop()
                continue
            node = queue[start]
            before = (layout.before[node], *sources.get(node, ()))
            missing = next((other for other in before if other != NO_NODE and is_waiting(other)), None)
            if missing is not None:
                pending.append((layout.lanes[missing], missing))
                continue
            stops = merges.get(lane, ())
            following = bisect_right(stops, node)
            last = min(until, stops[following] - 1) if following < len(stops) else until
            end = bisect_right(queue, last, start)
            done += queue[start:end]
            placed[lane] = end
    return done


def _queues(layout: Layout, nodes: Iterable[int]) -> dict[int, list[int]]:
    """The nodes of each lane. Those without a lane stay after the node before them."""
    queues: dict[int, list[int]] = {}
    lanes = layout.lanes
    current = NO_LANE
    queue = queues[0] = []
    for node in nodes:
        lane = lanes[node]
        if lane != current and lane != NO_LANE:
            current = lane
            queue = queues.setdefault(lane, [])
        queue.append(node)
    return queues


class Rails(Sequence[RailRow]):
    """The lines of a drawing with one row for each of `nodes`, in file order or as `group_lanes` sorts them.

    With more than `max_columns` columns, the last one is shared.

    Lines begin, branch off and merge at a few rows only. Columns are assigned there; the cells of a row are found when
    it is drawn, from the lines above and below it.
    """

    def __init__(self, layout: Layout, nodes: Sequence[int], max_columns: int) -> None:
        self._layout = layout
        self.nodes = array("q", nodes)
        self._places = array("d", range(len(nodes)))
        """By row: its number when the lines were found. Rows that were inserted later are halfway between two."""
        self._first_rows = array("q", [NO_ROW]) * len(layout)
        """By node: its row when the lines were found, or `NO_ROW`."""
        for row, node in enumerate(nodes):
            self._first_rows[node] = row
        self._inserted: dict[int, float] = {}
        """By node of a row that was inserted later: the place of that row."""
        self._lanes = _find_lanes(layout, nodes)
        self._columns: dict[float, int] = {}
        """By row of a node without a lane: its column."""
        self._lines: list[dict[int, int]] = [{}]
        """Before the first and after each of `_rows`: the lines to the next row, by column, with their last row."""
        self._connections: dict[float, list[tuple[int, int]]] = {}
        """By row: the columns that are connected in it, in pairs."""
        self._cells: dict[int, tuple[int, tuple[int, ...]]] = {}
        """By number in `_lines`: the first row at which one of these lines ends, and the cells of the rows before."""
        forks = _find_forks(layout, self._first_rows, self._lanes)
        joins = _find_joins(layout, self._first_rows, self._lanes)
        alone = [row for row, node in enumerate(nodes) if layout.lanes[node] == NO_LANE]
        self._rows = sorted({lane.start for lane in self._lanes.values()}.union(forks, joins, alone))
        board = _Board(max_columns)
        for row in self._rows:
            board.begin_row(row)
            lane = self._lanes.get(layout.lanes[nodes[row]])
            if lane is None:
                column = self._columns[row] = board.free_column(row)
            else:
                if lane.column < 0:
                    _start_lane(board, lane, row)
                column = lane.column
                board.draw_down(column, row, lane.end)
            children = forks.get(row)
            if children:
                rail = board.take(row, children[-1].end)
                board.connected.append((column, rail))
                board.draw_down(rail, row, children[-1].end)
                for child in children:
                    child.rail, child.continues_rail = rail, child is children[-1]
            board.connected += [(merged.column, column) for merged in joins.get(row, ())]
            self._lines.append(board.lines)
            if board.connected:
                self._connections[row] = board.connected

    def find_row(self, node: int) -> int:
        """The row of a node, or `NO_ROW`."""
        place = self._inserted.get(node, self._first_rows[node])
        row = bisect_left(self._places, place) if place != NO_ROW else len(self)
        while row < len(self) and self._places[row] == place:
            if self.nodes[row] == node:
                return row
            row += 1
        return NO_ROW

    @cached_property
    def _ends(self) -> frozenset[int]:
        """Nodes at which lines begin, fork, merge or end."""
        layout = self._layout
        forks = (layout.fork(lane) for lane in range(len(layout.first)))
        return frozenset(chain(layout.first, layout.last, forks, *layout.joins))

    def splice(self, row: int, removed: int, inserted: Sequence[int]) -> Rails | None:
        """The drawing with rows removed or inserted after another row of their lane; None if that changes other rows.

        It does not if no line begins or ends at these rows.
        """
        start, end = row + 1, row + 1 + removed
        if not self._ends.isdisjoint(inserted) or not self._ends.isdisjoint(self.nodes[start:end]):
            return None
        from copy import copy  # only screens need it

        place = self._places[row] // 1 + 0.5
        spliced = copy(self)
        spliced.nodes = self.nodes[:start] + array("q", inserted) + self.nodes[end:]
        spliced._places = self._places[:start] + array("d", [place]) * len(inserted) + self._places[end:]
        spliced._inserted = {**self._inserted, **dict.fromkeys(inserted, place)}
        return spliced

    def __len__(self) -> int:
        return len(self.nodes)

    @overload
    def __getitem__(self, row: int) -> RailRow: ...
    @overload
    def __getitem__(self, row: slice) -> list[RailRow]: ...
    def __getitem__(self, row: int | slice) -> RailRow | list[RailRow]:
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        node, place = self.nodes[row], self._places[row]
        lane = self._lanes.get(self._layout.lanes[node])
        column = self._columns[place] if lane is None else lane.column
        number = bisect_left(self._rows, place)
        above = self._lines[number]
        begins = number < len(self._rows) and self._rows[number] == place
        if not begins:
            end, passed = self._passed(number)
            if place < end:
                return RailRow(node, column, passed)
        below = self._lines[number + 1] if begins else above
        cells = {at: UP for at, end in above.items() if end >= place}
        for at, end in below.items():
            if end > place:
                cells[at] = cells.get(at, 0) | DOWN
        for one, other in self._connections.get(place, ()):
            left, right = sorted((one, other))
            for at in range(left, right + 1):
                cells[at] = cells.get(at, 0) | RIGHT * (at < right) | LEFT * (at > left)
        width = max(column, *cells) + 1 if cells else column + 1
        return RailRow(node, column, tuple([cells.get(at, 0) for at in range(width)]))

    def _passed(self, number: int) -> tuple[int, tuple[int, ...]]:
        """The cells of a row that all lines only pass, and the first row that is not one."""
        known = self._cells.get(number)
        if known is None:
            lines = self._lines[number]
            cells = tuple([UP | DOWN if at in lines else 0 for at in range(max(lines, default=-1) + 1)])
            known = self._cells[number] = min(lines.values(), default=0), cells
        return known


def _start_lane(board: _Board, lane: _Lane, row: int) -> None:
    if lane.continues_rail:
        lane.column = lane.rail
    else:
        lane.column = board.take(row, lane.end, after=lane.rail)
        if lane.rail >= 0:
            board.connected.append((lane.rail, lane.column))


def _find_lanes(layout: Layout, nodes: Sequence[int]) -> dict[int, _Lane]:
    """The lanes of some nodes, in the order in which they start."""
    numbers = [layout.lanes[node] for node in nodes]
    ends = dict(zip(numbers, range(len(numbers)), strict=True))
    starts = dict(zip(reversed(numbers), reversed(range(len(numbers))), strict=True))
    return {number: _Lane(starts[number], end) for number, end in ends.items() if number != NO_LANE}


def _find_forks(layout: Layout, row_of: Sequence[int], lanes: dict[int, _Lane]) -> dict[int, list[_Lane]]:
    """By the row of an entry: the lanes that fork from it, in the order in which they start."""
    forks: dict[int, list[_Lane]] = {}
    for number, lane in lanes.items():
        row = _find_row(layout, row_of, layout.fork(number))
        if row is not None and row < lane.start:
            forks.setdefault(row, []).append(lane)
    return forks


def _find_joins(layout: Layout, row_of: Sequence[int], lanes: dict[int, _Lane]) -> dict[int, list[_Lane]]:
    """By the row of a merge: the lanes that were merged."""
    joins: dict[int, list[_Lane]] = {}
    for source, merge in layout.joins:
        merged, row = lanes.get(layout.lanes[source]), row_of[merge]
        if merged is not None and row != NO_ROW and merged.start < row and layout.lanes[source] != layout.lanes[merge]:
            merged.end = max(merged.end, row)
            joins.setdefault(row, []).append(merged)
    return joins


def _find_row(layout: Layout, row_of: Sequence[int], node: int) -> int | None:
    """The row of a node, or of the nearest one before it that is drawn."""
    while node != NO_NODE and row_of[node] == NO_ROW:
        node = layout.before[node]
    return None if node == NO_NODE else row_of[node]


class _Board:
    """The columns of a drawing, filled row by row."""

    def __init__(self, max_columns: int) -> None:
        self._max_columns = max_columns
        self._busy_until: list[int] = []
        """By column: the last row for which it is taken."""
        self.lines: dict[int, int] = {}
        """Columns with a line to the next row -> the row where it ends."""
        self.connected: list[tuple[int, int]] = []
        """Pairs of columns that are connected in this row."""

    def begin_row(self, row: int) -> None:
        self.lines = {column: end for column, end in self.lines.items() if end > row}
        self.connected = []

    def free_column(self, row: int, after: int = -1) -> int:
        """The first free column to the right of another one; the last possible one if none is free."""
        for column in range(after + 1, len(self._busy_until)):
            if self._busy_until[column] < row:
                return column
        return min(len(self._busy_until), self._max_columns - 1)

    def take(self, row: int, until: int, after: int = -1) -> int:
        column = self.free_column(row, after)
        if column == len(self._busy_until):
            self._busy_until.append(until)
        self._busy_until[column] = max(self._busy_until[column], until)
        return column

    def draw_down(self, column: int, row: int, until: int) -> None:
        """Draw a line down from this row."""
        if until > row:
            self.lines[column] = max(self.lines.get(column, row), until)
