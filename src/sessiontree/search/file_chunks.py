"""Sessions in chunks of 32 KiB, the unit that the index refers to.

A line belongs to the chunk in which it begins. So its chunk depends only on the content of the session, not on the
steps in which it grew or was indexed. The index needs no table of lines.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sessiontree.stores.contract import SessionStore, read_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer  # `collections.abc.Buffer` from Python 3.12 on

    from sessiontree.library.summary import Summary

CHUNK_BITS = 15
"""Binary logarithm of the chunk size."""

_FIRST, EDGE = 1024, 64
_BLOCK, _PAGE = 256 * 1024, 4096


class _StoreFile(io.RawIOBase):
    """The raw bytes of a store from an offset on."""

    def __init__(self, store: SessionStore, offset: int) -> None:
        self._store = store
        self._offset = offset

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        with memoryview(buffer) as view:
            got = self._store.readinto(self._offset, view)
        self._offset += got
        return got


def as_file(store: SessionStore, offset: int, buffer_size: int = _PAGE) -> io.BufferedReader:
    """A store as a file, from an offset on. Reading large blocks from it takes no copy, unlike `read_bytes`."""
    return io.BufferedReader(_StoreFile(store, offset), buffer_size)


def find_identity(summary: Summary) -> int:
    """A number that changes when a session is replaced, rather than continued: the inode of a file."""
    return os.stat(summary.ref).st_ino if summary.is_line_file else summary.modified


def head_hash(store: SessionStore, size: int) -> bytes:
    """Hash of the first bytes of a session that had `size` bytes; identifies it."""
    from hashlib import blake2b  # slow to import, and not needed if nothing changed

    return blake2b(read_bytes(store, 0, min(_FIRST, size)), digest_size=8).digest()


def bytes_before(store: SessionStore, size: int) -> bytes:
    """The last bytes before a position; they change if the session was rewritten."""
    return read_bytes(store, max(0, size - EDGE), min(EDGE, size))


def iter_lines(store: SessionStore, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Lines that begin in a range, with their offsets. Each includes its LF; the last one may have none."""
    offset = start
    with as_file(store, start, min(_BLOCK, max(end - start, _PAGE))) as file:
        for line in file:
            if offset >= end:
                return
            yield offset, line
            offset += len(line)


def read_chunk(store: SessionStore, chunk: int) -> tuple[int, bytes]:
    """The lines that begin in a chunk, as one block, with the offset of the block."""
    start, end = chunk << CHUNK_BITS, (chunk + 1) << CHUNK_BITS
    base = max(0, start - 1)
    with as_file(store, base) as file:
        block = file.read(end - start + _PAGE)
        first = block.find(b"\n") + 1 if start else 0
        if (start and not first) or base + first >= end:
            return end, b""
        last = block.find(b"\n", end - base - 1)
        while last < 0 and (more := file.read(_BLOCK)):
            last = more.find(b"\n") + len(block) if b"\n" in more else -1
            block += more
    return base + first, block[first : last + 1 if last >= 0 else len(block)]


def line_at(store: SessionStore, offset: int) -> bytes:
    return next((line for _, line in iter_lines(store, offset, offset + 1)), b"")
