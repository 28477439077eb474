"""The search index: an SQLite database next to the listing cache. All of it can be rebuilt from the session files.

* `files`: how far each session file is indexed, and its fingerprint.
* `terms`: a contentless FTS5 table that maps terms to chunks of files.
* `branches`: cached branch states of lines.

A row number of `terms` encodes the file, the chunk, and whether the terms come from descriptive text (titles, prompts,
summaries). A session file that was replaced gets a new number. Rows with the old number match no file and are ignored:
deleting them from a contentless table would require the original text. When they become the majority, the index is
rebuilt.

A damaged database is moved away and rebuilt by one process while the others wait.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from sessiontree.errors import StoreError
from sessiontree.library.cache import cache_path, transaction
from sessiontree.search.file_chunks import CHUNK_BITS
from sessiontree.stores.file_lock import file_lock

T = TypeVar("T")

VERSION = 2
"""Version of the tables and of the tokenizer rules. An index of any other version is rebuilt."""

_BUSY_SECONDS = 30.0
SHIFT = 40 - CHUNK_BITS
"""Bits of a row number below the file number."""

_SCHEMA = f"""
CREATE TABLE files(
  file INTEGER PRIMARY KEY, path TEXT UNIQUE, agent TEXT, size INTEGER, modified INTEGER, inode INTEGER,
  head BLOB, edge BLOB
);
CREATE TABLE numbers(name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
CREATE TABLE branches(file INTEGER PRIMARY KEY, size INTEGER, state BLOB);
CREATE VIRTUAL TABLE terms USING fts5(
  text, content='', detail=none, columnsize=0, tokenize="ascii tokenchars '_\x02'"
);
CREATE VIRTUAL TABLE words USING fts5vocab('terms', 'row');
PRAGMA user_version = {VERSION};
"""


class IndexedFile(Struct, frozen=True, gc=False):
    """A file in the index: number, indexed size and fingerprint."""

    file: int
    path: str
    agent: str
    size: int
    """Bytes whose lines are in the index."""
    modified: int
    identity: int
    """The inode of a file (see `file_chunks.find_identity`)."""
    head: bytes
    edge: bytes


class RowKey(Struct, frozen=True, gc=False):
    """A decoded row number of `terms`."""

    file: int
    chunk: int
    is_descriptive: bool


def row_number(file: int, chunk: int, *, is_descriptive: bool) -> int:
    return file << SHIFT | chunk << 1 | (not is_descriptive)


def decode_row(row: int) -> RowKey:
    return RowKey(row >> SHIFT, chunk_of(row), is_descriptive(row))


def chunk_of(row: int) -> int:
    return (row & (1 << SHIFT) - 1) >> 1


def is_descriptive(row: int) -> bool:
    return not row & 1


def index_path(environment: Mapping[str, str]) -> str:
    return f"{cache_path(environment).removesuffix('.sqlite').removesuffix('library')}search.sqlite"


class IndexStore:
    """The database. Not thread-safe."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._database: sqlite3.Connection | None = None

    @property
    def database(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = _open(self.path)
        return self._database

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function; if the database turns out to be damaged, recreate it empty and run the function again."""
        try:
            return work(self.database)
        except sqlite3.DatabaseError as error:
            if not is_corruption(error):
                raise
            self.close()
            self._database = _rebuild(self.path)
            return work(self._database)

    def indexed_files(self) -> dict[str, IndexedFile]:
        """All indexed files by path."""
        sql = "SELECT file, path, agent, size, modified, inode, head, edge FROM files"
        return self.attempt(lambda database: {row[1]: IndexedFile(*row) for row in database.execute(sql)})

    def clear(self) -> None:
        """Drop all content; the next update rebuilds it."""

        def drop(database: sqlite3.Connection) -> None:
            with transaction(database):
                _make_tables(database)

        self.attempt(drop)

    @contextlib.contextmanager
    def writer_lock(self, *, timeout: float | None = None) -> Iterator[bool]:
        """Exclude other writing processes. The value is False if one is still writing after `timeout` seconds.

        Without a timeout it waits: another process may take minutes to build the index.
        """
        _make_folder(self.path)
        with contextlib.ExitStack() as stack:
            try:
                lock = file_lock(f"{self.path}.lock", blocking=timeout != 0.0, timeout=timeout)
                is_locked = stack.enter_context(lock)
            except StoreError:
                is_locked = False
            yield is_locked


def next_file_number(database: sqlite3.Connection) -> int:
    """A file number that was never used."""
    row = database.execute("SELECT value FROM numbers WHERE name = 'next'").fetchone()
    return int(row[0]) if row else 1


def store_next_file_number(database: sqlite3.Connection, number: int) -> None:
    """Store that the numbers below this one are used."""
    database.execute("INSERT OR REPLACE INTO numbers VALUES('next', ?)", (number,))


def is_corruption(error: sqlite3.Error) -> bool:
    """Whether the file is damaged, rather than busy or not writable."""
    code = getattr(error, "sqlite_errorcode", None)
    damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH)
    return code is not None and code & 0xFF in damage


def _open(path: str) -> sqlite3.Connection:
    _make_folder(path)
    try:
        return _connect(path)
    except sqlite3.DatabaseError as error:
        if not is_corruption(error):
            raise
        return _rebuild(path)


def _make_folder(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)


def _connect(path: str) -> sqlite3.Connection:
    """Open the database, readable by its user only, and create missing tables."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        if _version(database) != VERSION:
            with transaction(database):
                if _version(database) != VERSION:  # checked again under the lock: another process may have done it
                    _make_tables(database)
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _make_tables(database: sqlite3.Connection) -> None:
    shadows = "SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name LIKE 'terms_%'"
    for kind, name in database.execute(shadows).fetchall():
        database.execute(f'DROP {kind} IF EXISTS "{name}"')
    for statement in filter(str.strip, _SCHEMA.split(";\n")):
        database.execute(statement)
    database.execute("INSERT INTO terms(terms, rank) VALUES('hashsize', ?)", (8 << 20,))


def _rebuild(path: str) -> sqlite3.Connection:
    """Move a damaged index away and create an empty one. One process does it while the others wait."""
    with file_lock(f"{path}.damage-lock", timeout=None):
        # Checked again under the lock: for those that waited, the first process has already rebuilt it.
        with contextlib.suppress(sqlite3.DatabaseError):
            database = _connect(path)
            if _is_sound(database):
                return database  # another process has rebuilt it
            database.close()
        os.replace(path, f"{path}.damaged")
        # A write-ahead log of the damaged file must never be replayed into the new one.
        for sidecar in (f"{path}-wal", f"{path}-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(sidecar)
        return _connect(path)


def _is_sound(database: sqlite3.Connection) -> bool:
    if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
        return False
    database.execute("SELECT file, path, agent, size, modified, inode, head, edge FROM files LIMIT 1").fetchone()
    database.execute("SELECT file, size, state FROM branches LIMIT 1").fetchone()
    database.execute("INSERT INTO terms(terms) VALUES('integrity-check')")
    return True
