"""Branch state of a line: on the active path, before a compaction on it, or on an abandoned branch.

This needs the opened session, so it is computed only for sessions with hits and cached in the index. If the file grew
by lines that only extend the active path, the cached state is still valid.
"""

from __future__ import annotations

import contextlib
import sqlite3
from array import array
from bisect import bisect_left
from itertools import chain
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.errors import SessionTreeError
from sessiontree.library.roots import dialect_named
from sessiontree.library.session_store import open_store
from sessiontree.library.sqlite_damage import row_checksum
from sessiontree.library.summary import Summary
from sessiontree.search.index_db import IndexStore
from sessiontree.stores.contract import read_bytes

BranchState: TypeAlias = Literal["active", "abandoned", "compacted"]

_MAX_GROWTH = 4 << 20


class BranchMap(Struct, frozen=True, array_like=True):
    """The lines that are not on the active path, as packed offsets, and the current entry."""

    leaf: str
    abandoned: bytes
    compacted: bytes

    def state(self, offset: int) -> BranchState:
        if _has(self.abandoned, offset):
            return "abandoned"
        return "compacted" if _has(self.compacted, offset) else "active"


def load_branches(store: IndexStore, file: int | None, summary: Summary, size: int) -> BranchMap:
    """The branch map of a session file of a given size: cached, extended, or computed."""
    row = _load(store, file) if file is not None else None
    if row is not None and row[0] == size:
        return row[1]
    found = None
    if row is not None and 0 < size - row[0] <= _MAX_GROWTH:
        found = _extend(summary, row[0], size, row[1])
    found = found or read_branches(summary)
    if file is not None:
        _save(store, file, size, found)
    return found


def read_branches(summary: Summary) -> BranchMap:
    """Compute the branch map of a session; empty if it cannot be opened."""
    from sessiontree.dialects.contract import is_metadata_id
    from sessiontree.session.open import open

    try:
        session = open(summary.ref, dialect=summary.agent)
        journal, dialect, read_options = session.journal, session.dialect, session.read_options
        leaf = dialect.find_leaf(journal, read_options)
        path = dialect.find_path(journal, leaf, read_options)
        history = dialect.find_history(journal, leaf, read_options)
        context = dialect.build_context(journal, leaf, read_options)
    except (SessionTreeError, OSError):
        return BranchMap("", b"", b"")
    ids = journal.tree.ids
    sent, before, active = (bytearray(len(ids)) for _ in range(3))  # by node; sets take more memory in a huge session
    for id in context.sources:
        node = journal.tree.node_of.get(id)
        if node is not None:
            sent[node] = active[node] = True
    for node in chain(path, history):
        before[node] = True
    first = next((position for position, node in enumerate(path) if sent[node]), 0)
    for node in path[first:]:
        active[node] = True
    quiet = dialect.traits.passive_types | {"session_info"}  # a title is that of the session, on every branch
    abandoned, compacted = array("Q"), array("Q")
    for node, id in enumerate(ids):
        if active[node] or is_metadata_id(id) or (journal.types[node] in quiet and not before[node]):
            continue
        (compacted if before[node] else abandoned).append(journal.span(node).start)
    return BranchMap(ids[leaf] if leaf is not None else "", _pack(abandoned), _pack(compacted))


def _extend(summary: Summary, old: int, size: int, before: BranchMap) -> BranchMap | None:
    """Extend a cached map if each added line is a child of the one before it; else None."""
    try:
        with contextlib.closing(open_store(summary)) as store:
            added = read_bytes(store, old, size - old)
    except SessionTreeError:
        return None
    from sessiontree.dialects.contract import PREVIOUS

    dialect = dialect_named(summary.agent)
    columns = dialect.decode_block(memoryview(added), 0) if added.endswith(b"\n") and before.leaf else None
    if columns is None or PREVIOUS in columns.parents:  # entries that depend on their position need the whole file
        return None
    leaf, client = before.leaf, dialect.client
    for kind, id, parent in zip(columns.types, columns.ids, columns.parents, strict=True):
        if (kind not in client.extending_types) if id else (kind in client.moving_types):
            return None
        if id:
            if parent != leaf:
                return None
            leaf = id
    return msgspec.structs.replace(before, leaf=leaf)


def _load(store: IndexStore, file: int) -> tuple[int, BranchMap] | None:
    sql = "SELECT size, state, checksum FROM branches WHERE file = ?"
    row = store.attempt(lambda database: database.execute(sql, (file,)).fetchone())
    if row is None or row_checksum(file, *row[:2]) != row[2]:
        return None
    try:
        return (row[0], msgspec.msgpack.decode(row[1], type=BranchMap))
    except msgspec.MsgspecError:
        return None


def _save(store: IndexStore, file: int, size: int, found: BranchMap) -> None:
    row = (file, size, msgspec.msgpack.encode(found))
    try:
        store.database.execute("INSERT OR REPLACE INTO branches VALUES(?, ?, ?, ?)", (*row, row_checksum(*row)))
    except sqlite3.Error:
        return  # another process holds the write lock, or the disk is read-only: computed again next time


def _pack(offsets: array[int]) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress(offsets.tobytes()) if offsets else b""


_unpacked: dict[bytes, array[int]] = {}


def _has(packed: bytes, offset: int) -> bool:
    if not packed:
        return False
    offsets = _unpacked.get(packed)
    if offsets is None:
        import zstandard

        offsets = array("Q")
        offsets.frombytes(zstandard.ZstdDecompressor().decompress(packed))
        _unpacked.clear()
        _unpacked[packed] = offsets
    at = bisect_left(offsets, offset)
    return at < len(offsets) and offsets[at] == offset
