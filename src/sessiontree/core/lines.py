"""Split bytes into lines, without parsing JSON or doing I/O.

A line is the bytes up to an LF. `iter_blocks` yields runs of complete lines in one reused buffer, so that scanning a
file of any size needs only the memory of its longest line. `line_ends` finds the lines of a block. Both read each byte
once, even when a line is larger than a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

BLOCK_SIZE = 128 * 1024

ReadInto = Callable[[int, memoryview], int]
"""Reads bytes at an offset into a buffer and returns their number; 0 at the end of the file."""


class Block(Struct, frozen=True):
    """A run of lines at offset `start`: the first `size` bytes of `buffer`, valid until the next block is requested.

    `whole` is False for the last bytes of a file that does not end in LF: another process may still be writing them.
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


def iter_blocks(
    readinto: ReadInto, start: int = 0, block_size: int = BLOCK_SIZE, *, end: int | None = None
) -> Iterator[Block]:
    """Iterate over the lines from `start` to the end, in blocks of about `block_size` bytes.

    The buffer grows for a line that is longer than a block. With a known `end`, no read is needed to find it.
    """
    buffer = bytearray(block_size)
    held = 0
    while end is None or start + held < end:
        if held == len(buffer):  # one line fills the buffer: doubling it keeps the total copying linear
            larger = bytearray(2 * len(buffer))
            larger[:held] = buffer
            buffer = larger
        with memoryview(buffer) as view:
            got = readinto(start + held, view[held:] if end is None else view[held : end - start])
        if got == 0:
            break
        size = buffer.rfind(b"\n", held, held + got) + 1
        held += got
        if size == 0:
            continue
        yield Block(start, buffer, size, whole=True)
        rest = held - size
        if len(buffer) > 4 * block_size:  # release the memory of a giant line
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
    """End offset of each line in the first `size` bytes, LF included; an unterminated rest is the last line."""
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
    """Iterate over (offset, line) of some bytes, without LF (a CR before it stays)."""
    start = 0
    for end in line_ends(data, len(data)):
        stop = end - 1 if data[end - 1] == 0x0A else end
        yield start, data[start:stop]
        start = end
