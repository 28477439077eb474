"""Vectors of passages in a file of their own beside the search index: 40 bytes for each, all of them derived.

A row belongs to one session file: how far it was read and what it looked like then, where the lines of its passages
begin, and the signs of their vectors. Of a file that grew, only what was added is read. Vectors of another model, a
damaged file, and one of another version are dropped and made anew.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from array import array
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from sessiontree.library.roots import dialect_named
from sessiontree.library.summary import Summary
from sessiontree.search.embedder import Embedder, signs
from sessiontree.search.file_chunks import edge_of, head_of, iter_lines, open_file
from sessiontree.search.index_db import index_path, is_damage
from sessiontree.search.indexer import FileReading, Progress
from sessiontree.search.text_extractor import Line

KINDS = frozenset({"title", "label", "summary", "prompt", "answer"})
"""Texts that mean something to someone; what tools print is found by its words."""

_VERSION = 1
_PIECE, _MOST_PIECES, _SHORTEST = 800, 4, 8
_TOGETHER = 256
_SCHEMA = f"""
CREATE TABLE about(model TEXT);
CREATE TABLE passages(
  path TEXT PRIMARY KEY, size INTEGER, modified INTEGER, head BLOB, edge BLOB, width INTEGER, offsets BLOB, signs BLOB
);
PRAGMA user_version = {_VERSION};
"""


class Place(Struct, frozen=True, order=True):
    """A passage that may be near: how many signs differ, in which file, on which line."""

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


def pieces_of(line: Line) -> Iterator[str]:
    """The texts of a line that get a vector; a long one in pieces."""
    for text in line.texts:
        if text.kind in KINDS:
            said = " ".join(text.text[: _PIECE * _MOST_PIECES * 2].split())
            for start in range(0, min(len(said), _PIECE * _MOST_PIECES), _PIECE):
                if len(said) - start >= _SHORTEST or not start:
                    yield said[start : start + _PIECE]


class Vectors:
    """The vectors of one model. Use it from one thread."""

    def __init__(self, environment: Mapping[str, str], embedder: Embedder) -> None:
        self.path = f"{index_path(environment).removesuffix('search.sqlite')}meaning.sqlite"
        self._embedder = embedder
        self._database = self._opened()

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Vectors:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, sessions: Sequence[Summary], progress: Progress | None = None) -> None:
        """Read what is new, each file a step of its own, and forget files that are gone."""
        known = {row.path: row for row in self._rows()}
        gone = known.keys() - {one.path for one in sessions}
        with self._database:
            self._database.executemany("DELETE FROM passages WHERE path = ?", [(path,) for path in gone])
        waiting = [one for one in sessions if not _is_same(one, known.get(one.path))]
        total, done = sum(one.size for one in waiting), 0
        for one in waiting:
            row = self._read(one, known.get(one.path))
            if row is not None:
                values = (row.path, row.size, row.modified, row.head, row.edge, row.width, row.offsets, row.signs)
                with self._database:
                    self._database.execute("INSERT OR REPLACE INTO passages VALUES(?, ?, ?, ?, ?, ?, ?, ?)", values)
            done += one.size
            if progress is not None:
                progress(done, total, one.path)

    def nearest(self, vector: Sequence[float], paths: set[str], most: int) -> list[Place]:
        """The passages of some files whose signs differ least, one for each line."""
        import heapq

        asked = signs(vector)
        best: dict[tuple[str, int], int] = {}
        for row in self._rows():
            if row.path not in paths or row.width * 8 != len(vector):
                continue
            offsets = array("Q")
            offsets.frombytes(row.offsets)
            for number, offset in enumerate(offsets):
                found = int.from_bytes(row.signs[number * row.width : (number + 1) * row.width])
                distance = (found ^ asked).bit_count()
                if distance < best.get((row.path, offset), 1 << 30):
                    best[row.path, offset] = distance
        places = (Place(distance, path, offset) for (path, offset), distance in best.items())
        return heapq.nsmallest(most, places)

    def _rows(self) -> list[_Row]:
        return [_Row(*row) for row in self._database.execute("SELECT * FROM passages ORDER BY path")]

    def _read(self, one: Summary, before: _Row | None) -> _Row | None:
        try:
            descriptor = open_file(one.path)
        except OSError:
            return None
        try:
            kept = before if before is not None and _goes_on(descriptor, one, before) else None
            size = min(os.fstat(descriptor).st_size, one.size)
            reading = FileReading(dialect_named(one.agent), one.path, descriptor)
            offsets, packed = array("Q"), bytearray(kept.signs if kept else b"")
            offsets.frombytes(kept.offsets if kept else b"")
            width = kept.width if kept else 0
            end = kept.size if kept else 0
            together: list[tuple[int, str]] = []
            for offset, raw in iter_lines(descriptor, end, size):
                if not raw.endswith(b"\n"):
                    break  # it is still being written
                end = offset + len(raw)
                lines = reading.texts(raw, offset, tools=False)
                together += [(offset, piece) for line in lines for piece in pieces_of(line)]
                if len(together) >= _TOGETHER:
                    width = self._pack(together, offsets, packed)
                    together = []
            if together:
                width = self._pack(together, offsets, packed)
            head, edge = head_of(descriptor, end), edge_of(descriptor, end)
            return _Row(one.path, end, one.modified, head, edge, width, offsets.tobytes(), bytes(packed))
        finally:
            os.close(descriptor)

    def _pack(self, together: Sequence[tuple[int, str]], offsets: array[int], packed: bytearray) -> int:
        vectors = self._embedder.embed([piece for _, piece in together])
        width = len(vectors[0]) // 8
        for (offset, _), vector in zip(together, vectors, strict=True):
            offsets.append(offset)
            packed += signs(vector).to_bytes(width)
        return width

    def _opened(self) -> sqlite3.Connection:
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        try:
            return self._connected()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            for path in (self.path, f"{self.path}-wal", f"{self.path}-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            return self._connected()

    def _connected(self) -> sqlite3.Connection:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        database = sqlite3.connect(self.path, timeout=30)
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
        except sqlite3.DatabaseError:
            database.close()
            raise
        return database


def _is_same(one: Summary, row: _Row | None) -> bool:
    return row is not None and row.size == one.size and row.modified == one.modified


def _goes_on(descriptor: int, one: Summary, row: _Row) -> bool:
    """Whether a file is the one that was read, and only grew."""
    return (
        one.size >= row.size and head_of(descriptor, row.size) == row.head and edge_of(descriptor, row.size) == row.edge
    )
