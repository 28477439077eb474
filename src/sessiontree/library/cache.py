"""The listing cache: what was read of each session file, in one SQLite file.

Everything in it can be derived again, so nothing here ever fails a listing: a file that is no database is moved away
and made anew, one that is busy for too long or lies where nothing can be written is done without. Several processes
may use it at once (write-ahead log, short transactions).

The file has room for more than the listing (the search index): each part has its tables and, in `versions`, its own
number, and is dropped and made anew when that number is not the expected one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from sessiontree.library.summary import Summary
from sessiontree.stores.file_lock import file_lock

if TYPE_CHECKING:  # a listing in which nothing changed reads no session, and needs nothing that does
    from sessiontree.library.counts import Counted
    from sessiontree.library.summary_reader import Look, State

T = TypeVar("T")

FactsPart: TypeAlias = Literal["keys", "facts", "details"]
Stamp: TypeAlias = tuple[int, int, int]
"""Size, date in nanoseconds and inode of a file: as long as they are the same, nothing changed."""

VERSION = 4
_PART = "listing"
_BUSY_SECONDS = 5.0
_NOWHERE = ":memory:"
_TABLES = {
    "sessions": "path TEXT PRIMARY KEY, size INTEGER, modified INTEGER, inode INTEGER, agents TEXT, summary BLOB",
    "states": "path TEXT PRIMARY KEY, state BLOB",
    "facts": "path TEXT PRIMARY KEY, size INTEGER, modified INTEGER, inode INTEGER, "
    "keys BLOB, facts BLOB, details BLOB",
    "notes": "name TEXT PRIMARY KEY, note BLOB",
}
_SAME_FILE = "FROM facts WHERE path = ? AND size = ? AND modified = ? AND inode = ?"
_PARTS: dict[FactsPart, str] = {
    "keys": f"SELECT keys {_SAME_FILE}",
    "facts": f"SELECT facts {_SAME_FILE}",
    "details": f"SELECT details {_SAME_FILE}",
}

_encode = msgspec.msgpack.Encoder().encode
_decode_summary = msgspec.msgpack.Decoder(Summary).decode


class Row(Struct, frozen=True, gc=False):
    """What is known of a file, and of which file: the same size, date and inode mean that nothing changed."""

    size: int
    modified: int
    inode: int
    agents: str
    raw: bytes
    """The summary; empty for a file that is no session."""

    @property
    def summary(self) -> Summary | None:
        return _decoded(_decode_summary, self.raw)


def cache_path(environment: Mapping[str, str]) -> str:
    """`$SESSIONTREE_CACHE` (a folder, or a file that ends in .sqlite), else the platform's cache folder."""
    chosen = environment.get("SESSIONTREE_CACHE")
    if chosen:
        whole = os.path.abspath(os.path.expanduser(chosen))
        return whole if whole.endswith(".sqlite") else os.path.join(whole, "library.sqlite")
    home = environment.get("HOME") or os.path.expanduser("~")
    if sys.platform == "darwin":
        folder = os.path.join(home, "Library", "Caches")
    else:
        folder = environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return os.path.join(folder, "sessiontree", "library.sqlite")


class Cache:
    """What was read before. Use it from one thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._database = self._open()

    def close(self) -> None:
        self._database.close()

    def rows(self, folders: Iterable[str]) -> dict[str, Row]:
        """What is known of the files below some folders, by path."""
        bounds = [(f"{folder.rstrip('/')}/", f"{folder.rstrip('/')}0") for folder in folders]  # "0" follows "/"

        def work(database: sqlite3.Connection) -> dict[str, Row]:
            asked = "SELECT path, size, modified, inode, agents, summary FROM sessions WHERE path > ? AND path < ?"
            return {
                path: Row(size, modified, inode, agents, raw)
                for bound in bounds
                for path, size, modified, inode, agents, raw in database.execute(asked, bound)
            }

        return self._attempt(work, {})

    def find_state(self, path: str) -> State | None:
        """What a look at a file that grew goes on from."""

        def work(database: sqlite3.Connection) -> State | None:
            row = database.execute("SELECT state FROM states WHERE path = ?", (path,)).fetchone()
            return _decoded(_decode_state, row[0]) if row else None

        return self._attempt(work, None)

    def store(self, looks: Iterable[tuple[Look, int, int, str]]) -> None:
        """Remember looks: each with the file's date and inode, and the agents its root may belong to."""
        rows, states, stateless = [], [], []
        for look, modified, inode, agents in looks:
            path = look.summary.path
            summary, state = _encoded(look.summary), _encoded(look.state)
            if summary is None:
                continue  # the name of the file is no text: it is read anew each time
            rows.append((path, look.summary.size, modified, inode, agents, summary))
            if state is not None:
                states.append((path, state))
            else:
                stateless.append((path,))

        def work(database: sqlite3.Connection) -> None:
            with transaction(database):
                database.executemany("INSERT OR REPLACE INTO sessions VALUES(?, ?, ?, ?, ?, ?)", rows)
                database.executemany("INSERT OR REPLACE INTO states VALUES(?, ?)", states)
                database.executemany("DELETE FROM states WHERE path = ?", stateless)

        self._attempt(work, None)

    def store_others(self, files: Iterable[tuple[str, int, int, int, str]]) -> None:
        """Remember files that are no sessions: path, size, date, inode, agents."""
        rows = [(*file, b"") for file in files]

        def work(database: sqlite3.Connection) -> None:
            with transaction(database):
                database.executemany("INSERT OR REPLACE INTO sessions VALUES(?, ?, ?, ?, ?, ?)", rows)

        self._attempt(work, None)

    def find_note(self, name: str) -> bytes | None:
        """Something small that was noted before."""

        def work(database: sqlite3.Connection) -> bytes | None:
            row = database.execute("SELECT note FROM notes WHERE name = ?", (name,)).fetchone()
            return row[0] if row and isinstance(row[0], bytes) else None

        return self._attempt(work, None)

    def store_note(self, name: str, note: bytes) -> None:
        def work(database: sqlite3.Connection) -> None:
            database.execute("INSERT OR REPLACE INTO notes VALUES(?, ?)", (name, note))

        self._attempt(work, None)

    def store_exact(self, path: str, size: int, counted: Counted) -> None:
        """Put numbers that were counted in the whole file in place of estimates.

        For whoever read a session from end to end. Nothing happens when the file is not known, or not in this size.
        """

        from sessiontree.library.summary_reader import with_exact

        def work(database: sqlite3.Connection) -> None:
            with transaction(database):
                row = database.execute("SELECT size, summary FROM sessions WHERE path = ?", (path,)).fetchone()
                known = _decoded(_decode_summary, row[1]) if row and row[0] == size else None
                if known is None:
                    return
                kept = database.execute("SELECT state FROM states WHERE path = ?", (path,)).fetchone()
                state = _decoded(_decode_state, kept[0]) if kept else None
                summary, state = with_exact(known, state, counted)
                database.execute("UPDATE sessions SET summary = ? WHERE path = ?", (_encoded(summary), path))
                if state is not None:
                    database.execute("UPDATE states SET state = ? WHERE path = ?", (_encoded(state), path))

        self._attempt(work, None)

    def lacks_exact(self, path: str, size: int) -> bool:
        """Whether a file is known in this size, but with estimated numbers."""

        def work(database: sqlite3.Connection) -> bool:
            row = database.execute("SELECT summary FROM sessions WHERE path = ? AND size = ?", (path, size)).fetchone()
            known = _decoded(_decode_summary, row[0]) if row else None
            return known is not None and not known.exact

        return self._attempt(work, False)

    def find_part(self, part: FactsPart, path: str, stamp: Stamp) -> bytes | None:
        """A part of what was counted in a whole file, if that is still the file that was read."""

        def work(database: sqlite3.Connection) -> bytes | None:
            row = database.execute(_PARTS[part], (path, *stamp)).fetchone()
            return row[0] if row and isinstance(row[0], bytes) else None

        return self._attempt(work, None)

    def store_facts(self, path: str, stamp: Stamp, keys: bytes, facts: bytes, details: bytes) -> None:
        """Remember what was counted in a whole file, in the parts that are asked for by themselves."""

        def work(database: sqlite3.Connection) -> None:
            values = (path, *stamp, keys, facts, details)
            database.execute("INSERT OR REPLACE INTO facts VALUES(?, ?, ?, ?, ?, ?, ?)", values)

        self._attempt(work, None)

    def forget(self, paths: Iterable[str]) -> None:
        """Files that are gone."""
        gone = [(path,) for path in paths]

        def work(database: sqlite3.Connection) -> None:
            with transaction(database):
                database.executemany("DELETE FROM sessions WHERE path = ?", gone)
                database.executemany("DELETE FROM states WHERE path = ?", gone)
                database.executemany("DELETE FROM facts WHERE path = ?", gone)

        self._attempt(work, None)

    # When something is wrong with it

    def _attempt(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Do some work in the database, in a new one if this one is damaged; or do without."""
        for _ in range(2):
            try:
                return work(self._database)
            except UnicodeEncodeError:
                return otherwise  # a path that is no text
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    return otherwise
                self._database.close()
                self._database = _rebuilt(self.path, tables_too=error.sqlite_errorcode == sqlite3.SQLITE_ERROR)
        return otherwise

    def _open(self) -> sqlite3.Connection:
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            return _connected(self.path)
        except sqlite3.DatabaseError as error:
            return _rebuilt(self.path) if _is_damage(error) else _connected(_NOWHERE)
        except OSError:
            return _connected(_NOWHERE)


def _connected(path: str) -> sqlite3.Connection:
    """The database with our tables in it."""
    if path != _NOWHERE:  # made here, so that its mode is ours; the files beside it take it over
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        if _version(database) != VERSION:
            _make_tables(database)
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database


def _version(database: sqlite3.Connection) -> int | None:
    try:
        row = database.execute("SELECT version FROM versions WHERE part = ?", (_PART,)).fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return None  # there is no such table yet
    return row[0] if row else None


def _make_tables(database: sqlite3.Connection, *, anew: bool = False) -> None:
    with transaction(database):
        database.execute("CREATE TABLE IF NOT EXISTS versions(part TEXT PRIMARY KEY, version INTEGER)")
        if _version(database) == VERSION and not anew:
            return  # another process was faster
        for name, columns in _TABLES.items():
            database.execute(f"DROP TABLE IF EXISTS {name}")
            database.execute(f"CREATE TABLE {name}({columns}) WITHOUT ROWID")
        database.execute("INSERT OR REPLACE INTO versions VALUES(?, ?)", (_PART, VERSION))


@contextlib.contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All of what is done within, or nothing."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.DatabaseError):
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is at fault; else someone else is using it, or it cannot be written."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH)


def _rebuilt(path: str, *, tables_too: bool = False) -> sqlite3.Connection:
    """A new database in place of a damaged one, which is moved away. One process does it, the others wait for it.

    With `tables_too` a sound one may have tables that are not ours, and gets them made anew.
    """
    try:
        with file_lock(f"{path}.lock", timeout=None):
            with contextlib.suppress(sqlite3.DatabaseError):
                database = _connected(path)
                if database.execute("PRAGMA quick_check").fetchone() == ("ok",):
                    if tables_too:
                        _make_tables(database, anew=True)
                    return database
                database.close()
            os.replace(path, f"{path}.damaged")
            for beside in (f"{path}-wal", f"{path}-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(beside)
            return _connected(path)
    except (OSError, sqlite3.DatabaseError):
        return _connected(_NOWHERE)


def _decode_state(raw: bytes) -> State:
    from sessiontree.library.summary_reader import State

    return msgspec.msgpack.decode(raw, type=State)


def _encoded(value: Summary | State | None) -> bytes | None:
    """A value for the cache; None when it holds what no text, or a number that no cell can hold."""
    try:
        return None if value is None else _encode(value)
    except (UnicodeEncodeError, OverflowError):
        return None


def _decoded(decode: Callable[[bytes], T], raw: object) -> T | None:
    """A value out of the cache; None when it is not what was put in."""
    try:
        return decode(raw) if isinstance(raw, bytes) else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
