"""The file of the prompt history: its tables, making it, and moving it aside when it is damaged.

FTS5 has the words of each prompt, cut by our own rules; triggers keep it in step with the table.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator

from sessiontree.errors import StoreError
from sessiontree.library.cache import transaction
from sessiontree.search.tokenizer import Terms

_VERSION = 1
_BUSY_SECONDS = 2.0
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PROBE = "buildSessionContext snake_case-1 潮位 Été 🌊"
"""Cut into words, it tells by which rules a file was indexed."""
_TABLES = (
    "CREATE TABLE prompts(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, prompt TEXT NOT NULL, words TEXT NOT NULL, "
    "cwd TEXT NOT NULL, project TEXT NOT NULL, session TEXT NOT NULL, agent TEXT NOT NULL, time INTEGER, "
    "source TEXT NOT NULL)",
    "CREATE INDEX prompts_by_time ON prompts(time)",
    "CREATE INDEX prompts_by_cwd ON prompts(cwd, project)",
    "CREATE TABLE sources(path TEXT PRIMARY KEY, size INTEGER, modified INTEGER, end INTEGER, edge TEXT)",
    "CREATE TABLE notes(name TEXT PRIMARY KEY, note TEXT)",
    "CREATE VIRTUAL TABLE found USING fts5(words, content='prompts', content_rowid='id', tokenize='ascii')",
    "CREATE TRIGGER prompt_added AFTER INSERT ON prompts BEGIN "
    "INSERT INTO found(rowid, words) VALUES(new.id, new.words); END",
    "CREATE TRIGGER prompt_gone AFTER DELETE ON prompts BEGIN "
    "INSERT INTO found(found, rowid, words) VALUES('delete', old.id, old.words); END",
    "CREATE TRIGGER prompt_changed AFTER UPDATE OF words ON prompts BEGIN "
    "INSERT INTO found(found, rowid, words) VALUES('delete', old.id, old.words); "
    "INSERT INTO found(rowid, words) VALUES(new.id, new.words); END",
)


_terms = Terms()


def index_words(text: str) -> str:
    """What FTS5 is given for a text: each of its terms once, always in the same order."""
    return " ".join(sorted(set(_terms.of(text.encode()).decode().split(" "))))


def connect(path: str) -> sqlite3.Connection:
    """The database with our tables in it."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with contextlib.suppress(
            FileExistsError
        ):  # made here, so that its mode is ours; the files beside it take it over
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; there is no history without it") from error
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        database.execute("PRAGMA synchronous = FULL")  # what waits for it goes when it is in here
        if _version(database) != _VERSION:
            with _locked(path):
                _make_tables(database, path)
        if _note(database, "words") != index_words(_PROBE):
            _index_anew(database)
    except BaseException:
        database.close()
        raise
    return database


def _make_tables(database: sqlite3.Connection, path: str) -> None:
    found = _version(database)
    if found == _VERSION:
        return  # another process was faster
    if found:
        raise StoreError(f"{path}: made by a newer version of sessiontree ({found}); it was not touched")
    database.execute("PRAGMA journal_mode = WAL")
    with transaction(database):
        for statement in _TABLES:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {_VERSION}")


def _index_anew(database: sqlite3.Connection) -> None:
    """Cut all prompts into words again, after the rules for that have changed; and at the very beginning."""
    with transaction(database):
        for id, prompt in database.execute("SELECT id, prompt FROM prompts").fetchall():
            database.execute("UPDATE prompts SET words = ? WHERE id = ?", (index_words(prompt), id))
        database.execute("INSERT OR REPLACE INTO notes VALUES('words', ?)", (index_words(_PROBE),))


def _version(database: sqlite3.Connection) -> int:
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    return version


def _note(database: sqlite3.Connection, name: str) -> str | None:
    row = database.execute("SELECT note FROM notes WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """One process at a time makes the file, or moves it aside."""
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file is at fault; else someone else is using it, or it cannot be written."""
    return error.sqlite_errorcode & 0xFF in _DAMAGE


def move_aside(path: str) -> str | None:
    """Put a damaged file away under another name. One process does it; the others find a sound one and get None."""
    with _locked(path):
        with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(path)) as database:
            if database.execute("PRAGMA quick_check").fetchone() == ("ok",):
                return None
        aside = f"{path}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.urandom(2).hex()}"
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(path + suffix, aside + suffix)
        return aside
