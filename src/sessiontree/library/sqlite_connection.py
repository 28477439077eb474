"""Connections to our SQLite files. On a file system without locks they fail at once, with the next step."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import Literal, TypeAlias

from sessiontree.library.sqlite_damage import DATABASE_ERRORS
from sessiontree.stores.file_lock import has_record_locks

_Isolation: TypeAlias = Literal["DEFERRED"] | None


class NoLocksError(sqlite3.OperationalError):
    """The file system of a database has no locks. SQLite itself would report a busy database, after its timeout."""


def connect(
    path: str,
    busy_seconds: float,
    *,
    setting: str = "SESSIONTREE_CACHE",
    isolation_level: _Isolation = None,
    check_same_thread: bool = True,
) -> sqlite3.Connection:
    """Open a database that waits for other processes up to `busy_seconds`.

    `NoLocksError` names `setting`, the variable that chooses another folder.
    """
    database = sqlite3.connect(path, timeout=0.0, isolation_level=isolation_level, check_same_thread=check_same_thread)
    try:
        # The first access, which locks the file. Other errors are those of the next access, too.
        database.execute("PRAGMA schema_version").fetchone()
    except DATABASE_ERRORS:
        if not has_record_locks(os.path.dirname(path)):
            database.close()
            raise NoLocksError(
                f"{path}: its file system has no locks; set {setting} to a folder on another file system"
            ) from None
    with contextlib.suppress(*DATABASE_ERRORS):
        database.execute(f"PRAGMA busy_timeout = {round(1000 * busy_seconds)}")
    return database
