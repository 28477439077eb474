"""Sessions in one SQLite file, such as `box:/work/team.box`. Each append is a row with its offset."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sessiontree.errors import ConflictError, ExistsError, NotFoundError, ReplacedError, WriteError
from sessiontree.paths import check_session_id, find_by_id
from sessiontree.stores.blobs import blob_name, check_blob_name
from sessiontree.stores.contract import SessionRef, SessionStat, check_document_name, read_bytes
from sessiontree.stores.file_lock import file_lock

TABLES = (
    "PRAGMA journal_mode = WAL",
    "CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, version INTEGER, size INTEGER, changed INTEGER)",
    "CREATE TABLE IF NOT EXISTS parts (id TEXT, version INTEGER, start INTEGER, data BLOB)",
    "CREATE UNIQUE INDEX IF NOT EXISTS part ON parts (id, version, start)",
    "CREATE TABLE IF NOT EXISTS blobs (name TEXT PRIMARY KEY, data BLOB)",
    "CREATE TABLE IF NOT EXISTS documents (name TEXT PRIMARY KEY, data BLOB)",
)


class Box:
    """The repository, with its blobs and documents. Threads share its connection, one transaction at a time."""

    is_volatile = False

    def __init__(self, home: str) -> None:
        self.home = home
        self.path = home.removeprefix("box:")
        self._database = sqlite3.connect(self.path, timeout=30, check_same_thread=False)
        self._turn = threading.Lock()
        self.blobs, self.documents = Blobs(self), Documents(self)
        with self.transaction() as run:
            for table in TABLES:
                run(table)

    def __del__(self) -> None:
        self._database.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[..., list[Any]]]:
        """A function that runs a statement. All of them are stored, or nothing."""
        with self._turn, self._database as database:
            yield lambda sql, *values: database.execute(sql, values).fetchall()

    def lock(self) -> contextlib.AbstractContextManager[bool]:
        return file_lock(f"{self.path}.lock")

    def new(self, id: str, *, timestamp: str, cwd: str, near: SessionRef | None = None) -> BoxStore:
        return BoxStore(self, SessionRef(check_session_id(id), self.home))

    def open(self, ref: SessionRef) -> BoxStore:
        store = BoxStore(self, ref)
        if not store.exists():
            raise NotFoundError(f"{ref}: no such session")
        return store

    def find(self, wanted: str) -> SessionRef:
        known = [(stat.id, stat.id) for stat in self.iter_stats()]
        return SessionRef(find_by_id(wanted, known, self.home), self.home)

    def iter_stats(self) -> Iterator[SessionStat]:
        with self.transaction() as run:
            rows = run("SELECT id, size, changed, version FROM sessions")
        for id, size, changed, version in rows:
            yield SessionStat(SessionRef(id, self.home), id, size, changed, version)

    def delete(self, ref: SessionRef) -> None:
        with self.lock(), self.transaction() as run:
            if not run("DELETE FROM sessions WHERE id = ? RETURNING id", ref.name):
                raise NotFoundError(f"{ref}: no such session")
            run("DELETE FROM parts WHERE id = ?", ref.name)


class BoxStore:
    """The bytes of one session. `replace` writes a new version; the parts of older versions are the backups."""

    def __init__(self, box: Box, ref: SessionRef) -> None:
        self.ref = ref
        self.location = str(ref)
        self._box = box
        self._version: int | None = None
        self._holds = 0
        self._has_failed = False

    def _state(self) -> tuple[int, int] | None:
        """The version and size in the database; None if there is no such session."""
        with self._box.transaction() as run:
            rows = run("SELECT version, size FROM sessions WHERE id = ?", self.ref.name)
        if rows and self._version is None:
            self._version = rows[0][0]
        return rows[0] if rows else None

    def exists(self) -> bool:
        return self._state() is not None

    def size(self) -> int:
        state = self._state()
        return state[1] if state else 0

    def readinto(self, offset: int, buffer: memoryview) -> int:
        """Read from one part; the caller asks for the rest."""
        with self._box.transaction() as run:
            rows = run(
                "SELECT substr(data, ? - start + 1, ?) FROM parts JOIN sessions USING (id, version)"
                " WHERE id = ? AND start <= ? ORDER BY start DESC LIMIT 1",
                *(offset, len(buffer), self.ref.name, offset),
            )
        part = rows[0][0] if rows else b""
        buffer[: len(part)] = part
        return len(part)

    def create(self, data: Iterable[bytes]) -> None:
        content = b"".join(data)
        with self._box.lock():
            if self.exists():
                raise ExistsError(f"{self.location}: the session exists")
            self._write(time.time_ns(), 0, content)

    def append(self, data: bytes, *, expected_size: int) -> int | None:
        with self.exclusive() as size:
            if size != expected_size:
                return None
            self._write(self._version, size, data)
            return size + len(data)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[int]:
        """Hold the lock, which is not a transaction: what is written in it is visible at once."""
        with self._box.lock() if not self._holds else contextlib.nullcontext():
            state = self._state()
            if state is None or state[0] != self._version:
                raise ReplacedError(f"{self.location}: deleted or replaced; nothing was written. Open it again.")
            self._holds += 1
            try:
                yield state[1]
            finally:
                self._holds -= 1

    def overwrite(self, offset: int, data: bytes, expected: bytes) -> None:
        content = read_bytes(self, 0, self.size())
        if content[offset : offset + len(data)] != expected or len(data) != len(expected):
            raise ConflictError(f"{self.location}: the bytes at {offset} have changed; nothing was written")
        self._write(self._version, 0, content[:offset] + data + content[offset + len(data) :])

    def replace(self, data: Iterable[bytes], *, expected_size: int) -> str:
        content = b"".join(data)
        with self.exclusive() as size:
            if size != expected_size:
                raise ConflictError(f"{self.location}: changed during the rewrite; nothing was written")
            backup = f"version {self._version} in {self.location}"
            self._write(time.time_ns(), 0, content)
            return backup

    def _write(self, version: int | None, start: int, data: bytes) -> None:
        """Write the bytes from an offset to the end, in one transaction."""
        if self._has_failed:
            raise WriteError(f"{self.location}: an earlier write failed; call resolve() first")
        try:
            with self._box.transaction() as run:
                run("DELETE FROM parts WHERE id = ? AND version = ? AND start >= ?", self.ref.name, version, start)
                run("INSERT INTO parts VALUES (?, ?, ?, ?)", self.ref.name, version, start, data)
                values = (self.ref.name, version, start + len(data), time.time_ns())
                run("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)", *values)
        except sqlite3.Error as error:
            self._has_failed = True
            raise WriteError(f"{self.location}: cannot be written: {error}") from error
        self._version = version

    def start_sync(self) -> None:
        """SQLite syncs each transaction."""

    def sync(self) -> None:
        """SQLite syncs each transaction."""

    def resolve(self) -> None:
        """SQLite rolled the transaction back, so the outcome is known."""
        self._has_failed = False

    def close(self) -> None:
        """The connection belongs to the repository."""


class Blobs:
    """Large content by its SHA-256."""

    def __init__(self, box: Box) -> None:
        self._box = box

    def put(self, data: bytes) -> str:
        name = blob_name(data)
        with self._box.transaction() as run:
            run("INSERT OR IGNORE INTO blobs VALUES (?, ?)", name, data)
        return name

    def get(self, name: str) -> bytes | None:
        with self._box.transaction() as run:
            rows = run("SELECT data FROM blobs WHERE name = ?", check_blob_name(name))
        return rows[0][0] if rows else None


class Documents:
    """Small named documents, such as the tags of all sessions."""

    def __init__(self, box: Box) -> None:
        self._box = box

    def location(self, name: str) -> str:
        return f"{self._box.home}: {check_document_name(name)}"

    def read(self, name: str) -> bytes | None:
        with self._box.transaction() as run:
            rows = run("SELECT data FROM documents WHERE name = ?", check_document_name(name))
        return rows[0][0] if rows else None

    def update(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        with self._box.lock():
            new = change(self.read(name))
            with self._box.transaction() as run:
                run("DELETE FROM documents WHERE name = ?", name)
                if new is not None:
                    run("INSERT INTO documents VALUES (?, ?)", name, new)
