"""The SQLite file of the prompt history: tables, creation, and recovery from damage.

FTS5 gets the terms of our own tokenizer; triggers keep it in sync with the table.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time

from sessiontree.errors import StoreError
from sessiontree.library.cache import transaction
from sessiontree.search.tokenizer import Terms
from sessiontree.stores.file_lock import file_lock

_VERSION = 1
_BUSY_SECONDS = 2.0
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PROBE = "buildSessionContext snake_case-1 潮位 Été 🌊"
"""Sample text. Its terms are stored in the file; if they are no longer the same, the tokenizer rules have changed."""
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
    """The terms of a text for FTS5: each once, always in the same order."""
    return " ".join(sorted(set(_terms.of(text.encode()).decode().split(" "))))


def connect(path: str) -> sqlite3.Connection:
    """Open the database and create missing tables."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with contextlib.suppress(
            FileExistsError
        ):  # created here with our mode, which SQLite copies to its -wal and -shm files
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; the prompt history is not available") from error
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        # A spool file is deleted once its prompts are committed here, so the commit has to be durable.
        database.execute("PRAGMA synchronous = FULL")
        if _version(database) != _VERSION:
            with file_lock(f"{path}.lock", timeout=None):
                _make_tables(database, path)
        if _note(database, "words") != index_words(_PROBE):
            _reindex(database)
    except BaseException:
        database.close()
        raise
    return database


def _make_tables(database: sqlite3.Connection, path: str) -> None:
    found = _version(database)
    if found == _VERSION:
        return  # another process has created them
    if found:
        raise StoreError(f"{path}: created by a newer version of sessiontree ({found}); left unchanged")
    database.execute("PRAGMA journal_mode = WAL")
    with transaction(database):
        for statement in _TABLES:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {_VERSION}")


def _reindex(database: sqlite3.Connection) -> None:
    """Index all prompts again: in a new file, and after the tokenizer rules have changed."""
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


def is_corruption(error: sqlite3.DatabaseError) -> bool:
    """Whether the file is damaged, rather than busy or not writable."""
    return error.sqlite_errorcode & 0xFF in _DAMAGE


def move_aside(path: str) -> str | None:
    """Rename a damaged file. One process does it; the others then find a sound file and get None."""
    with file_lock(f"{path}.lock", timeout=None):
        with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(path)) as database:
            if database.execute("PRAGMA quick_check").fetchone() == ("ok",):
                return None
        aside = f"{path}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.urandom(2).hex()}"
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(path + suffix, aside + suffix)
        return aside
