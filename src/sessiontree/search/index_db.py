"""The search index: an SQLite database next to the listing cache. All of it can be rebuilt from the session files.

* `files`: how far each session file is indexed, and its fingerprint.
* `terms`: a contentless FTS5 table that maps terms to chunks of files.
* `branches`: cached branch states of lines.
* `blocks`, `segments`: checksums of the tables that FTS5 keeps for `terms`.

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
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from sessiontree.errors import StoreError
from sessiontree.library import sqlite_connection
from sessiontree.library.cache import cache_path, transaction
from sessiontree.library.sqlite_damage import DATABASE_ERRORS, DamagedRowError, is_damage, move_away, row_checksum
from sessiontree.search.file_chunks import CHUNK_BITS
from sessiontree.stores.file_lock import file_lock

if TYPE_CHECKING:
    from sessiontree.library.home_image import HomeImage

T = TypeVar("T")

VERSION = 4
"""Version of the tables and of the tokenizer rules. An index of any other version is rebuilt."""

_BUSY_SECONDS = 30.0
SHIFT = 40 - CHUNK_BITS
"""Bits of a row number below the file number."""
_NUMBER_BITS = 60
_BLOCKS = """SELECT blocks.id, block, checksum FROM blocks LEFT JOIN terms_data USING(id)
ORDER BY blocks.id LIMIT ? OFFSET ?"""
_FILES = "SELECT file, path, agent, size, modified, inode, head, edge, checksum FROM files"

_SUM = (1 << 48) - 1
"""The checksums of a segment's pages are added modulo this number, so the one of a deleted page can be subtracted. In
SQLite, a sum of more than 63 bits would become a floating-point number."""
_CHECKED_BLOCKS = 2000
"""Blocks of about 4 KB whose checksums are compared before a search: all of a small index, some of a large one."""

_SCHEMA = f"""
CREATE TABLE files(
  file INTEGER PRIMARY KEY, path TEXT UNIQUE, agent TEXT, size INTEGER, modified INTEGER, inode INTEGER,
  head BLOB, edge BLOB, checksum INTEGER
);
CREATE TABLE numbers(name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
CREATE TABLE branches(file INTEGER PRIMARY KEY, size INTEGER, state BLOB, checksum INTEGER);
CREATE VIRTUAL TABLE terms USING fts5(
  text, content='', detail=none, columnsize=0, tokenize="ascii tokenchars '_\x02'"
);
CREATE VIRTUAL TABLE words USING fts5vocab('terms', 'row');
CREATE TABLE blocks(id INTEGER PRIMARY KEY, checksum INTEGER);
CREATE TABLE segments(segid INTEGER PRIMARY KEY, checksum INTEGER);
CREATE TRIGGER block_written AFTER INSERT ON terms_data
  BEGIN INSERT OR REPLACE INTO blocks VALUES(new.id, row_checksum(new.id, new.block)); END;
CREATE TRIGGER block_deleted AFTER DELETE ON terms_data
  BEGIN DELETE FROM blocks WHERE id = old.id; END;
CREATE TRIGGER page_written AFTER INSERT ON terms_idx
  BEGIN INSERT INTO segments VALUES(new.segid, row_checksum(new.segid, new.term, new.pgno))
  ON CONFLICT(segid) DO UPDATE SET checksum = (checksum + excluded.checksum) & {_SUM}; END;
CREATE TRIGGER page_deleted AFTER DELETE ON terms_idx
  BEGIN UPDATE segments SET checksum = (checksum - row_checksum(old.segid, old.term, old.pgno)) & {_SUM}
  WHERE segid = old.segid; END;
PRAGMA user_version = {VERSION};
"""  # noqa: S608 - only constants are inserted


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
            self._database = self._open()
        return self._database

    def _open(self) -> sqlite3.Connection:
        return _open(self.path)

    def _recreate(self, *, keep_sound: bool) -> sqlite3.Connection:
        """Replace a damaged database with an empty one."""
        return _rebuild(self.path, keep_sound=keep_sound)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function; if the database turns out to be damaged, recreate it empty and run the function again."""
        for is_sound in (True, False):
            try:
                return work(self.database)
            except DATABASE_ERRORS as error:
                if not is_damage(error, self.path):
                    raise
                self.close()
                # The first time another process may have rebuilt it already; not if it fails again.
                self._database = self._recreate(keep_sound=is_sound)
        return work(self.database)

    def indexed_files(self) -> dict[str, IndexedFile]:
        """All indexed files by path. A damaged row counts as a file that is not indexed."""
        return self.attempt(
            lambda database: {row[1]: IndexedFile(*row) for row, is_sound in _files(database) if is_sound}
        )

    def drop_damaged_rows(self, database: sqlite3.Connection) -> None:
        damaged = [(row[0],) for row, is_sound in _files(database) if not is_sound]
        if damaged:
            with transaction(database):
                database.executemany("DELETE FROM files WHERE file = ?", damaged)

    def check_terms(self) -> None:
        """Compare checksums of the terms, of a random part if there are many. A damaged index is recreated empty."""
        self.attempt(_check_terms)

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


class HomeIndexStore(IndexStore):
    """The index of the sessions of a repository, which is stored in that repository."""

    def __init__(self, image: HomeImage) -> None:
        super().__init__(":memory:")
        self._image = image

    def close(self) -> None:
        if self._database is not None:
            self._image.save(self._database)
        super().close()

    def _open(self) -> sqlite3.Connection:
        try:
            return _prepare(self._image.open())
        except DATABASE_ERRORS:
            return self._recreate(keep_sound=False)

    def _recreate(self, *, keep_sound: bool) -> sqlite3.Connection:  # noqa: ARG002 - no other process has it
        return _prepare(sqlite3.connect(":memory:", isolation_level=None))

    @contextlib.contextmanager
    def writer_lock(self, *, timeout: float | None = None) -> Iterator[bool]:  # noqa: ARG002 - no other process has it
        yield True


def _files(database: sqlite3.Connection) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """All rows of `files`, and whether their checksum is right."""
    for *row, checksum in database.execute(_FILES):
        yield tuple(row), checksum == row_checksum(*row)


def _check_terms(database: sqlite3.Connection, most: int = _CHECKED_BLOCKS) -> None:
    """Raise `DamagedRowError` if a block of terms is not the one that was written."""
    (count,) = database.execute("SELECT count(*) FROM blocks").fetchone()
    first = 0
    if count > most:
        import random  # slow to import, and most indexes are smaller

        first = random.randrange(count - most + 1)
    for block_id, block, checksum in database.execute(_BLOCKS, (most, first)):
        if row_checksum(block_id, block) != checksum:
            raise DamagedRowError("a block of the index is damaged")
    if count <= most:
        (found,) = database.execute("SELECT count(*) FROM terms_data").fetchone()
        written = dict(database.execute("SELECT segid, checksum FROM segments"))
        sums = dict.fromkeys(written, 0)
        for row in database.execute("SELECT segid, term, pgno FROM terms_idx"):
            sums[row[0]] = (sums.get(row[0], 0) + row_checksum(*row)) & _SUM
        if found != count or sums != written:
            raise DamagedRowError("the pages of the index are damaged")


def store_file(database: sqlite3.Connection, file: IndexedFile) -> None:
    row = (file.file, file.path, file.agent, file.size, file.modified, file.identity, file.head, file.edge)
    database.execute("INSERT OR REPLACE INTO files VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, row_checksum(*row)))


def find_number(database: sqlite3.Connection, name: str) -> int | None:
    """A stored number; `DamagedRowError` if it is out of range."""
    row = database.execute("SELECT value FROM numbers WHERE name = ?", (name,)).fetchone()
    if row is not None and (not isinstance(row[0], int) or not 0 <= row[0] < 1 << _NUMBER_BITS):
        raise DamagedRowError(f"the number {name!r} of the index is damaged")
    return row[0] if row else None


def next_file_number(database: sqlite3.Connection) -> int:
    """A file number that was never used."""
    number = find_number(database, "next") or 1
    highest = database.execute("SELECT max(file) FROM files").fetchone()[0] or 0
    if number <= highest or number >= 1 << 63 - SHIFT:
        raise DamagedRowError("the file numbers of the index are damaged")
    return number


def store_next_file_number(database: sqlite3.Connection, number: int) -> None:
    """Store that the numbers below this one are used."""
    database.execute("INSERT OR REPLACE INTO numbers VALUES('next', ?)", (number,))


def _open(path: str) -> sqlite3.Connection:
    _make_folder(path)
    try:
        return _connect(path)
    except DATABASE_ERRORS as error:
        if not is_damage(error, path):
            raise
        return _rebuild(path)


def _make_folder(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)


def _connect(path: str) -> sqlite3.Connection:
    """Open the database, readable by its user only, and create missing tables."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return _prepare(sqlite_connection.connect(path, _BUSY_SECONDS))


def _prepare(database: sqlite3.Connection) -> sqlite3.Connection:
    database.create_function("row_checksum", -1, row_checksum, deterministic=True)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        if _version(database) != VERSION:
            with transaction(database):
                if _version(database) != VERSION:  # checked again under the lock: another process may have done it
                    _make_tables(database)
    except DATABASE_ERRORS:
        database.close()
        raise
    return database


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _make_tables(database: sqlite3.Connection) -> None:
    # `terms` before the tables of FTS5: without one of those, it could not be dropped anymore. They go with it.
    shadows = "SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name LIKE 'terms_%'"
    for kind, name in database.execute(shadows).fetchall():
        database.execute(f'DROP {kind} IF EXISTS "{name}"')
    for statement in filter(str.strip, _SCHEMA.split(";\n")):
        database.execute(statement)
    # FTS5 collects this many bytes in memory before it writes a segment; with its default of 1 MB it merges far more.
    database.execute("INSERT INTO terms(terms, rank) VALUES('hashsize', ?)", (8 << 20,))
    # The first blocks are older than the triggers, and a setting changes one of them past all triggers.
    database.execute("INSERT OR REPLACE INTO blocks SELECT id, row_checksum(id, block) FROM terms_data")


def _rebuild(path: str, *, keep_sound: bool = True) -> sqlite3.Connection:
    """Move a damaged index away and create an empty one. One process does it while the others wait."""
    with file_lock(f"{path}.damage-lock", timeout=None):
        # Checked again under the lock: for those that waited, the first process has already rebuilt it.
        with contextlib.suppress(*DATABASE_ERRORS):
            database = _connect(path)
            try:
                if keep_sound and _is_sound(database):
                    return database  # another process has rebuilt it
            except DATABASE_ERRORS:
                database.close()
                raise
            database.close()
        move_away(path)
        return _connect(path)


def _is_sound(database: sqlite3.Connection) -> bool:
    if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
        return False
    database.execute(_FILES).fetchone()
    database.execute("SELECT file, size, state, checksum FROM branches LIMIT 1").fetchone()
    _check_terms(database, 1 << 62)
    database.execute("INSERT INTO terms(terms) VALUES('integrity-check')")
    return True
