"""Read SQLite databases of other programs without creating or changing any file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from urllib.parse import quote

from sessiontree.errors import NotFoundError, StoreError

_BUSY_SECONDS = 5.0
_WAL_VERSION = b"\x02"
_READ_VERSION_AT = 19


@contextlib.contextmanager
def open_database(path: str) -> Iterator[sqlite3.Connection]:
    """A read-only connection; errors of SQLite inside the block become `StoreError`."""
    try:
        with contextlib.closing(_connect(path)) as database:
            yield database
    except (sqlite3.Error, UnicodeDecodeError) as error:  # damaged names of columns are not valid UTF-8
        raise StoreError(f"{path}: the database cannot be read: {error}") from error


def _connect(path: str) -> sqlite3.Connection:
    # Opening a database in WAL mode creates its -wal and -shm files, even for reading. If another program has it open,
    # they exist, and reading with locks creates nothing. Otherwise no lock is needed: without locks and in exclusive
    # mode, SQLite keeps the index of a -wal file that a killed program left in memory.
    is_alone = _is_wal(path) and not os.path.exists(f"{path}-shm")
    options = "mode=ro&vfs=unix-none" if is_alone else "mode=ro"
    database = sqlite3.connect(f"file:{quote(path)}?{options}", uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        database.row_factory = sqlite3.Row
        database.execute("PRAGMA trusted_schema = OFF")  # views and triggers of the file may call no function
        database.execute("PRAGMA query_only = ON")
        if is_alone:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
    except sqlite3.Error:
        database.close()
        raise
    return database


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
