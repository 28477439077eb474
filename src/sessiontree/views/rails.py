"""The lines of a drawn tree: per row, the column of its entry and the lines in each column.

A lane of the layout is drawn in one column from its first entry to its last. The line to a lane starts at the entry it
forks from. Lanes that fork from the same entry share that line: the last of them continues it, the others branch off
from it where they start. A merge extends the line of the merged lane to its own row.

A column is used again when its lane has ended, so a drawing has few columns. Unlike lanes, columns therefore depend on
the whole session. They do not depend on the current entry.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain

from msgspec import Struct

from sessiontree.core.layout import NO_LANE, NO_NODE, Layout

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
"""Directions in which lines leave a cell; a cell is their sum."""

_NO_ROW = -1

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


class _Lane(Struct):
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
    waiting = bytearray(len(layout))
    """By node: whether it has a lane and still has to be placed."""
    for node in chain.from_iterable(queues.values()):
        waiting[node] = layout.lanes[node] != NO_LANE
    sources: dict[int, list[int]] = {}
    for source, merge in layout.joins:
        sources.setdefault(merge, []).append(source)
    done: list[int] = []
    for lane in sorted(queues):
        pending = [(lane, len(layout))]
        while pending:
            lane, until = pending[-1]
            queue = queues.get(lane)
            if not queue or queue[0] > until:
                pending.pop()
                continue
            node = queue[0]
            before = (layout.before[node], *sources.get(node, ()))
            missing = next((other for other in before if other != NO_NODE and waiting[other]), None)
            if missing is not None:
                pending.append((layout.lanes[missing], missing))
            else:
                done.append(queue.popleft())
                waiting[node] = False
    return done


def _queues(layout: Layout, nodes: Iterable[int]) -> dict[int, deque[int]]:
    """The nodes of each lane. Those without a lane stay after the node before them."""
    queues: dict[int, deque[int]] = {}
    lane = 0
    for node in nodes:
        if layout.lanes[node] != NO_LANE:
            lane = layout.lanes[node]
        queues.setdefault(lane, deque()).append(node)
    return queues


def find_rails(layout: Layout, nodes: Sequence[int], max_columns: int) -> Iterator[RailRow]:
    """Find the lines of a drawing with one row for each of `nodes`, in file order or as `group_lanes` sorts them.

    With more than `max_columns` columns, the last one is shared.
    """
    row_of = array("q", [_NO_ROW]) * len(layout)
    for row, node in enumerate(nodes):
        row_of[node] = row
    lanes = _find_lanes(layout, nodes)
    forks = _find_forks(layout, row_of, lanes)
    joins = _find_joins(layout, row_of, lanes)
    board = _Board(max_columns)
    for row, node in enumerate(nodes):
        cells = board.begin_row(row)
        lane = lanes.get(layout.lanes[node])
        if lane is None:
            column = board.free_column(row)
        else:
            if lane.column < 0:
                _start_lane(board, lane, row)
            column = lane.column
            board.draw_down(column, row, lane.end)
        children = forks.get(row)
        if children:
            rail = board.take(row, children[-1].end)
            board.connect(column, rail)
            board.draw_down(rail, row, children[-1].end)
            for child in children:
                child.rail, child.continues_rail = rail, child is children[-1]
        for merged in joins.get(row, ()):
            board.connect(merged.column, column)
        width = max(column, *cells) + 1 if cells else column + 1
        yield RailRow(node, column, tuple([cells.get(at, 0) for at in range(width)]))


def _start_lane(board: _Board, lane: _Lane, row: int) -> None:
    if lane.continues_rail:
        lane.column = lane.rail
    else:
        lane.column = board.take(row, lane.end, after=lane.rail)
        if lane.rail >= 0:
            board.connect(lane.rail, lane.column)


def _find_lanes(layout: Layout, nodes: Sequence[int]) -> dict[int, _Lane]:
    lanes: dict[int, _Lane] = {}
    for row, node in enumerate(nodes):
        number = layout.lanes[node]
        if number != NO_LANE:
            lanes.setdefault(number, _Lane(row, row)).end = row
    return lanes


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
        if merged is not None and row != _NO_ROW and merged.start < row and layout.lanes[source] != layout.lanes[merge]:
            merged.end = max(merged.end, row)
            joins.setdefault(row, []).append(merged)
    return joins


def _find_row(layout: Layout, row_of: Sequence[int], node: int) -> int | None:
    """The row of a node, or of the nearest one before it that is drawn."""
    while node != NO_NODE and row_of[node] == _NO_ROW:
        node = layout.before[node]
    return None if node == NO_NODE else row_of[node]


class _Board:
    """The columns of a drawing, filled row by row."""

    def __init__(self, max_columns: int) -> None:
        self._max_columns = max_columns
        self._busy_until: list[int] = []
        """By column: the last row for which it is taken."""
        self._lines: dict[int, int] = {}
        """Columns with a line to the next row -> the row where it ends."""
        self._cells: dict[int, int] = {}

    def begin_row(self, row: int) -> dict[int, int]:
        """Draw the lines from the row before; returns the cells of the new row, which later calls change."""
        self._cells = {column: UP | DOWN * (end > row) for column, end in self._lines.items()}
        self._lines = {column: end for column, end in self._lines.items() if end > row}
        return self._cells

    def free_column(self, row: int, after: int = -1) -> int:
        """The first free column to the right of another one; the last possible one if none is free."""
        columns = enumerate(self._busy_until)
        found = next((column for column, until in columns if column > after and until < row), len(self._busy_until))
        return min(found, self._max_columns - 1)

    def take(self, row: int, until: int, after: int = -1) -> int:
        column = self.free_column(row, after)
        if column == len(self._busy_until):
            self._busy_until.append(until)
        self._busy_until[column] = max(self._busy_until[column], until)
        return column

    def draw_down(self, column: int, row: int, until: int) -> None:
        """Draw a line down from this row."""
        if until > row:
            self._cells[column] = self._cells.get(column, 0) | DOWN
            self._lines[column] = max(self._lines.get(column, row), until)

    def connect(self, one: int, other: int) -> None:
        """Draw a line between two columns of this row."""
        left, right = sorted((one, other))
        for column in range(left, right + 1):
            lines = RIGHT * (column < right) | LEFT * (column > left)
            self._cells[column] = self._cells.get(column, 0) | lines
