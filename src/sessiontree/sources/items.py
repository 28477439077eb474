"""The sessions in a file that contains several, with facts that need no reading of their lines."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

from sessiontree.dialects.storage import Outline, Rows
from sessiontree.errors import StoreError
from sessiontree.sources.database import open_database, run_first
from sessiontree.stores.contract import SessionRef, SessionStat

_INTEGER = 1 << 63


def iter_items(path: str, storage: Rows, changed: int, dialect: str) -> Iterator[SessionStat]:
    """List the sessions of a database that was changed at this time in nanoseconds; `StoreError` if it is damaged."""
    with open_database(path) as database:
        cursor = run_first(database, storage.sessions)
        columns = [name for name, *_ in cursor.description]
        if "item" not in columns:
            raise StoreError(f"{path}: the query for sessions has no column 'item'")
        for values in cursor:
            row = dict(zip(columns, values, strict=True))
            if row["item"] is not None:
                yield _stat(path, row, changed, dialect)


def has_item(database: sqlite3.Connection, storage: Rows, item: str) -> bool:
    queries = (storage.sessions,) if isinstance(storage.sessions, str) else storage.sessions
    checks = tuple(f"SELECT 1 FROM ({query}) WHERE CAST(item AS TEXT) = :item" for query in queries)  # noqa: S608 - the dialect's own queries
    return run_first(database, checks, {"item": item}).fetchone() is not None


def read_outlines(path: str, storage: Rows, items: Iterable[str]) -> Iterator[Outline | None]:
    """The short form of each session, from one connection; None for one that has to be read as a whole."""
    with open_database(path) as database:
        for item in items:
            try:
                row = run_first(database, storage.outline, {"item": item}).fetchone() if storage.outline else None
                yield None if row is None else storage.outline_of(dict(zip(row.keys(), row, strict=True)))
            except (sqlite3.Error, ValueError):  # reading it as a whole reports the damage
                yield None


def _stat(path: str, row: dict[str, Any], changed: int, dialect: str) -> SessionStat:
    name, parent = str(row["item"]), row.get("parent")
    if "modified" in row or "stamp" in row:  # else every write to the database may have changed the session
        changed = 1_000_000 * _count(row.get("modified"))
    return SessionStat(
        SessionRef(path, "", name),
        name,
        _count(row.get("size")),
        changed,
        _number(row.get("stamp")),
        dialect,
        "subagent" if row.get("kind") == "subagent" else "session",
        None if parent is None else SessionRef(path, "", str(parent)),
    )


def _number(value: object) -> int:
    """A number that differs if the value differs."""
    if value is None:
        return 0
    if isinstance(value, int) and -_INTEGER <= value < _INTEGER:
        return value
    return int.from_bytes(blake2b(repr(value).encode("utf-8", "replace"), digest_size=7).digest())


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < _INTEGER // 1_000_000 else 0
