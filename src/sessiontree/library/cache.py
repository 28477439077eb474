"""The listing cache: summaries and statistics of session files, in one SQLite file.

Everything in it can be derived again, so a cache failure never fails a listing. A damaged file is moved away and
rebuilt; a damaged value, which its checksum shows, is read again from its session. If the file is locked for too long
or not writable, an empty database in memory is used instead. Several processes may use it at once (write-ahead log,
short transactions), and several threads (one at a time).

Each part of the file has its own tables and, in `versions`, its own version. A part of any other version is dropped and
rebuilt.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from sessiontree.errors import StoreError
from sessiontree.library import sqlite_connection
from sessiontree.library.sqlite_damage import DATABASE_ERRORS, is_damage, move_away, seal, unseal
from sessiontree.library.summary import Summary
from sessiontree.paths import cache_folder
from sessiontree.stores.file_lock import file_lock

if TYPE_CHECKING:  # a listing in which nothing changed reads no session, and does not import the readers
    from sessiontree.library.counts import Counted
    from sessiontree.library.home_image import HomeImage
    from sessiontree.library.summary_reader import State, SummaryRead

T = TypeVar("T")

StatsPart: TypeAlias = Literal["keys", "facts", "details"]
Stamp: TypeAlias = tuple[int, int, int]
"""Size, modification time (ns) and inode of a file, or other numbers that change with the content of a session.

While they are equal, the session is considered unchanged.
"""

VERSION = 10
_PART = "listing"
_BUSY_SECONDS = 5.0
_IN_MEMORY = ":memory:"
_TABLES = {
    "sessions": "path TEXT PRIMARY KEY, size INTEGER, modified INTEGER, inode INTEGER, agents TEXT, summary BLOB",
    "states": "path TEXT PRIMARY KEY, state BLOB",
    "facts": "path TEXT PRIMARY KEY, size INTEGER, modified INTEGER, inode INTEGER, "
    "keys BLOB, facts BLOB, details BLOB",
    "notes": "name TEXT PRIMARY KEY, note BLOB",
}
_SAME_FILE = "FROM facts WHERE path = ? AND size = ? AND modified = ? AND inode = ?"
_PARTS: dict[StatsPart, str] = {
    "keys": f"SELECT keys {_SAME_FILE}",
    "facts": f"SELECT facts {_SAME_FILE}",
    "details": f"SELECT details {_SAME_FILE}",
}

_encode = msgspec.msgpack.Encoder().encode
_decode_summary = msgspec.msgpack.Decoder(Summary).decode


class _Container(Struct, frozen=True):
    """The sessions in a file that contains several."""

    items: list[str]


_NO_SESSION = seal(b"")
_decode_container = msgspec.msgpack.Decoder(_Container).decode


class Row(Struct, frozen=True, gc=False):
    """The cached summary of a session, with the stamp of its file."""

    size: int
    modified: int
    inode: int
    agents: str
    raw: bytes
    """The content with its checksum."""

    @property
    def stamp(self) -> Stamp:
        return self.size, self.modified, self.inode

    @property
    def is_other(self) -> bool:
        """Whether the file is not a session."""
        return self.raw == _NO_SESSION

    @property
    def summary(self) -> Summary | None:
        return _decode_or_none(_decode_summary, self.raw)

    @property
    def items(self) -> list[str] | None:
        """The names of the sessions in a file that contains several."""
        container = _decode_or_none(_decode_container, self.raw)
        return None if container is None else container.items


def cache_path(environment: Mapping[str, str]) -> str:
    """`$SESSIONTREE_CACHE` (a folder, or a file that ends in .sqlite), else the platform's cache folder."""
    chosen = environment.get("SESSIONTREE_CACHE", "")
    if chosen.endswith(".sqlite"):
        return os.path.abspath(os.path.expanduser(chosen))
    return os.path.join(cache_folder(environment), "library.sqlite")


class Cache:
    """The cache, for any thread. Methods run one at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._database = self._open()

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def rows(self, folders: Iterable[str]) -> dict[str, Row]:
        """Cached rows of the files below some folders, by path."""
        bounds = [_bounds(folder) for folder in folders]

        def work(database: sqlite3.Connection) -> dict[str, Row]:
            sql = "SELECT path, size, modified, inode, agents, summary FROM sessions WHERE path > ? AND path < ?"
            return {
                path: Row(size, modified, inode, agents, raw)
                for bound in bounds
                for path, size, modified, inode, agents, raw in database.execute(sql, bound)
            }

        return self._attempt(work, {})

    def summaries(self, folders: Mapping[str, str]) -> list[Summary]:
        """The cached summaries below some folders, as far as they were read by the rules of these agents."""

        def work(database: sqlite3.Connection) -> list[Summary]:
            # A row with nothing but its checksum is a file that is not a session (`_NO_SESSION`).
            sql = "SELECT summary FROM sessions WHERE path > ? AND path < ? AND agents = ? AND length(summary) > 4"
            found: list[Summary] = []
            for folder, agents in folders.items():
                for (raw,) in database.execute(sql, (*_bounds(folder), agents)):
                    summary = _decode_or_none(_decode_summary, raw)
                    if summary is not None:  # else damaged, or a file that contains several
                        found.append(summary)
            return found

        return self._attempt(work, [])

    def find_stamp(self, ref: str) -> Stamp | None:
        """The stamp that a session had when it was last read."""

        def work(database: sqlite3.Connection) -> Stamp | None:
            row = database.execute("SELECT size, modified, inode FROM sessions WHERE path = ?", (ref,)).fetchone()
            return row and (row[0], row[1], row[2])

        return self._attempt(work, None)

    def find_state(self, path: str) -> State | None:
        """The state to continue reading a file from."""

        def work(database: sqlite3.Connection) -> State | None:
            row = database.execute("SELECT state FROM states WHERE path = ?", (path,)).fetchone()
            return _decode_or_none(_decode_state, row[0]) if row else None

        return self._attempt(work, None)

    def store(self, reads: Iterable[tuple[SummaryRead, Stamp, str]]) -> None:
        """Store what was read, each with its stamp and the possible agents."""
        rows, states, stateless = [], [], []
        for read, stamp, agents in reads:
            path = read.summary.ref
            summary, state = _encode_or_none(read.summary), _encode_or_none(read.state)
            if summary is None:
                continue  # the file name is not valid Unicode: read again each time
            rows.append((path, *stamp, agents, summary))
            if state is not None:
                states.append((path, state))
            else:
                stateless.append((path,))  # a state of earlier content would continue in the middle of a line

        def work(database: sqlite3.Connection) -> None:
            with transaction(database):
                database.executemany("INSERT OR REPLACE INTO sessions VALUES(?, ?, ?, ?, ?, ?)", rows)
                database.executemany("INSERT OR REPLACE INTO states VALUES(?, ?)", states)
                database.executemany("DELETE FROM states WHERE path = ?", stateless)

        self._attempt(work, None)

    def store_others(self, files: Iterable[tuple[str, Stamp, str, Sequence[str] | None]]) -> None:
        """Store files that are not sessions: path, stamp, agents and, for a file of several sessions, their names."""
        rows = [
            (path, *stamp, agents, _NO_SESSION if items is None else seal(_encode(_Container(list(items)))))
            for path, stamp, agents, items in files
        ]

        def work(database: sqlite3.Connection) -> None:
            with transaction(database):
                database.executemany("INSERT OR REPLACE INTO sessions VALUES(?, ?, ?, ?, ?, ?)", rows)

        self._attempt(work, None)

    def find_note(self, name: str) -> bytes | None:
        """A small value by name."""

        def work(database: sqlite3.Connection) -> bytes | None:
            row = database.execute("SELECT note FROM notes WHERE name = ?", (name,)).fetchone()
            return unseal(row[0]) if row else None

        return self._attempt(work, None)

    def store_note(self, name: str, note: bytes) -> None:
        def work(database: sqlite3.Connection) -> None:
            database.execute("INSERT OR REPLACE INTO notes VALUES(?, ?)", (name, seal(note)))

        self._attempt(work, None)

    def store_exact(self, path: str, size: int | None, counted: Counted) -> None:
        """Replace estimates with exact numbers, counted by a caller that read the whole file.

        Does nothing if the file is not cached with this size (see `size_in_cache`).
        """

        from sessiontree.library.summary_reader import with_exact

        def work(database: sqlite3.Connection) -> None:
            with transaction(database):
                row = database.execute("SELECT size, summary FROM sessions WHERE path = ?", (path,)).fetchone()
                known = _decode_or_none(_decode_summary, row[1]) if row and size in (None, row[0]) else None
                if known is None:
                    return
                kept = database.execute("SELECT state FROM states WHERE path = ?", (path,)).fetchone()
                state = _decode_or_none(_decode_state, kept[0]) if kept else None
                summary, state = with_exact(known, state, counted)
                database.execute("UPDATE sessions SET summary = ? WHERE path = ?", (_encode_or_none(summary), path))
                if state is not None:
                    database.execute("UPDATE states SET state = ? WHERE path = ?", (_encode_or_none(state), path))

        self._attempt(work, None)

    def store_health(self, path: str, size: int | None, *, is_damaged: bool) -> None:
        """Store the result of a complete check, for listings. Does nothing if the file is not cached with this size."""

        def work(database: sqlite3.Connection) -> None:
            with transaction(database):
                row = database.execute("SELECT size, summary FROM sessions WHERE path = ?", (path,)).fetchone()
                known = _decode_or_none(_decode_summary, row[1]) if row and size in (None, row[0]) else None
                if known is None or known.health in ("empty", "draft"):
                    return
                summary = msgspec.structs.replace(known, health="damaged" if is_damaged else "ok")
                database.execute("UPDATE sessions SET summary = ? WHERE path = ?", (_encode_or_none(summary), path))

        self._attempt(work, None)

    def lacks_exact(self, path: str, size: int | None) -> bool:
        """Whether a file is cached with this size but with estimated numbers."""

        def work(database: sqlite3.Connection) -> bool:
            row = database.execute("SELECT size, summary FROM sessions WHERE path = ?", (path,)).fetchone()
            known = _decode_or_none(_decode_summary, row[1]) if row and size in (None, row[0]) else None
            return known is not None and not known.exact

        return self._attempt(work, False)

    def find_stats_part(self, part: StatsPart, path: str, stamp: Stamp) -> bytes | None:
        """A part of the cached statistics of a file, if the stamp is still the same."""

        def work(database: sqlite3.Connection) -> bytes | None:
            row = database.execute(_PARTS[part], (path, *stamp)).fetchone()
            return unseal(row[0]) if row else None

        return self._attempt(work, None)

    def store_stats(self, path: str, stamp: Stamp, keys: bytes, facts: bytes, details: bytes | bytearray) -> None:
        """Store the statistics of a whole file, in parts that are read separately."""

        def work(database: sqlite3.Connection) -> None:
            values = (path, *stamp, seal(keys), seal(facts), seal(details))
            database.execute("INSERT OR REPLACE INTO facts VALUES(?, ?, ?, ?, ?, ?, ?)", values)

        self._attempt(work, None)

    def forget(self, paths: Iterable[str]) -> None:
        """Drop deleted files."""
        gone = [(path,) for path in paths]

        def work(database: sqlite3.Connection) -> None:
            with transaction(database):
                database.executemany("DELETE FROM sessions WHERE path = ?", gone)
                database.executemany("DELETE FROM states WHERE path = ?", gone)
                database.executemany("DELETE FROM facts WHERE path = ?", gone)

        self._attempt(work, None)

    # Recovery

    def _attempt(self, work: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Run a function, again in a rebuilt database if this one is damaged; return the default if it fails."""
        # Try twice, the second time in a rebuilt database. If the cache still fails, the command must not.
        with self._lock:
            for _ in range(2):
                try:
                    return work(self._database)
                except UnicodeEncodeError:
                    return default  # a path that is not valid Unicode
                except DATABASE_ERRORS as error:
                    if not is_damage(error, self.path):
                        return default
                    self._database.close()
                    self._database = self._recreate()
        return default

    def _recreate(self) -> sqlite3.Connection:
        """Replace a damaged database with an empty one."""
        return _rebuild(self.path)

    def _open(self) -> sqlite3.Connection:
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            return _connect(self.path)
        except DATABASE_ERRORS as error:
            return _rebuild(self.path) if is_damage(error, self.path) else _connect(_IN_MEMORY)
        except OSError:
            return _connect(_IN_MEMORY)


class HomeCache(Cache):
    """The cache of the sessions of a repository, which is stored in that repository."""

    def __init__(self, image: HomeImage) -> None:
        self._image = image
        super().__init__(_IN_MEMORY)

    def close(self) -> None:
        with self._lock, contextlib.suppress(*DATABASE_ERRORS):
            self._image.save(self._database)
        super().close()

    def _open(self) -> sqlite3.Connection:
        try:
            return _prepare(self._image.open())
        except DATABASE_ERRORS:
            return self._recreate()

    def _recreate(self) -> sqlite3.Connection:
        return _connect(_IN_MEMORY)


class SplitCache(Cache):
    """The cache of a library with a repository as its home: what is about its sessions is stored there."""

    def __init__(self, path: str, home: str, image: HomeImage) -> None:
        # Without super().__init__(), which would open a third database.
        self.path = path
        self._files = Cache(path)
        self._home = f"{home}/"
        self._image = image
        self._of_home: HomeCache | None = None

    def _part(self, path: str) -> Cache:
        """The cache of a session: that of the repository if it is there."""
        if not f"{path}/".startswith(self._home):
            return self._files
        if self._of_home is None:
            self._of_home = HomeCache(self._image)
        return self._of_home

    def close(self) -> None:
        if self._of_home is not None:
            self._of_home.close()
        self._files.close()

    def rows(self, folders: Iterable[str]) -> dict[str, Row]:
        return {path: row for folder in folders for path, row in self._part(folder).rows([folder]).items()}

    def summaries(self, folders: Mapping[str, str]) -> list[Summary]:
        return [
            summary for folder, agents in folders.items() for summary in self._part(folder).summaries({folder: agents})
        ]

    def find_stamp(self, ref: str) -> Stamp | None:
        return self._part(ref).find_stamp(ref)

    def find_state(self, path: str) -> State | None:
        return self._part(path).find_state(path)

    def store(self, reads: Iterable[tuple[SummaryRead, Stamp, str]]) -> None:
        parts: dict[Cache, list[tuple[SummaryRead, Stamp, str]]] = {}
        for read in reads:
            parts.setdefault(self._part(read[0].summary.ref), []).append(read)
        for part, some in parts.items():
            part.store(some)

    def store_others(self, files: Iterable[tuple[str, Stamp, str, Sequence[str] | None]]) -> None:
        self._files.store_others(files)

    def find_note(self, name: str) -> bytes | None:
        return self._files.find_note(name)

    def store_note(self, name: str, note: bytes) -> None:
        self._files.store_note(name, note)

    def store_exact(self, path: str, size: int | None, counted: Counted) -> None:
        self._part(path).store_exact(path, size, counted)

    def store_health(self, path: str, size: int | None, *, is_damaged: bool) -> None:
        self._part(path).store_health(path, size, is_damaged=is_damaged)

    def lacks_exact(self, path: str, size: int | None) -> bool:
        return self._part(path).lacks_exact(path, size)

    def find_stats_part(self, part: StatsPart, path: str, stamp: Stamp) -> bytes | None:
        return self._part(path).find_stats_part(part, path, stamp)

    def store_stats(self, path: str, stamp: Stamp, keys: bytes, facts: bytes, details: bytes | bytearray) -> None:
        self._part(path).store_stats(path, stamp, keys, facts, details)

    def forget(self, paths: Iterable[str]) -> None:
        parts: dict[Cache, list[str]] = {}
        for path in paths:
            parts.setdefault(self._part(path), []).append(path)
        for part, some in parts.items():
            part.forget(some)


def _connect(path: str) -> sqlite3.Connection:
    """Open the database and create missing tables."""
    if path != _IN_MEMORY:  # created here with our mode, which SQLite copies to its -wal and -shm files
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    # isolation_level=None: otherwise Python would begin transactions by itself, deferred ones (see `transaction`).
    return _prepare(sqlite_connection.connect(path, _BUSY_SECONDS, check_same_thread=False))


def _prepare(database: sqlite3.Connection) -> sqlite3.Connection:
    try:
        database.execute("PRAGMA page_size = 16384")  # of a new file: four times fewer reads than with small pages
        database.execute("PRAGMA journal_mode = WAL")
        # A power failure may lose the last transactions, which a cache can afford, but never damages the file.
        database.execute("PRAGMA synchronous = NORMAL")
        if _version(database) != VERSION:
            _make_tables(database)
    except DATABASE_ERRORS:
        database.close()
        raise
    return database


def _version(database: sqlite3.Connection) -> int | None:
    try:
        row = database.execute("SELECT version FROM versions WHERE part = ?", (_PART,)).fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return None  # no such table yet
    return row[0] if row else None


def _make_tables(database: sqlite3.Connection, *, recreate: bool = False) -> None:
    with transaction(database):
        database.execute("CREATE TABLE IF NOT EXISTS versions(part TEXT PRIMARY KEY, version INTEGER)")
        if _version(database) == VERSION and not recreate:
            return  # another process has created them
        for name, columns in _TABLES.items():
            database.execute(f"DROP TABLE IF EXISTS {name}")
            database.execute(f"CREATE TABLE {name}({columns}) WITHOUT ROWID")
        database.execute("INSERT OR REPLACE INTO versions VALUES(?, ?)", (_PART, VERSION))


@contextlib.contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """A transaction that is rolled back on any exception."""
    # IMMEDIATE: a transaction that reads first and then writes fails at once if another process has written in between.
    # SQLite does not wait for its timeout then, because what was read is outdated.
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(*DATABASE_ERRORS):
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _rebuild(path: str) -> sqlite3.Connection:
    """Move a damaged database away and create a new one. One process does it while the others wait.

    If the structure of the file is sound, only the tables are recreated, because their content is unexpected.
    """
    try:
        # The lock is a file of its own, because the database is renamed, and waits while another process rebuilds.
        with file_lock(f"{path}.lock", timeout=None):
            with contextlib.suppress(*DATABASE_ERRORS):
                database = _connect(path)
                try:
                    if database.execute("PRAGMA quick_check").fetchone() == ("ok",):
                        _make_tables(database, recreate=True)
                        return database
                except DATABASE_ERRORS:
                    database.close()
                    raise
                database.close()
            move_away(path)
            return _connect(path)
    except (OSError, StoreError, *DATABASE_ERRORS):
        return _connect(_IN_MEMORY)


def _bounds(folder: str) -> tuple[str, str]:
    """The references below a folder are between these two: "0" is the character after "/"."""
    return f"{folder.rstrip('/')}/", f"{folder.rstrip('/')}0"


def _decode_state(raw: bytes) -> State:
    from sessiontree.library.summary_reader import State

    return msgspec.msgpack.decode(raw, type=State)


def _encode_or_none(value: Summary | State | None) -> bytes | None:
    """Encode a value with its checksum; None if it has invalid Unicode or a number out of range."""
    try:
        return None if value is None else seal(_encode(value))
    except (UnicodeEncodeError, OverflowError):
        return None


def _decode_or_none(decode: Callable[[bytes], T], raw: object) -> T | None:
    """Decode a cached value; None if it is damaged."""
    value = unseal(raw)
    try:
        return None if value is None else decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
