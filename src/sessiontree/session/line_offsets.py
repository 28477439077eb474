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

ReadInto: TypeAlias = Callable[[int, memoryview], None]
"""Fills a view with bytes of the store at an offset."""

_MAX_JOINT_READ = 1 << 20
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

    def sizes(self) -> list[int]:
        """Size of each entry's line in bytes, with or without LF."""
        sizes: list[int] = []
        for run in self._runs:
            ends = run.ends
            sizes += map(sub, ends, [0, *ends]) if run.listed is None else map(sub, run.listed.ends, run.listed.starts)
        return sizes

    def iter_raw(self, nodes: Sequence[int], read_into: ReadInto) -> Iterator[bytes]:
        """Iterate over the bytes of some entries in the given order, without LF; neighbors are read together."""
        # `read_into` is a method of the journal that holds this object. It is passed in each time, because storing it
        # would create a reference cycle, and closed journals would stay in memory until the garbage collector runs.
        buffer = bytearray()  # reused for all blocks: fresh memory costs a page fault per page
        for number, group in groupby(nodes, lambda node: bisect_right(self._first_nodes, node) - 1):
            run = self._runs[number]
            numbers = [node - run.first_node for node in group]
            if run.listed is not None:
                yield from _iter_listed(run.listed, numbers, read_into)
                continue
            ends = [*run.ends, 0]  # so that index -1 is the start of the first line
            first, last = ends[min(numbers) - 1], ends[max(numbers)]
            size = last - first
            if len(buffer) < size or len(buffer) > 2 * max(size, _MAX_JOINT_READ):
                buffer = bytearray(size)
            with memoryview(buffer) as view:
                read_into(run.start + first, view[:size])
                yield from [bytes(view[ends[at - 1] - first : ends[at] - first - 1]) for at in numbers]

    def _start_run(self, run: _Run) -> None:
        self._runs.append(run)
        self._first_nodes.append(run.first_node)


def _iter_listed(listed: _LineList, numbers: list[int], read_into: ReadInto) -> Iterator[bytes]:
    first = min(listed.starts[at] for at in numbers)
    last = max(listed.ends[at] for at in numbers)
    together = _read(first, last - first, read_into) if last - first <= _MAX_JOINT_READ else None
    for at in numbers:
        start, end = listed.starts[at], listed.ends[at]
        yield _read(start, end - start, read_into) if together is None else together[start - first : end - first]


def _read(start: int, size: int, read_into: ReadInto) -> bytes:
    buffer = bytearray(size)
    with memoryview(buffer) as view:
        read_into(start, view)
        return bytes(view)
