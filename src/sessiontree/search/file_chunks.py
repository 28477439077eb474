"""Session files in chunks of 32 KiB, the unit that the index refers to.

A line belongs to the chunk in which it begins. So its chunk depends only on the content of the file, not on the steps
in which the file grew or was indexed. The index needs no table of lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

CHUNK_BITS = 15
"""Binary logarithm of the chunk size."""

_FIRST, EDGE = 1024, 64
_BLOCK, _PAGE = 256 * 1024, 4096


def open_file(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def read_at(descriptor: int, offset: int, size: int) -> bytes:
    """Read exactly `size` bytes, or fewer at the end of the file."""
    parts: list[bytes] = []
    while size > 0:
        part = os.pread(descriptor, size, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)


def head_hash(descriptor: int, size: int) -> bytes:
    """Hash of the first bytes of a file that had `size` bytes; identifies it."""
    from hashlib import blake2b  # slow to import, and not needed if nothing changed

    return blake2b(read_at(descriptor, 0, min(_FIRST, size)), digest_size=8).digest()


def bytes_before(descriptor: int, size: int) -> bytes:
    """The last bytes before a position; they change if the file was rewritten."""
    return read_at(descriptor, max(0, size - EDGE), min(EDGE, size))


def iter_lines(descriptor: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Lines that begin in a range, with their offsets. Each includes its LF; the last one may have none.

    Moves the descriptor's file position: exhaust one iterator before you start another.
    """
    os.lseek(descriptor, start, os.SEEK_SET)
    offset = start
    with open(descriptor, "rb", buffering=min(_BLOCK, max(end - start, _PAGE)), closefd=False) as file:
        for line in file:
            if offset >= end:
                return
            yield offset, line
            offset += len(line)


def read_chunk(descriptor: int, chunk: int) -> tuple[int, bytes]:
    """The lines that begin in a chunk, as one block, with the offset of the block."""
    start, end = chunk << CHUNK_BITS, (chunk + 1) << CHUNK_BITS
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
    return next((line for _, line in iter_lines(descriptor, offset, offset + 1)), b"")
