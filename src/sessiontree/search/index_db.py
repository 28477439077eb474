"""The search index as a file: one SQLite database beside the listing cache, of which everything can be derived again.

* `files` says how far each session file was read, and what it looked like then.
* `terms` is a full-text table without contents: which stretch of which file has which term, and nothing else.
* `branches` remembers which lines of a file lie on its active path.

A row of `terms` is called by a number that says all there is to say: the file, the stretch, and whether the terms are
of what tells most (titles, prompts, summaries) or of the rest. A file that was replaced gets another number, and rows
of numbers that no file has are passed over. When they are many, the index is made anew.

What is no database, or not ours, is moved away and made anew by one process while the others wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from sessiontree.library.cache import cache_path, transaction
from sessiontree.search.file_chunks import STRETCH

T = TypeVar("T")

VERSION = 1
"""Of the tables and of the rules for terms: an index of another version is made anew."""

_BUSY_SECONDS = 30.0
SHIFT = 40 - STRETCH
"""A row number without its last bits, as many, is the number of a file."""

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


class Known(Struct, frozen=True, gc=False):
    """What the index knows of a file: its number, how far it was read, and what it looked like."""

    file: int
    path: str
    agent: str
    size: int
    """The bytes whose lines are in the index."""
    modified: int
    inode: int
    head: bytes
    edge: bytes


class Spot(Struct, frozen=True, gc=False):
    """A stretch of a file that has what was looked for."""

    file: int
    stretch: int
    is_telling: bool


def row_number(file: int, stretch: int, *, is_telling: bool) -> int:
    return file << SHIFT | stretch << 1 | (not is_telling)


def spot_of(row: int) -> Spot:
    return Spot(row >> SHIFT, stretch_of(row), is_telling(row))


def stretch_of(row: int) -> int:
    return (row & (1 << SHIFT) - 1) >> 1


def is_telling(row: int) -> bool:
    return not row & 1


def index_path(environment: Mapping[str, str]) -> str:
    """Beside the listing cache."""
    return f"{cache_path(environment).removesuffix('.sqlite').removesuffix('library')}search.sqlite"


class Store:
    """The tables. Use it from one thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._database: sqlite3.Connection | None = None

    @property
    def database(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = _opened(self.path)
        return self._database

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work; in an empty index, if this one turns out to be damaged."""
        try:
            return work(self.database)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            self.close()
            self._database = _rebuilt(self.path)
            return work(self._database)

    def known(self) -> dict[str, Known]:
        """Every file in the index, by path."""
        asked = "SELECT file, path, agent, size, modified, inode, head, edge FROM files"
        return self.attempt(lambda database: {row[1]: Known(*row) for row in database.execute(asked)})

    def empty(self) -> None:
        """Drop everything; what reads the sessions next makes it anew."""

        def drop(database: sqlite3.Connection) -> None:
            with transaction(database):
                _make_tables(database)

        self.attempt(drop)

    @contextlib.contextmanager
    def only_writer(self, *, wait: bool = True) -> Iterator[bool]:
        """Keep other processes from adding to the index. Without waiting, gives False when one of them does now.

        The lock goes with the process that holds it, however that ends.
        """
        _make_folder(self.path)
        with open(f"{self.path}.lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True


def next_number(database: sqlite3.Connection) -> int:
    """A number that no file had before."""
    row = database.execute("SELECT value FROM numbers WHERE name = 'next'").fetchone()
    return int(row[0]) if row else 1


def keep_next_number(database: sqlite3.Connection, number: int) -> None:
    """Remember that the numbers below this one were given away."""
    database.execute("INSERT OR REPLACE INTO numbers VALUES('next', ?)", (number,))


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is at fault; else someone else is using it, or it cannot be written."""
    code = getattr(error, "sqlite_errorcode", None)
    damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH)
    return code is not None and code & 0xFF in damage


def _opened(path: str) -> sqlite3.Connection:
    _make_folder(path)
    try:
        return _connected(path)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return _rebuilt(path)


def _make_folder(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)


def _connected(path: str) -> sqlite3.Connection:
    """The database with our tables in it, readable by its owner alone."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        if _version(database) != VERSION:
            with transaction(database):
                if _version(database) != VERSION:  # no other process was faster
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


def _rebuilt(path: str) -> sqlite3.Connection:
    """An empty index in place of a damaged one, which is moved away. One process does it, the others wait for it."""
    with open(f"{path}.damage-lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(sqlite3.DatabaseError):
            database = _connected(path)
            if _is_sound(database):
                return database  # another process was faster
            database.close()
        os.replace(path, f"{path}.damaged")
        for beside in (f"{path}-wal", f"{path}-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
        return _connected(path)


def _is_sound(database: sqlite3.Connection) -> bool:
    if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
        return False
    database.execute("SELECT file, path, agent, size, modified, inode, head, edge FROM files LIMIT 1").fetchone()
    database.execute("SELECT file, size, state FROM branches LIMIT 1").fetchone()
    database.execute("INSERT INTO terms(terms) VALUES('integrity-check')")
    return True
