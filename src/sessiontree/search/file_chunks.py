"""The lines of a session file by their places in it: what the index speaks of, and how a place is read again.

A file is thought of in stretches of 32 KiB; a line belongs to the stretch it begins in. So it follows from the file
alone which lines belong together, however it grew and whoever read it, and nothing has to be remembered of single
lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

STRETCH = 15
"""A stretch has two to the power of this many bytes."""

_FIRST, EDGE = 1024, 64
_BLOCK, _PAGE = 256 * 1024, 4096


def open_file(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def read_at(descriptor: int, offset: int, size: int) -> bytes:
    """Some bytes, fewer only when the file ends before."""
    parts: list[bytes] = []
    while size > 0:
        part = os.pread(descriptor, size, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)


def head_of(descriptor: int, size: int) -> bytes:
    """What tells a file from another: a hash of its first bytes, of which it had `size`."""
    from hashlib import blake2b  # slow to load, and not needed where nothing changed

    return blake2b(read_at(descriptor, 0, min(_FIRST, size)), digest_size=8).digest()


def edge_of(descriptor: int, size: int) -> bytes:
    """The bytes before a place in a file."""
    return read_at(descriptor, max(0, size - EDGE), min(EDGE, size))


def iter_lines(descriptor: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Each line that begins between two places with its offset, its LF included. The last one may have none.

    The place of the descriptor is moved: take the lines of one range before those of another.
    """
    os.lseek(descriptor, start, os.SEEK_SET)
    offset = start
    with open(descriptor, "rb", buffering=min(_BLOCK, max(end - start, _PAGE)), closefd=False) as file:
        for line in file:
            if offset >= end:
                return
            yield offset, line
            offset += len(line)


def stretch_block(descriptor: int, stretch: int) -> tuple[int, bytes]:
    """The lines that begin in a stretch of a file, in one piece, and where they begin."""
    start, end = stretch << STRETCH, (stretch + 1) << STRETCH
    base = max(0, start - 1)
    block = read_at(descriptor, base, end - base + _PAGE)
    first = block.find(b"\n") + 1 if start else 0
    if (start and not first) or base + first >= end:
        return end, b""
    last = block.find(b"\n", end - base - 1)
    while last < 0 and (more := read_at(descriptor, base + len(block), _BLOCK)):
        last = more.find(b"\n") + len(block) if b"\n" in more else -1
        block += more
    return base + first, block[first : last + 1 if last >= 0 else len(block)]


def line_at(descriptor: int, offset: int) -> bytes:
    """The line that begins at an offset."""
    return next((line for _, line in iter_lines(descriptor, offset, offset + 1)), b"")
