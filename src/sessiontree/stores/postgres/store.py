"""The bytes of one session in PostgreSQL: one row for each append, found by its offset.

An append is one statement, and so one round trip and one commit. It raises the size in the session's row if generation,
size and fence are the expected ones, and inserts its bytes only then. Two writers wait for each other at that row for
the time of a commit. `replace` writes a new generation; the old one stays as the backup, and open readers keep it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple

import psycopg
from psycopg import Connection

from sessiontree.errors import ConflictError, ExistsError, NotFoundError, ReplacedError, WriteError
from sessiontree.stores.contract import SessionRef, StoredIndex

if TYPE_CHECKING:
    from sessiontree.stores.postgres.repository import PostgresRepository

_PART_SIZE = 1 << 20
"""Long contents are stored in parts of at most this size."""

_PARTS_TOGETHER = 16
"""Parts that are sent together; at most so many are in memory."""

CHANNEL = "sessiontree"
"""The channel of notifications, of each tenant with its name. The payload is the id of a session that was appended to
while it was being watched.
"""

_READ_AHEAD = 4 << 20
"""Read-ahead for a sequential reader: each read is a round trip."""

_STATE: LiteralString = """
SELECT generation, size, fence, revision FROM sessiontree.session WHERE tenant = %s AND session = %s
"""
_LOCK: LiteralString = f"{_STATE} FOR UPDATE"

# A notification takes a lock shared by all commits of the database, so only writes to watched sessions send one.
_APPEND: LiteralString = """
WITH appended AS (
    UPDATE sessiontree.session SET size = size + %(length)s, changed = clock_timestamp()
    WHERE tenant = %(tenant)s AND session = %(session)s AND generation = %(generation)s AND size = %(start)s
        AND fence = %(fence)s
    RETURNING watched_until
), stored AS (
    INSERT INTO sessiontree.part (tenant, session, generation, start, data)
    SELECT %(tenant)s, %(session)s, %(generation)s, %(start)s, %(data)s FROM appended
    WHERE %(length)s > 0
)
SELECT CASE WHEN watched_until > clock_timestamp() THEN pg_notify(%(channel)s, %(session)s) END FROM appended
"""

# The server joins the rows: as one value they cost the reader a tenth of what single rows do.
_READ: LiteralString = """
SELECT min(start), string_agg(data, ''::bytea ORDER BY start) FROM sessiontree.part
WHERE tenant = %(tenant)s AND session = %(session)s AND generation = %(generation)s AND start < %(end)s AND start >= (
    SELECT coalesce(max(start), 0) FROM sessiontree.part
    WHERE tenant = %(tenant)s AND session = %(session)s AND generation = %(generation)s AND start <= %(offset)s
)
"""


class State(NamedTuple):
    """The state in a session's row."""

    generation: int
    size: int
    fence: int
    revision: int


class PostgresStore:
    """The bytes of one session."""

    def __init__(self, repository: PostgresRepository, ref: SessionRef) -> None:
        self.ref = ref
        self._repository = repository
        self._session = ref.name
        self._key = (repository.tenant, ref.name)
        self._read_end = -1
        """End of the last read."""
        self._ahead = (0, b"")
        """Bytes that were read ahead, and their offset."""
        self._indexed: State | None = None
        """The state when the index was asked for."""
        self._generation: int | None = None
        """The generation this store reads and writes; None before the first read."""
        self._fence = 0
        self._failure: WriteError | None = None
        self._held: Connection | None = None
        """The connection with the lock on the session's row, inside of `exclusive`."""

    @property
    def location(self) -> str:
        return str(self.ref)

    # Reading

    def opened(self) -> None:
        """Read the state of a session being opened; `NotFoundError` if it does not exist."""
        self.size()

    def exists(self) -> bool:
        return self._read_state() is not None

    def size(self) -> int:
        state = self._read_state()
        if state is None:
            raise self._missing()
        if self._generation is None:
            self._generation = state.generation
        if state.generation == self._generation:
            self._fence = state.fence
            return state.size
        return self._size_of_backup(self._generation)

    def readinto(self, offset: int, buffer: memoryview) -> int:
        if self._generation is None:
            self.size()
        start, ahead = self._ahead
        if not start <= offset < start + len(ahead) or self._held is not None:
            # The buffer is freed before the next one is read, and after the last one.
            start, ahead = self._ahead = (0, b"")
            continues = offset == self._read_end and self._held is None
            start, ahead = self._read_part(offset, max(len(buffer), _READ_AHEAD if continues else 0))
            if continues and len(ahead) > offset - start + len(buffer):
                self._ahead = start, ahead
        part = memoryview(ahead)[offset - start :][: len(buffer)]
        buffer[: len(part)] = part
        self._read_end = offset + len(part)
        if start + len(ahead) <= self._read_end:
            self._ahead = (0, b"")
        return len(part)

    def _read_part(self, offset: int, size: int) -> tuple[int, bytes]:
        """Bytes from an offset on, and some before it: the offset of the first one, and all of them."""
        values = {
            "tenant": self._repository.tenant,
            "session": self._session,
            "generation": self._generation,
            "offset": offset,
            "end": offset + size,
        }
        row = self._read_row(_READ, values, binary=True)
        return (offset, b"") if row is None or row[0] is None else (row[0], row[1])

    def _read_state(self) -> State | None:
        row = self._read_row(_STATE, self._key)
        return None if row is None else State(*row)

    # The index beside the bytes

    def read_index(self, name: str) -> StoredIndex | None:
        row = self._read_row(
            """
            SELECT session.generation, session.size, session.fence, session.revision, found.size, found.data
            FROM sessiontree.session LEFT JOIN sessiontree.session_index AS found ON
                found.tenant = session.tenant AND found.session = session.session AND found.name = %(name)s
                AND found.generation = session.generation AND found.revision = session.revision
                AND found.size <= session.size
            WHERE session.tenant = %(tenant)s AND session.session = %(session)s
            """,
            {"tenant": self._repository.tenant, "session": self._session, "name": name},
            binary=True,
        )
        self._indexed = None if row is None else State(*row[:4])
        if row is None or row[0] != self._generation or row[5] is None:
            return None
        return StoredIndex(bytes(row[5]), row[4])

    def write_index(self, name: str, pieces: Iterable[bytes], size: int) -> None:
        state = self._indexed
        if state is None or state.generation != self._generation:
            return
        data = b"".join(pieces)
        try:
            with self._connection() as connection:
                connection.execute(
                    """
                    INSERT INTO sessiontree.session_index (tenant, session, name, generation, revision, size, data)
                    SELECT tenant, session, %(name)s, generation, revision, %(size)s, %(data)s FROM sessiontree.session
                    WHERE tenant = %(tenant)s AND session = %(session)s AND generation = %(generation)s
                        AND revision = %(revision)s
                    ON CONFLICT (tenant, session, name) DO UPDATE SET generation = excluded.generation,
                        revision = excluded.revision, size = excluded.size, data = excluded.data
                    """,
                    {
                        "tenant": self._repository.tenant,
                        "session": self._session,
                        "name": name,
                        "size": size,
                        "data": data,
                        "generation": state.generation,
                        "revision": state.revision,
                    },
                )
        except psycopg.Error:  # a read-only user, a server that is shutting down: the next open reads everything again
            return

    def _size_of_backup(self, generation: int) -> int:
        row = self._read_row(
            "SELECT coalesce(max(start + length(data)), 0) FROM sessiontree.part"
            " WHERE tenant = %s AND session = %s AND generation = %s",
            [*self._key, generation],
        )
        assert row is not None
        return int(row[0])

    def _read_row(
        self, statement: LiteralString, values: Sequence[Any] | Mapping[str, Any], *, binary: bool = False
    ) -> tuple[Any, ...] | None:
        if self._held is not None:
            return self._held.cursor(binary=binary).execute(statement, values).fetchone()
        return self._repository.read_row(statement, values, binary=binary)

    # Writing

    def create(self, data: Iterable[bytes]) -> None:
        self._repository.check_quota()
        try:
            with self._repository.transaction() as connection:
                connection.execute(
                    "INSERT INTO sessiontree.session (tenant, session, size) VALUES (%s, %s, 0)", self._key
                )
                size = self._store_parts(connection, 0, data)
                connection.execute(
                    "UPDATE sessiontree.session SET size = %s WHERE tenant = %s AND session = %s", [size, *self._key]
                )
        except psycopg.errors.UniqueViolation:
            raise ExistsError(f"{self.location}: the session exists") from None
        except psycopg.Error as error:
            raise self._fail("create", error) from error
        self._generation = 0

    def append(self, data: bytes, *, expected_size: int) -> int | None:
        self._check_failure()
        if self._repository.tenant and self._held is None:
            self._repository.check_quota()
        if self._generation is None:
            self.size()
        values = {
            "tenant": self._repository.tenant,
            "channel": self._repository.channel,
            "session": self._session,
            "generation": self._generation,
            "start": expected_size,
            "fence": self._fence,
            "length": len(data),
            "data": data,
        }
        try:
            if self._held is None:
                row = self._repository.execute(_APPEND, values)
            else:
                row = self._held.execute(_APPEND, values, prepare=True).fetchone()
            if row is not None:
                return expected_size + len(data)
            with self._connection() as connection:
                state = connection.execute(_STATE, self._key, prepare=True).fetchone()
        except psycopg.Error as error:
            raise self._fail("append", error) from error
        self._adopt(state)
        return None

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[int]:
        self._check_failure()
        if self._held is not None:
            state = self._held.execute(_STATE, self._key).fetchone()
            assert state is not None, "the row is locked"
            yield State(*state).size
            return
        raised: BaseException | None = None
        try:
            with self._repository.transaction() as connection:
                state = self._adopt(connection.execute(_LOCK, self._key).fetchone())
                self._held = connection
                try:
                    yield state.size
                except BaseException as error:  # noqa: BLE001 - raised again after the commit
                    # What was appended in the block before the exception stays: its append has returned.
                    raised = error
                finally:
                    self._held = None
        except psycopg.Error as error:
            if raised is None:
                raise self._fail("write", error) from error
        if isinstance(raised, psycopg.Error):  # a read inside of the block
            raise self._fail("write", raised) from raised
        if raised is not None:
            raise raised

    def overwrite(self, offset: int, data: bytes, expected: bytes) -> None:
        assert self._held is not None, "overwrite is called inside of exclusive"
        buffer = bytearray(len(expected))
        with memoryview(buffer) as view:
            got = self.readinto(offset, view)
        if len(data) != len(expected) or bytes(buffer[:got]) != expected:
            raise ConflictError(f"{self.location} byte {offset}: the bytes there have changed; nothing was written")
        try:
            self._held.execute(
                """
                UPDATE sessiontree.part SET data = overlay(
                    data PLACING substring(%(new)s::bytea FROM greatest(start - %(offset)s, 0)::int + 1
                        FOR (least(start + length(data), %(end)s) - greatest(start, %(offset)s))::int)
                    FROM (greatest(%(offset)s - start, 0) + 1)::int
                )
                WHERE tenant = %(tenant)s AND session = %(session)s AND generation = %(generation)s
                    AND start < %(end)s AND start + length(data) > %(offset)s
                """,
                {
                    "tenant": self._repository.tenant,
                    "new": data,
                    "offset": offset,
                    "end": offset + len(data),
                    "session": self._session,
                    "generation": self._generation,
                },
            )
            self._held.execute(
                "UPDATE sessiontree.session SET revision = revision + 1 WHERE tenant = %s AND session = %s", self._key
            )
        except psycopg.Error as error:
            raise self._fail("overwrite", error) from error
        self._ahead = (0, b"")

    def replace(self, data: Iterable[bytes], *, expected_size: int) -> str:
        with self.exclusive() as size:
            if size != expected_size:
                raise ConflictError(f"{self.location}: changed during the rewrite; nothing was written")
            assert self._held is not None
            assert self._generation is not None
            old, new = self._generation, self._generation + 1
            try:
                with self._held.transaction():  # a savepoint: if reading the new bytes fails, none of them is kept
                    written = self._store_parts(self._held, new, data)
                    self._held.execute(
                        "UPDATE sessiontree.session SET generation = %s, size = %s, changed = clock_timestamp()"
                        " WHERE tenant = %s AND session = %s",
                        [new, written, *self._key],
                    )
            except psycopg.Error as error:
                raise self._fail("replace", error) from error
        self._generation = new
        self._ahead = (0, b"")
        return f"{self.location} generation {old}"

    def start_sync(self) -> None:
        """An append returns after its commit, so there is nothing left to start."""

    def sync(self) -> None:
        """An append returns after its commit, which is durable as the server is configured."""

    def resolve(self) -> None:
        # A statement of a broken connection may still be on its way to the row. It compares the fence, so after this
        # commit it has been carried out or never will be.
        if self._failure is None:
            return
        self._repository.reconnect()
        try:
            with self._repository.transaction() as connection:
                row = connection.execute(
                    "UPDATE sessiontree.session SET fence = fence + 1 WHERE tenant = %s AND session = %s"
                    " RETURNING generation, size, fence, revision",
                    self._key,
                ).fetchone()
        except psycopg.Error as error:
            raise WriteError(f"{self.location}: the server cannot be reached: {cause_of(error)}; try again") from error
        self._failure = None
        if row is not None:
            self._fence = State(*row).fence

    def close(self) -> None:
        """Connections belong to the repository."""

    def _store_parts(self, connection: Connection, generation: int, data: Iterable[bytes]) -> int:
        """Store contents from offset 0 on, and return their size."""
        start = 0
        waiting: list[tuple[str, str, int, int, bytes]] = []

        def store() -> None:
            with connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO sessiontree.part (tenant, session, generation, start, data)"
                    " VALUES (%s, %s, %s, %s, %s)",
                    waiting,
                )
            waiting.clear()

        # Not passed on as an iterator: the contents may come from reads with the same connection, which would wait.
        for content in data:
            for at in range(0, len(content), _PART_SIZE):
                part = content[at : at + _PART_SIZE]
                waiting.append((*self._key, generation, start, part))
                start += len(part)
                if len(waiting) >= _PARTS_TOGETHER:
                    store()
        if waiting:
            store()
        return start

    # Connections and failures

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection]:
        if self._held is not None:
            yield self._held
            return
        with self._repository.connection() as connection:
            yield connection

    def _adopt(self, row: tuple[int, int, int, int] | None) -> State:
        """Take over the fence of a row; `ReplacedError` if the session was deleted or replaced."""
        if row is None:
            raise ReplacedError(f"{self.location}: was deleted while it was open; nothing was written")
        state = State(*row)
        if self._generation is None:
            self._generation = state.generation
        if state.generation != self._generation:
            raise ReplacedError(f"{self.location}: was replaced while it was open; nothing was written. Open it again.")
        self._fence = state.fence
        return state

    def _missing(self) -> NotFoundError:
        return NotFoundError(f"{self.location}: no such session")

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise WriteError(f"{self._failure}") from self._failure

    def _fail(self, action: str, error: psycopg.Error) -> WriteError:
        """The error of a failed write, remembered: no later write may succeed and hide the missing lines."""
        self._failure = WriteError(
            f"{self.location}: cannot {action}: {cause_of(error)}; whether it was stored is unknown"
        )
        return self._failure


def cause_of(error: psycopg.Error) -> str:
    return " ".join(str(error).split()) or type(error).__name__
