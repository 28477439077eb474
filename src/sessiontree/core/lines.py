"""Bytes to lines: where lines begin and end. No JSON, no I/O of its own.

A line is the bytes up to a LF. `iter_blocks` hands out runs of whole lines in one reused buffer, so that scanning a
file of any size needs the memory of its longest line; `line_ends` finds the lines of a block. Both touch each byte
once, also when one line is larger than a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

BLOCK_SIZE = 128 * 1024

ReadInto = Callable[[int, memoryview], int]
"""Fills the buffer with the bytes at an offset; gives how many it got, 0 at the end."""


class Block(Struct, frozen=True):
    """A run of lines at `start`: the first `size` bytes of `buffer`, good until the next block is asked for.

    `whole` is False for the last bytes of a file that does not end in a LF; they may be a line that is still being
    written.
    """

    start: int
    buffer: bytearray
    size: int
    whole: bool

    @property
    def data(self) -> memoryview:
        return memoryview(self.buffer)[: self.size]

    @property
    def end(self) -> int:
        return self.start + self.size


def iter_blocks(readinto: ReadInto, start: int = 0, block_size: int = BLOCK_SIZE) -> Iterator[Block]:
    """Whole lines from `start` to the end of what `readinto` gives, in blocks of about `block_size` bytes.

    A line longer than a block gets a buffer of its own size.
    """
    buffer = bytearray(block_size)
    held = 0
    while True:
        if held == len(buffer):  # one line fills the buffer: double it, so that the copying stays linear
            larger = bytearray(2 * len(buffer))
            larger[:held] = buffer
            buffer = larger
        with memoryview(buffer) as view:
            got = readinto(start + held, view[held:])
        if got == 0:
            break
        size = buffer.rfind(b"\n", held, held + got) + 1
        held += got
        if size == 0:
            continue
        yield Block(start, buffer, size, whole=True)
        rest = held - size
        if len(buffer) > 4 * block_size:  # give a giant line's memory back
            kept = bytes(memoryview(buffer)[size:held])
            buffer = bytearray(max(block_size, 2 * rest))
            buffer[:rest] = kept
        else:
            buffer[:rest] = buffer[size:held]
        start += size
        held = rest
    if held:
        yield Block(start, buffer, held, whole=False)


def line_ends(buffer: bytearray | bytes, size: int) -> list[int]:
    """Where each line of the first `size` bytes ends, its LF included; a rest without LF is the last one."""
    ends: list[int] = []
    find = buffer.find
    end = find(b"\n", 0, size) + 1
    while end:
        ends.append(end)
        end = find(b"\n", end, size) + 1
    if size and (not ends or ends[-1] != size):
        ends.append(size)
    return ends


def iter_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each line of some bytes with its offset, without its LF (a CR before it stays)."""
    start = 0
    for end in line_ends(data, len(data)):
        stop = end - 1 if data[end - 1] == 0x0A else end
        yield start, data[start:stop]
        start = end
