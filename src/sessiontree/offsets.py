"""Where each entry's line is: byte range and line number, for millions of entries in little memory.

Lines of an ordinary block are not listed one by one: the block's place is enough to find them again when an entry is
read. Lines that were looked at one by one, and lines we wrote ourselves, have their places listed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from sessiontree.lines import BLOCK_SIZE, line_ends

_READ_TOGETHER = 1 << 20


class Place(Struct, frozen=True):
    """A line's byte range, its LF not included, and its number from 1."""

    start: int
    end: int
    line: int


class _Listed(Struct):
    starts: array[int]
    ends: array[int]
    lines: array[int]


class _Run(Struct):
    """Entries that follow each other: `count` lines of a block, or lines listed one by one."""

    first_node: int
    first_line: int
    start: int
    size: int
    listed: _Listed | None = None


class Offsets:
    """The places of all entries of a session. `read_into` fills a view with bytes of the store from an offset on."""

    def __init__(self, read_into: Callable[[int, memoryview], None]) -> None:
        self._read_into = read_into
        self._runs: list[_Run] = []
        self._first_nodes: list[int] = []
        self._count = 0
        self._cached = -1
        self._cached_ends: list[int] = []

    def add_block(self, start: int, size: int, first_line: int, count: int) -> None:
        """A block in which each of `count` lines is one entry."""
        self._begin(_Run(self._count, first_line, start, size))
        self._count += count

    def add_next(self, start: int, size: int, line: int) -> None:
        """One entry on a whole line of `size` bytes, LF included; most often right behind the one before."""
        run = self._runs[-1] if self._runs else None
        if run is None or run.listed is not None or run.start + run.size != start or run.size > BLOCK_SIZE:
            self.add_block(start, size, line, 1)
            return
        run.size += size
        self._count += 1
        if self._cached == len(self._runs) - 1:
            self._cached = -1

    def add_line(self, start: int, end: int, line: int) -> None:
        """One entry: a whole line, or a part of one."""
        listed = self._runs[-1].listed if self._runs else None
        if listed is None:
            listed = _Listed(array("q"), array("q"), array("q"))
            self._begin(_Run(self._count, line, start, 0, listed))
        listed.starts.append(start)
        listed.ends.append(end)
        listed.lines.append(line)
        self._count += 1

    def place(self, node: int) -> Place:
        number = bisect_right(self._first_nodes, node) - 1
        run = self._runs[number]
        at = node - run.first_node
        if run.listed is not None:
            return Place(run.listed.starts[at], run.listed.ends[at], run.listed.lines[at])
        ends = self._ends(number, run)
        start = ends[at - 1] if at else 0
        return Place(run.start + start, run.start + ends[at] - 1, run.first_line + at)

    def iter_raw(self, nodes: Sequence[int]) -> Iterator[bytes]:
        """The bytes of some entries in the order asked for, without LF; neighbours are read together."""
        buffer = bytearray()  # one for all blocks: new memory has to be asked for page by page
        for number, group in groupby(nodes, lambda node: bisect_right(self._first_nodes, node) - 1):
            run = self._runs[number]
            if run.listed is None:
                if len(buffer) < run.size or len(buffer) > 2 * max(run.size, _READ_TOGETHER):
                    buffer = bytearray(run.size)
                with memoryview(buffer) as view:
                    self._read_into(run.start, view[: run.size])
                    ends = line_ends(buffer, run.size)
                    for node in group:
                        at = node - run.first_node
                        yield bytes(view[ends[at - 1] if at else 0 : ends[at] - 1])
            else:
                yield from self._iter_listed(run.listed, [node - run.first_node for node in group])

    def _iter_listed(self, listed: _Listed, numbers: list[int]) -> Iterator[bytes]:
        first = min(listed.starts[at] for at in numbers)
        last = max(listed.ends[at] for at in numbers)
        together = self._read(first, last - first) if last - first <= _READ_TOGETHER else None
        for at in numbers:
            start, end = listed.starts[at], listed.ends[at]
            yield self._read(start, end - start) if together is None else together[start - first : end - first]

    def _read(self, start: int, size: int) -> bytes:
        buffer = bytearray(size)
        with memoryview(buffer) as view:
            self._read_into(start, view)
            return bytes(view)

    def _begin(self, run: _Run) -> None:
        self._runs.append(run)
        self._first_nodes.append(run.first_node)

    def _ends(self, number: int, run: _Run) -> list[int]:
        if self._cached != number:
            self._cached_ends = line_ends(self._read(run.start, run.size), run.size)
            self._cached = number
        return self._cached_ends
