"""Byte range and line number of each entry, compact enough for millions of entries.

For the lines of a well-formed block only their ends are stored, four bytes each. For lines that were decoded one by one
(such a line may hold several entries, or damage), start, end and number are stored.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import sub
from typing import TypeAlias

from msgspec import Struct

from sessiontree.core.lines import BLOCK_SIZE
from sessiontree.session.stored_index import OffsetColumns

ReadInto: TypeAlias = Callable[[int, memoryview], None]
"""Fills a view with bytes of the store at an offset."""

_MAX_JOINT_READ = 2 << 20
_MAX_GAP = 1 << 18
"""Largest gap of unneeded bytes that is read to save a separate read."""
_UINT32_LIMIT = 1 << 32


class LineSpan(Struct, frozen=True):
    """A line's byte range, without LF, and its number, from 1."""

    start: int
    end: int
    line: int


class _LineList(Struct):
    starts: array[int]
    ends: array[int]
    lines: array[int]

    def columns(self) -> tuple[bytes, bytes, bytes]:
        return self.starts.tobytes(), self.ends.tobytes(), self.lines.tobytes()


class _Run(Struct):
    """Consecutive entries: the lines of a block, or lines stored one by one."""

    first_node: int
    first_line: int
    start: int
    ends: array[int]
    """End of each line of the block, LF included, relative to its start."""
    listed: _LineList | None = None


class LineOffsets:
    """Line spans of all entries of a session."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._first_nodes: list[int] = []
        self._count = 0

    def columns(self) -> list[OffsetColumns]:
        """All spans, for storing."""
        return [
            OffsetColumns(
                run.first_node,
                run.first_line,
                run.start,
                run.ends.typecode == "Q",
                run.ends.tobytes(),
                None if run.listed is None else run.listed.columns(),
            )
            for run in self._runs
        ]

    def load(self, stored: Sequence[OffsetColumns], count: int) -> None:
        """Add the stored spans of `count` entries to an empty object."""
        assert not self._runs, "there are spans already"
        for columns in stored:
            listed = columns.listed and _LineList(*(_array("q", data) for data in columns.listed))
            ends = _array("Q" if columns.wide else "I", columns.ends)
            self._start_run(_Run(columns.first_node, columns.first_line, columns.start, ends, listed))
        self._count = count

    def add_block(self, start: int, first_line: int, ends: Sequence[int]) -> None:
        """Add a block in which each line is one entry. `ends` are relative to its start, LF included."""
        self._start_run(_Run(self._count, first_line, start, array("I" if ends[-1] < _UINT32_LIMIT else "Q", ends)))
        self._count += len(ends)

    def add_next(self, start: int, size: int, line: int) -> None:
        """Add one entry on a line of `size` bytes, LF included, which usually follows the last one directly."""
        run = self._runs[-1] if self._runs else None
        if run is None or run.listed is not None or run.start + run.ends[-1] != start or run.ends[-1] > BLOCK_SIZE:
            self.add_block(start, line, [size])
            return
        run.ends.append(run.ends[-1] + size)
        self._count += 1

    def add_line(self, start: int, end: int, line: int) -> None:
        """Add one entry: a line, or a part of one."""
        listed = self._runs[-1].listed if self._runs else None
        if listed is None:
            listed = _LineList(array("q"), array("q"), array("q"))
            self._start_run(_Run(self._count, line, start, array("I"), listed))
        listed.starts.append(start)
        listed.ends.append(end)
        listed.lines.append(line)
        self._count += 1

    def span(self, node: int) -> LineSpan:
        run = self._runs[bisect_right(self._first_nodes, node) - 1]
        at = node - run.first_node
        if run.listed is not None:
            return LineSpan(run.listed.starts[at], run.listed.ends[at], run.listed.lines[at])
        start = run.ends[at - 1] if at else 0
        return LineSpan(run.start + start, run.start + run.ends[at] - 1, run.first_line + at)

    def sizes(self, nodes: Sequence[int] | None = None) -> list[int]:
        """Size of the line of some entries, or of each entry, in bytes, with or without LF."""
        sizes: list[int] = []
        if nodes is not None:
            for run, numbers in self._iter_runs(nodes):
                if run.listed is None:
                    stops = [*run.ends, 0]  # index -1, the line before the first, finds the 0
                    sizes += [stops[at] - stops[at - 1] for at in numbers]
                else:
                    sizes += [run.listed.ends[at] - run.listed.starts[at] for at in numbers]
            return sizes
        for run in self._runs:
            ends = run.ends
            sizes += map(sub, ends, [0, *ends]) if run.listed is None else map(sub, run.listed.ends, run.listed.starts)
        return sizes

    def iter_raw(self, nodes: Sequence[int], read_into: ReadInto) -> Iterator[bytes]:
        """Iterate over the bytes of some entries in the given order, without LF; neighbors are read together."""
        for lines, view, offset in self._iter_views(nodes, read_into):
            yield from lines.cut(view, offset)

    def read_joined(self, nodes: Sequence[int], read_into: ReadInto) -> bytes:
        """Read the bytes of some entries in the given order, joined by LF: much cheaper than one by one."""
        return b"\n".join([lines.joined(view, offset) for lines, view, offset in self._iter_views(nodes, read_into)])

    def _iter_views(
        self, nodes: Sequence[int], read_into: ReadInto
    ) -> Iterator[tuple[_BlockLines | _ListedLine, memoryview, int]]:
        """Read the bytes of some entries. Each view is valid until the next one; its offset is in the file."""
        # `read_into` is a method of the journal that holds this object. It is passed in each time, because storing it
        # would create a reference cycle, and closed journals would stay in memory until the garbage collector runs.
        buffer = bytearray()  # reused for all reads: fresh memory costs a page fault per page
        for group in _joined(self._iter_groups(nodes)):
            start, size = group[0].start, group[-1].end - group[0].start
            if len(buffer) < size or len(buffer) > 2 * max(size, _MAX_JOINT_READ):
                buffer.clear()  # so that never two are in memory
                buffer = bytearray(size)
            with memoryview(buffer) as view:
                read_into(start, view[:size])
                for lines in group:
                    yield lines, view, start

    def _iter_groups(self, nodes: Sequence[int]) -> Iterator[_BlockLines | _ListedLine]:
        for run, numbers in self._iter_runs(nodes):
            if run.listed is not None:
                starts, ends = run.listed.starts, run.listed.ends
                yield from [_ListedLine(starts[at], ends[at]) for at in numbers]
                continue
            first, last = min(numbers), max(numbers)
            stops = [run.ends[first - 1] if first else 0, *run.ends[first : last + 1]]
            yield _BlockLines(run.start + stops[0], run.start + stops[-1], run.start, stops, first, numbers)

    def _iter_runs(self, nodes: Sequence[int]) -> Iterator[tuple[_Run, list[int]]]:
        """Iterate over the runs that hold some nodes, in the given order, with the numbers of the nodes in each run."""
        if nodes and (number := bisect_right(self._first_nodes, min(nodes))) == bisect_right(
            self._first_nodes, max(nodes)
        ):
            run = self._runs[number - 1]
            yield run, [node - run.first_node for node in nodes]
            return
        for number, group in groupby(nodes, lambda node: bisect_right(self._first_nodes, node) - 1):
            run = self._runs[number]
            yield run, [node - run.first_node for node in group]

    def _start_run(self, run: _Run) -> None:
        self._runs.append(run)
        self._first_nodes.append(run.first_node)


def _array(typecode: str, data: bytes) -> array[int]:
    numbers: array[int] = array(typecode)
    numbers.frombytes(data)
    return numbers


class _BlockLines(Struct, frozen=True, gc=False):
    """Some lines of a block, and the byte range that holds them."""

    start: int
    end: int
    block: int
    """Offset of the block."""
    stops: list[int]
    """Start of the first line, and the end of each line in the range, LF included, relative to the block."""
    first: int
    """Number of the first line in the range."""
    numbers: list[int]

    def cut(self, view: memoryview, offset: int) -> list[bytes]:
        """The lines, from a view of the bytes from an offset on."""
        shift, stops, first = self.block - offset, self.stops, self.first
        return [bytes(view[stops[at - first] + shift : stops[at - first + 1] + shift - 1]) for at in self.numbers]

    def joined(self, view: memoryview, offset: int) -> bytes:
        """The lines in one piece, joined by LF."""
        if self.numbers != [*range(self.first, self.first + len(self.stops) - 1)]:
            return b"\n".join(self.cut(view, offset))
        return bytes(view[self.start - offset : self.end - offset - 1])


class _ListedLine(Struct, frozen=True, gc=False):
    """A line that was stored individually."""

    start: int
    end: int

    def cut(self, view: memoryview, offset: int) -> list[bytes]:
        return [self.joined(view, offset)]

    def joined(self, view: memoryview, offset: int) -> bytes:
        return bytes(view[self.start - offset : self.end - offset])


def _joined(groups: Iterator[_BlockLines | _ListedLine]) -> Iterator[list[_BlockLines | _ListedLine]]:
    """Join neighbors into ranges, one read each: a store may be remote, and each read costs a round trip."""
    joint: list[_BlockLines | _ListedLine] = []
    for lines in groups:
        if joint and not (
            joint[-1].end <= lines.start <= joint[-1].end + _MAX_GAP and lines.end - joint[0].start <= _MAX_JOINT_READ
        ):
            yield joint
            joint = []
        joint.append(lines)
    if joint:
        yield joint
