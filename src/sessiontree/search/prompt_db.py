"""The SQLite file of the prompt history: tables, creation, and recovery from damage.

FTS5 gets the terms of our own tokenizer; triggers keep it in sync with the table.

A damaged file is moved aside. The new one gets the prompts of the log (see `prompt_spool`), and every other prompt that
can still be read from the damaged file. The key of a prompt is a hash of it, which shows damage to its text.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from sessiontree.errors import StoreError
from sessiontree.library import sqlite_connection
from sessiontree.library.cache import transaction
from sessiontree.library.sqlite_damage import DATABASE_ERRORS, DamagedRowError
from sessiontree.search.prompt_spool import LoggedPrompt, append_to_log, has_log, read_log
from sessiontree.search.tokenizer import Terms
from sessiontree.stores.file_lock import file_lock

_VERSION = 1
_BUSY_SECONDS = 2.0
_MOST_GAPS = 100_000
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
    database = sqlite_connection.connect(path, _BUSY_SECONDS, setting="SESSIONTREE_HOME")
    try:
        # A spool file is deleted once its prompts are committed here, so the commit has to be durable.
        database.execute("PRAGMA synchronous = FULL")
        if _version(database) != _VERSION:
            with file_lock(f"{path}.lock", timeout=None):
                _make_tables(database, path, read_log(os.path.dirname(path)))
        if not has_log(os.path.dirname(path)):
            _write_log(database, os.path.dirname(path))
        if _note(database, "words") != index_words(_PROBE):
            _reindex(database)
    except BaseException:
        database.close()
        raise
    return database


def prepare(database: sqlite3.Connection, path: str) -> sqlite3.Connection:
    """Create missing tables in a database that is in memory."""
    try:
        if _version(database) != _VERSION:
            _make_tables(database, path, ())
        if _note(database, "words") != index_words(_PROBE):
            _reindex(database)
    except DATABASE_ERRORS:
        database.close()
        return prepare(sqlite3.connect(":memory:", isolation_level=None), path)
    return database


def _make_tables(database: sqlite3.Connection, path: str, prompts: Iterable[LoggedPrompt]) -> None:
    """Create the tables with some prompts in them, in one step: no other process sees them without."""
    found = _version(database)
    if found == _VERSION:
        return  # another process has created them
    if found:
        raise StoreError(f"{path}: created by a newer version of sessiontree ({found}); left unchanged")
    database.execute("PRAGMA journal_mode = WAL")
    with transaction(database):
        for statement in _TABLES:
            database.execute(statement)
        for prompt in prompts:
            insert_prompt(database, prompt)
        database.execute("INSERT OR REPLACE INTO notes VALUES('words', ?)", (index_words(_PROBE),))
        database.execute(f"PRAGMA user_version = {_VERSION}")


def insert_prompt(database: sqlite3.Connection, prompt: LoggedPrompt) -> bool:
    """Insert a prompt unless it is there; returns whether it was inserted."""
    cursor = database.execute(
        "INSERT OR IGNORE INTO prompts(key, prompt, words, cwd, project, session, agent, time, source) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            prompt.key,
            prompt.prompt,
            index_words(prompt.prompt),
            prompt.cwd,
            prompt.project,
            prompt.session,
            prompt.agent,
            prompt.time,
            prompt.source,
        ),
    )
    return cursor.rowcount > 0


def _write_log(database: sqlite3.Connection, home: str) -> None:
    """Write the log of a database that has none yet."""
    with transaction(database):
        if not has_log(home):
            append_to_log(home, [_parse_row(row) for row in database.execute(f"{_ROWS} ORDER BY id")])


_ROWS = "SELECT prompt, cwd, session, agent, time, source, project, key, id FROM prompts"


def check_values(texts: Iterable[object], time: object) -> None:
    """`DamagedRowError` if a value of a prompt has another type than it was stored with."""
    if not all(isinstance(text, str) for text in texts) or not isinstance(time, int | None):
        raise DamagedRowError("a prompt has a value of another type")


def _parse_row(row: tuple[Any, ...]) -> LoggedPrompt:
    """A row as a prompt; `DamagedRowError` if a value has another type than it was stored with."""
    *texts, time, source, project, key, _ = row
    check_values((*texts, source, project, key), time)
    prompt, cwd, session, agent = map(str, texts)
    return LoggedPrompt(prompt, cwd, session, agent, time, str(source), str(project), str(key))


def _reindex(database: sqlite3.Connection) -> None:
    """Index all prompts again: in a new file, and after the tokenizer rules have changed."""
    with transaction(database):
        for id, prompt in database.execute("SELECT id, prompt FROM prompts").fetchall():
            check_values((prompt,), None)
            database.execute("UPDATE prompts SET words = ? WHERE id = ?", (index_words(prompt), id))
        database.execute("INSERT OR REPLACE INTO notes VALUES('words', ?)", (index_words(_PROBE),))


def _version(database: sqlite3.Connection) -> int:
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    return version


def _note(database: sqlite3.Connection, name: str) -> str | None:
    row = database.execute("SELECT note FROM notes WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def check(database: sqlite3.Connection) -> None:
    """`sqlite3.DatabaseError` if anything in the database is damaged. Reads all of it."""
    # SQLite reads times and folders from its indexes where it can; a quick check does not compare these with the rows.
    found = database.execute("PRAGMA integrity_check").fetchone()
    if found != ("ok",):
        raise DamagedRowError(str(found[0]))
    # With rank 1, it also compares the index with the words of the prompts.
    database.execute("INSERT INTO found(found, rank) VALUES('integrity-check', 1)")
    if _version(database) != _VERSION:
        raise DamagedRowError("the version is damaged")
    for row in database.execute(_ROWS):
        if not _parse_row(row).is_sound:
            raise DamagedRowError("a prompt does not match its key")
    for _, size, modified, end, edge in database.execute("SELECT * FROM sources"):
        if not all(isinstance(value, int) for value in (size, modified, end)) or not isinstance(edge, str):
            raise DamagedRowError("the position in a source is damaged")


def repair(path: str) -> tuple[str, int] | None:
    """Move a damaged file aside and create a new one with every prompt that is left; None if the file is sound.

    Returns the new name of the damaged file, and the number of prompts. One process repairs while the others wait.
    """
    home = os.path.dirname(path)
    with file_lock(f"{path}.lock", timeout=None):
        try:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
                check(database)
            return None
        except DATABASE_ERRORS:
            pass  # that is what is repaired here
        logged = read_log(home)
        known = {prompt.key for prompt in logged}
        # A damaged prompt that the log has is dropped; without the log, what is left of it is better than nothing.
        rest = [prompt for prompt in _salvage(path) if prompt.logged_key not in known and prompt.key not in known]
        aside = _move_aside(path)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        prompts = [*logged, *(msgspec.structs.replace(prompt, logged_key=prompt.key) for prompt in rest)]
        if rest or not has_log(home):
            append_to_log(home, prompts[len(logged) :])
        with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as database:
            database.execute("PRAGMA synchronous = FULL")
            _make_tables(database, path, prompts)
        return aside, len(prompts)


def _salvage(path: str) -> Iterator[LoggedPrompt]:
    """Every row that can be read from a damaged file."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            last = database.execute("SELECT max(id) FROM prompts").fetchone()[0]
        except DATABASE_ERRORS:
            last = None
        at = 0
        for _ in range(_MOST_GAPS):
            try:
                for row in database.execute(f"{_ROWS} WHERE id > ? ORDER BY id", (at,)):
                    at = row[8]
                    with contextlib.suppress(DamagedRowError):
                        yield _parse_row(row)
                return
            except (*DATABASE_ERRORS, OverflowError):
                at += 1  # the row after the last one cannot be read
                if last is None or at >= last:
                    return


def _move_aside(path: str) -> str:
    """Rename a damaged file and its logs."""
    aside = f"{path}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.urandom(2).hex()}"
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(path + suffix, aside + suffix)
    return aside
