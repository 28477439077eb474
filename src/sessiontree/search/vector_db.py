"""Embedding vectors in a database next to the search index, 40 bytes per passage. All of it can be rebuilt.

A row belongs to one session file: indexed size and fingerprint, offsets of the passages' lines, and the sign bits of
their vectors. Of a file that grew, only new lines are read. Vectors of another model or version, and a damaged file,
are dropped and rebuilt.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from sessiontree.dialects.texts import Line
from sessiontree.errors import SessionTreeError
from sessiontree.library import sqlite_connection
from sessiontree.library.roots import dialect_named
from sessiontree.library.session_store import open_store
from sessiontree.library.sqlite_damage import DATABASE_ERRORS, is_damage, row_checksum
from sessiontree.library.summary import Summary
from sessiontree.search.embedder import Embedder, signs
from sessiontree.search.file_chunks import bytes_before, head_hash, iter_lines
from sessiontree.search.index_db import index_path
from sessiontree.search.indexer import FileTexts, Progress
from sessiontree.stores.contract import SessionStore

if TYPE_CHECKING:
    from sessiontree.library.home_image import HomeImage

T = TypeVar("T")

KINDS = frozenset({"title", "label", "summary", "prompt", "answer"})
"""Kinds of text that get a vector; tool output is found by its words."""

_VERSION = 2
_BUSY_SECONDS = 30.0
_PIECE, _MOST_PIECES, _SHORTEST = 800, 4, 8
_BATCH = 256
_SCHEMA = f"""
CREATE TABLE about(model TEXT);
CREATE TABLE passages(
  path TEXT PRIMARY KEY, size INTEGER, modified INTEGER, head BLOB, edge BLOB, width INTEGER, offsets BLOB, signs BLOB,
  checksum INTEGER
);
PRAGMA user_version = {_VERSION};
"""


class Passage(Struct, frozen=True, order=True):
    """A passage of the shortlist: number of differing sign bits, file, offset of its line."""

    distance: int
    path: str
    offset: int


class _Row(Struct, frozen=True):
    path: str
    size: int
    modified: int
    head: bytes
    edge: bytes
    width: int
    offsets: bytes
    signs: bytes


def iter_passages(line: Line) -> Iterator[str]:
    """The texts of a line that get a vector; long ones in pieces."""
    for text in line.texts:
        if text.kind in KINDS:
            content = " ".join(text.text[: _PIECE * _MOST_PIECES * 2].split())
            for start in range(0, min(len(content), _PIECE * _MOST_PIECES), _PIECE):
                if len(content) - start >= _SHORTEST or not start:
                    yield content[start : start + _PIECE]


class Vectors:
    """The vectors of one model. Not thread-safe."""

    def __init__(self, environment: Mapping[str, str], embedder: Embedder, image: HomeImage | None = None) -> None:
        """With an image, the vectors are in memory, and stored in the repository that they are about."""
        self.path = f"{index_path(environment).removesuffix('search.sqlite')}meaning.sqlite"
        self._embedder = embedder
        self._image = image
        self._database = self._open()

    def close(self) -> None:
        if self._image is not None:
            self._database.commit()
            self._image.save(self._database)
        self._database.close()

    def __enter__(self) -> Vectors:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, sessions: Sequence[Summary], progress: Progress | None = None) -> None:
        """Embed new lines, one transaction per file, and forget deleted files."""
        self._attempt(lambda: self._update(sessions, progress))

    def _update(self, sessions: Sequence[Summary], progress: Progress | None) -> None:
        known = {row.path: row for row in self._rows()}
        gone = known.keys() - {summary.ref for summary in sessions}
        with self._database:
            self._database.executemany("DELETE FROM passages WHERE path = ?", [(path,) for path in gone])
        waiting = [summary for summary in sessions if not _is_same(summary, known.get(summary.ref))]
        total, done = sum(summary.size for summary in waiting), 0
        for summary in waiting:
            row = self._read(summary, known.get(summary.ref))
            if row is not None:
                values = (row.path, row.size, row.modified, row.head, row.edge, row.width, row.offsets, row.signs)
                with self._database:
                    self._database.execute(
                        "INSERT OR REPLACE INTO passages VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        (*values, row_checksum(*values)),
                    )
            done += summary.size
            if progress is not None:
                progress(done, total, summary.ref)

    def nearest(self, vector: Sequence[float], paths: set[str], most: int) -> list[Passage]:
        """The passages with the smallest distance, one per line."""
        import heapq

        query_signs = signs(vector)
        best: dict[tuple[str, int], int] = {}
        for row in self._attempt(self._rows):
            if row.path not in paths or row.width * 8 != len(vector):
                continue
            offsets = array("Q")
            offsets.frombytes(row.offsets)
            for number, offset in enumerate(offsets):
                found = int.from_bytes(row.signs[number * row.width : (number + 1) * row.width])
                distance = (found ^ query_signs).bit_count()
                if distance < best.get((row.path, offset), 1 << 30):
                    best[row.path, offset] = distance
        passages = (Passage(distance, path, offset) for (path, offset), distance in best.items())
        return heapq.nsmallest(most, passages)

    def _rows(self) -> list[_Row]:
        """All rows; a damaged one counts as a file without vectors."""
        rows = self._database.execute("SELECT * FROM passages ORDER BY path")
        return [_Row(*row) for *row, checksum in rows if row_checksum(*row) == checksum]

    def _attempt(self, work: Callable[[], T]) -> T:
        """Run a function; if the database turns out to be damaged, drop it and run the function again."""
        try:
            return work()
        except DATABASE_ERRORS as error:
            if not is_damage(error, self.path):
                raise
            self._database.close()
            if self._image is not None:
                self._database = self._prepare(sqlite3.connect(":memory:"))
                return work()
            self._drop()
            self._database = self._connect()
            return work()

    def _read(self, summary: Summary, before: _Row | None) -> _Row | None:
        with contextlib.closing(open_store(summary)) as store:
            try:
                kept = before if before is not None and _is_same_file(store, summary, before) else None
                size = min(store.size(), summary.size)
            except SessionTreeError:
                return None
            texts = FileTexts(dialect_named(summary.agent), summary.ref, store)
            offsets, packed = array("Q"), bytearray(kept.signs if kept else b"")
            offsets.frombytes(kept.offsets if kept else b"")
            width = kept.width if kept else 0
            end = kept.size if kept else 0
            batch: list[tuple[int, str]] = []
            for offset, raw in iter_lines(store, end, size):
                if not raw.endswith(b"\n"):
                    break  # still being written
                end = offset + len(raw)
                lines = texts.texts(raw, offset, tools=False)
                batch += [(offset, piece) for line in lines for piece in iter_passages(line)]
                if len(batch) >= _BATCH:
                    width = self._pack(batch, offsets, packed)
                    batch = []
            if batch:
                width = self._pack(batch, offsets, packed)
            head, edge = head_hash(store, end), bytes_before(store, end)
            return _Row(summary.ref, end, summary.modified, head, edge, width, offsets.tobytes(), bytes(packed))

    def _pack(self, batch: Sequence[tuple[int, str]], offsets: array[int], packed: bytearray) -> int:
        vectors = self._embedder.embed([piece for _, piece in batch])
        width = len(vectors[0]) // 8
        for (offset, _), vector in zip(batch, vectors, strict=True):
            offsets.append(offset)
            packed += signs(vector).to_bytes(width)
        return width

    def _open(self) -> sqlite3.Connection:
        if self._image is not None:
            try:
                return self._prepare(self._image.open())
            except DATABASE_ERRORS:
                return self._prepare(sqlite3.connect(":memory:"))
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        try:
            return self._connect()
        except DATABASE_ERRORS as error:
            if not is_damage(error, self.path):
                raise
            self._drop()
            return self._connect()

    def _drop(self) -> None:
        for path in (self.path, f"{self.path}-wal", f"{self.path}-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _connect(self) -> sqlite3.Connection:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return self._prepare(sqlite_connection.connect(self.path, _BUSY_SECONDS, isolation_level="DEFERRED"))

    def _prepare(self, database: sqlite3.Connection) -> sqlite3.Connection:
        try:
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if version == _VERSION:
                model = database.execute("SELECT model FROM about").fetchone()
                database.execute("SELECT * FROM passages LIMIT 1").fetchone()
                if model == (self._embedder.name,):
                    return database
            with database:
                database.execute("DROP TABLE IF EXISTS about")
                database.execute("DROP TABLE IF EXISTS passages")
                for statement in filter(str.strip, _SCHEMA.split(";\n")):
                    database.execute(statement)
                database.execute("INSERT INTO about VALUES(?)", (self._embedder.name,))
        except DATABASE_ERRORS:
            database.close()
            raise
        return database


def _is_same(summary: Summary, row: _Row | None) -> bool:
    return row is not None and row.size == summary.size and row.modified == summary.modified


def _is_same_file(store: SessionStore, summary: Summary, row: _Row) -> bool:
    """Whether a file is the one that was indexed and only grew."""
    return (
        summary.size >= row.size
        and head_hash(store, row.size) == row.head
        and bytes_before(store, row.size) == row.edge
    )
