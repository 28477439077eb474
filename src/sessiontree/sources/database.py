"""Read SQLite databases of other programs without creating or changing any file."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from sessiontree.errors import NotFoundError, StoreError

_BUSY_SECONDS = 5.0
_WAL_VERSION = b"\x02"
_READ_VERSION_AT = 19
_HEADER_BYTES = 100
_GENERATED = (2, 3)  # `hidden` of a generated column
_as = re.compile(r"\bas\b", re.IGNORECASE)
"""Part of the definition of every generated column, and of few other tables."""


@contextlib.contextmanager
def open_database(path: str) -> Iterator[sqlite3.Connection]:
    """A read-only connection; errors of SQLite inside the block become `StoreError`."""
    try:
        with contextlib.closing(_connect(path)) as database:
            yield database
    except (sqlite3.Error, UnicodeDecodeError) as error:  # damaged names of columns are not valid UTF-8
        raise StoreError(f"{path}: the database cannot be read: {error}") from error


def run_first(
    database: sqlite3.Connection, queries: str | tuple[str, ...], values: Mapping[str, Any] = {}
) -> sqlite3.Cursor:
    """Run the first query whose tables and columns the database has: older versions of a client lack some of them."""
    *others, last = (queries,) if isinstance(queries, str) else queries
    for query in others:
        try:
            return database.execute(query, values)
        except sqlite3.OperationalError as error:
            if "no such" not in str(error):
                raise
    return database.execute(last, values)


def _connect(path: str) -> sqlite3.Connection:
    # Opening a database in WAL mode creates its -wal and -shm files, even for reading. If another program has it open,
    # they exist, and reading with locks creates nothing. Its -shm file is opened read-only; otherwise each reader would
    # record its position in it. If no program has the files open, SQLite then builds the index of the log in memory.
    # Without a -shm file no lock is needed: without locks and in exclusive mode, SQLite keeps the index of a -wal file
    # that a killed program left in memory.
    is_alone = _is_wal(path) and not os.path.exists(f"{path}-shm")
    options = "mode=ro&vfs=unix-none" if is_alone else "mode=ro&readonly_shm=1"
    database = sqlite3.connect(f"file:{quote(path)}?{options}", uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        database.row_factory = sqlite3.Row
        database.execute("PRAGMA trusted_schema = OFF")  # views and triggers of the file may call no function
        database.execute("PRAGMA query_only = ON")
        if is_alone:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
        if missing_pages(path):
            # SQLite refuses a truncated file. With this setting, it reads the remaining pages.
            database.execute("PRAGMA writable_schema = ON")
        _refuse_computed_values(database)
    except sqlite3.Error:
        database.close()
        raise
    return database


def _refuse_computed_values(database: sqlite3.Connection) -> None:
    """Let no query read a view or a generated column: what a file computes can be endless or of any size."""
    schema = database.execute("SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
    views = {name for kind, name, _ in schema if kind == "view"}
    tables = [name for kind, name, sql in schema if kind == "table" and isinstance(sql, str) and _as.search(sql)]
    columns = {
        (table, name)
        for table in tables
        for name, hidden in database.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,))
        if hidden in _GENERATED
    }
    if not views and not columns:
        return

    def authorize(_: int, table: str | None, column: str | None, __: str | None, view: str | None) -> int:
        return sqlite3.SQLITE_DENY if view in views or (table, column) in columns else sqlite3.SQLITE_OK

    database.set_authorizer(authorize)


def missing_pages(path: str) -> int:
    """The number of pages that a database lacks at its end, because its file was cut; 0 for a complete file."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEADER_BYTES)
            size = os.fstat(file.fileno()).st_size
        if len(head) < _HEADER_BYTES or (os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal")):
            return 0  # the log may have the pages
    except OSError:
        return 0
    page_size = int.from_bytes(head[16:18])
    page_size = 65536 if page_size == 1 else page_size
    count, is_valid = int.from_bytes(head[28:32]), head[24:28] == head[92:96]
    return max(count - size // page_size, 0) if page_size and is_valid else 0


def _is_wal(path: str) -> bool:
    if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait for a writer
        raise StoreError(f"{path}: not a regular file")
    try:
        with open(path, "rb") as file:
            return file.read(_READ_VERSION_AT + 1)[_READ_VERSION_AT:] == _WAL_VERSION
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
