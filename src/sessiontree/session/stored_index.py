"""The index of a session's lines as bytes, stored next to the session and loaded at the next open.

It holds the columns of the journal, the tree and the line offsets, and no body. The store checks whether the session
still has the bytes that were indexed (`IndexStore`). This module checks the index itself: a checksum, its version and
the number of bytes it covers. An index that is not exactly what was written is not loaded, and the session is read as
if there were none.
"""

from __future__ import annotations

import functools
import sys
from array import array
from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Raw, Struct

from sessiontree.core.entries import Fragment, Problem
from sessiontree.core.tree import TreeColumns

_VERSION = 5
_CHECKSUM = 4

STORED_SIZE = 4 << 20
"""Minimum size in bytes of a session whose index is stored. Smaller ones are read in a few milliseconds."""
GROWTH = 16
"""The index is stored again when more than one in this many bytes of the session is not covered by it."""

NUMBERS = "I" if array("I").itemsize == 4 else "L"


class OffsetColumns(Struct, frozen=True, array_like=True, gc=False):
    """Consecutive entries: the lines of a block, or lines stored one by one."""

    first_node: int
    first_line: int
    start: int
    wide: bool
    """Whether the ends take eight bytes each."""
    ends: bytes
    listed: tuple[bytes, bytes, bytes] | None = None
    """Starts, ends and numbers of lines that were stored one by one."""


class IndexColumns(Struct, frozen=True, array_like=True):
    """Everything that reading the lines of a session has found, except their bodies."""

    size: int
    lines: int
    header_node: int | None
    """The number of entries before the header; None without one."""
    header_fields: dict[str, Any]
    header_span: tuple[int, int, int] | None
    type_names: list[str]
    types: bytes
    tree: TreeColumns
    offsets: list[OffsetColumns]
    updates: dict[int, int]
    parts: dict[int, list[int]]
    has_implied_parents: bool
    own_customs: list[int]
    state_lines: dict[int, bytes]
    generated_ids: list[int]
    unchecked_blocks: list[tuple[int, int, int]]
    problems: list[Problem]
    reported_once: set[str]
    fragments: list[Fragment]
    notes: Raw = Raw(b"\x90")


ENCODING_ERRORS = (UnicodeEncodeError, OverflowError, RecursionError)

_PIECE = 4096
"""Number of line notes encoded together."""
_encoder = msgspec.msgpack.Encoder()


@functools.cache
def _decoder() -> msgspec.msgpack.Decoder[IndexColumns]:
    return msgspec.msgpack.Decoder(IndexColumns)  # slow to create, and few sessions have an index


def index_name(dialect: str, version: int) -> str:
    """The name of the index that this version of sessiontree can load."""
    return f"{dialect}-{version}-{_VERSION}-{sys.byteorder}"


def decode_notes(notes: Raw, note_type: type | UnionType | None) -> list[object]:
    item = None if note_type is None else note_type | None
    found: list[object] = msgspec.msgpack.decode(notes, type=list[item])  # type: ignore[valid-type]
    return found


def iter_index(columns: IndexColumns, notes: list[object]) -> Iterator[bytes]:
    """Encode the columns with a checksum, in pieces: those of a session of 1 GB have 64 MB together.

    `ENCODING_ERRORS` if a value cannot be encoded exactly, such as a text that is not Unicode.
    """
    checksum = 0
    for piece in _iter_pieces(columns, notes):
        checksum = crc32(piece, checksum)
        yield piece
    yield checksum.to_bytes(_CHECKSUM, "big")


def _iter_pieces(columns: IndexColumns, notes: list[object]) -> Iterator[bytes]:
    # A MessagePack array is its length followed by its items, so items can be encoded one by one.
    *fields, _ = msgspec.structs.astuple(columns)
    yield _array_start(len(fields) + 1)
    yield from map(_encoder.encode, fields)
    yield _array_start(len(notes))
    for start in range(0, len(notes), _PIECE):
        yield b"".join(map(_encoder.encode, notes[start : start + _PIECE]))


def _array_start(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


def decode_index(data: bytes | memoryview, size: int) -> IndexColumns | None:
    """The columns of the first `size` bytes of a session; None if they are not exactly what was encoded."""
    view = memoryview(data)
    if len(data) < _CHECKSUM or crc32(view[:-_CHECKSUM]) != int.from_bytes(view[-_CHECKSUM:], "big"):
        return None
    try:
        columns = _decoder().decode(view[:-_CHECKSUM])
    except (msgspec.MsgspecError, RecursionError):
        return None
    return columns if columns.size == size and _is_consistent(columns) else None


def _is_consistent(columns: IndexColumns) -> bool:
    """Whether the columns fit each other: numbers of entries, types, parents and spans within the indexed bytes."""
    tree, count = columns.tree, len(columns.tree.ids)
    try:
        types, parents, parentless = (
            array(NUMBERS, columns.types),
            array("i", tree.parents),
            array("i", tree.parentless),
        )
        spans = [*map(_span_of, columns.offsets)]
    except ValueError:  # not a whole number of items
        return False
    if not len(types) == len(parents) == count or max(types, default=-1) >= len(columns.type_names):
        return False
    if not _are_below(parents, count) or not _are_below(parentless, count):
        return False
    counted = 0
    for offsets, (entries, start, end) in zip(columns.offsets, spans, strict=True):
        if offsets.first_node != counted or not 0 <= start <= end <= columns.size:
            return False
        counted += entries
    return counted == count and all(map(count.__gt__, [*columns.own_customs, *columns.generated_ids]))


def _are_below(numbers: array[int], count: int) -> bool:
    return not numbers or (min(numbers) >= 0 and max(numbers) < count)


def _span_of(offsets: OffsetColumns) -> tuple[int, int, int]:
    """Number of entries, and their first and last byte."""
    if offsets.listed is not None:
        starts, ends, lines = (array("q", data) for data in offsets.listed)
        if not len(starts) == len(ends) == len(lines):
            raise ValueError("columns of different lengths")
        return len(starts), min(starts, default=0), max(ends, default=0)
    ends = array("Q" if offsets.wide else "I", offsets.ends)
    return len(ends), offsets.start, offsets.start + max(ends, default=0)


def number_bytes(numbers: Iterable[int]) -> bytes:
    return array(NUMBERS, numbers).tobytes()


def numbers_of(data: bytes) -> list[int]:
    numbers = array(NUMBERS)
    numbers.frombytes(data)
    return numbers.tolist()
