"""Many sessions in one PostgreSQL database, with their blobs and documents."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from psycopg import Connection, sql
from psycopg_pool import ConnectionPool

from sessiontree.core.ids import is_session_id
from sessiontree.errors import DamagedError, NotFoundError, StoreError, UsageError, WriteError
from sessiontree.paths import check_session_id, find_by_id
from sessiontree.stores.blobs import blob_name, check_blob_name
from sessiontree.stores.contract import (
    AccessToken,
    AuditRecord,
    RepositoryStatus,
    Scope,
    SessionRef,
    SessionStat,
    TenantStatus,
    check_document_name,
)
from sessiontree.stores.postgres.archive import (
    ARCHIVED_CHUNK,
    READ_ARCHIVED,
    archive_session,
    delete_session,
    list_archived,
    remove_item,
    restore_session,
)
from sessiontree.stores.postgres.audit import drop_months, read_audit, set_audit
from sessiontree.stores.postgres.connections import shared_connections, without_password
from sessiontree.stores.postgres.maintenance import find_damage, join_parts, read_status, remove_backups
from sessiontree.stores.postgres.schema import check_version, read_version, upgrade
from sessiontree.stores.postgres.store import CHANNEL, PostgresStore, cause_of
from sessiontree.stores.postgres.tenants import (
    Quota,
    add_tenant,
    begin_as,
    check_tenant,
    find_tenant,
    list_tenants,
    remove_tenant,
    with_tenant,
    without_tenant,
)
from sessiontree.stores.postgres.tokens import add_token, check_token, find_token, list_tokens, revoke_token

if TYPE_CHECKING:
    from sessiontree.stores.object_blobs import ObjectBlobs

_WATCHED = "1 minute"
"""Writers notify for this long after a follower has asked for it; followers ask again in time."""
_SECONDS_BETWEEN_POLLS = 2.0
"""Followers also poll: a notification may get lost in a pooler or a failover."""


class PostgresRepository:
    """The sessions of one database. Threads share its pool of connections."""

    is_volatile = False

    def __init__(self, address: str) -> None:
        self.home = without_password(address)
        self.tenant = find_tenant(address)
        """The tenant whose rows it reads and writes; empty for those that all ordinary users share."""
        self._quota = Quota(self.home, self.tenant)
        self.channel = f"{CHANNEL}_{self.tenant}" if self.tenant else CHANNEL
        self._connections = shared_connections(without_tenant(address))
        self._is_checked = False
        """Whether the database has the tables of this version, and the tenant."""
        self.blobs = PostgresBlobs(self)
        self.documents = PostgresDocuments(self)
        self._store_type = find_store_type(os.environ)

    # Connections

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection of the pool, for single statements."""
        with self._pool().connection() as connection, self._as_tenant(connection):
            yield connection

    def execute(self, statement: LiteralString, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The first row of a single statement. Unlike `connection`, without the steps of four context managers.

        They take longer than everything else that an append does in this process.
        """
        if self.tenant:
            with self.connection() as connection:
                return connection.execute(statement, values, prepare=True).fetchone()
        pool = self._pool()
        connection = pool.getconn()
        try:
            return connection.execute(statement, values, prepare=True).fetchone()
        finally:
            pool.putconn(connection)  # closes one that is broken, and rolls back

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection in a transaction, which is committed at the end of the block."""
        with self.connection() as connection:
            if self.tenant:  # it is in one already
                yield connection
                return
            with connection.transaction():
                yield connection

    @contextlib.contextmanager
    def _as_tenant(self, connection: Connection) -> Iterator[None]:
        """Take the role of the tenant for one transaction: a connection is shared, and so may be its pooler's."""
        if not self.tenant:
            yield
            return
        connection.execute(begin_as(self.tenant))  # both statements in one round trip
        try:
            yield
        except BaseException:
            if not connection.closed:
                connection.rollback()
            raise
        connection.commit()

    def read_row(
        self, statement: LiteralString, values: Sequence[Any] | Mapping[str, Any], *, binary: bool = False
    ) -> tuple[Any, ...] | None:
        """The first row of a query. A connection that broke since its last use is replaced once."""
        try:
            return self._read_row(statement, values, binary)
        except psycopg.OperationalError:
            self._connections.drop_broken()
        except psycopg.Error as error:
            raise self.unreachable(error) from error
        try:
            return self._read_row(statement, values, binary)
        except psycopg.Error as error:
            raise self.unreachable(error) from error

    def _read_row(
        self, statement: LiteralString, values: Sequence[Any] | Mapping[str, Any], binary: bool
    ) -> tuple[Any, ...] | None:
        with self.connection() as connection:
            return connection.cursor(binary=binary).execute(statement, values, prepare=True).fetchone()

    def reconnect(self) -> None:
        """Start with new connections after a failure; an error at once if the server cannot be reached.

        A pool waits longer after each failed attempt, so a server that is back would be noticed only seconds later.
        """
        with self.connect():
            self.close()

    def connect(self) -> Connection:
        """A connection outside of the pool."""
        try:
            return self._connections.connect()
        except psycopg.Error as error:
            raise self.unreachable(error) from error

    def unreachable(self, error: psycopg.Error) -> StoreError:
        return StoreError(f"{self.home}: the database cannot be used: {cause_of(error)}")

    def upgrade(self) -> list[int]:
        """Create or upgrade the tables; returns the numbers of the migrations that were run."""
        with self.connect() as connection:
            return upgrade(connection, self.home)

    # Tenants

    def add_tenant(self, name: str, *, quota: int | None = None) -> str:
        with self._administering("add a tenant") as connection:
            add_tenant(connection, self.home, name, quota)
        return with_tenant(self.home, name)

    def remove_tenant(self, name: str) -> None:
        with self._administering("remove a tenant") as connection:
            remove_tenant(connection, self.home, name)

    def tenants(self) -> list[TenantStatus]:
        with self._administering("list tenants") as connection:
            return list_tenants(connection)

    def home_of(self, tenant: str) -> str:
        return with_tenant(self.home, tenant)

    def add_token(self, tenant: str, *, scope: Scope, note: str = "") -> str:
        with self._administering("add a token") as connection:
            return add_token(connection, self.home, tenant, scope, note)

    def tokens(self) -> list[AccessToken]:
        with self._administering("list tokens") as connection:
            return list_tokens(connection)

    def revoke_token(self, id: str) -> None:
        with self._administering("revoke a token") as connection:
            revoke_token(connection, self.home, id)

    def check_token(self, text: str) -> AccessToken | None:
        with self._administering("check a token") as connection:
            return check_token(connection, text)

    def find_token(self, id: str) -> AccessToken | None:
        with self._administering("check a token") as connection:
            return find_token(connection, id)

    def set_audit(self, *, enabled: bool) -> None:
        with self._administering("change the log of writes") as connection:
            set_audit(connection, enabled=enabled)

    def audit(self, *, limit: int) -> list[AuditRecord]:
        with self._administering("read the log of writes") as connection:
            return read_audit(connection, limit=limit)

    def set_blob_store(self, url: str) -> None:
        """Store new blobs of all users in an object store; with an empty URL, in the database again."""
        with self._administering("choose where blobs are") as connection:
            if url:
                from sessiontree.stores.object_blobs import check_object_url

                connection.execute(
                    "INSERT INTO sessiontree.setting VALUES ('blobs', %s)"
                    " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    [check_object_url(url)],
                )
            else:
                connection.execute("DELETE FROM sessiontree.setting WHERE name = 'blobs'")
        self.blobs.forget()

    @contextlib.contextmanager
    def _administering(self, action: str) -> Iterator[Connection]:
        if self.tenant:
            raise UsageError(f"{self.home}: cannot {action} as a tenant; use the address without it")
        with self._reading() as connection:
            yield connection

    def check_quota(self) -> None:
        """`QuotaError` if the tenant has stored as much as it may."""
        if self._quota.is_due():
            with self._reading() as connection:
                self._quota.read(connection)
        self._quota.check()

    # Maintenance

    def status(self) -> RepositoryStatus:
        with self._reading() as connection:
            return read_status(connection, read_version(connection))

    def verify(self) -> Iterator[str]:
        with self._reading() as connection:
            yield from find_damage(connection)

    def vacuum(self, *, days: float, audit_days: float | None = None) -> tuple[int, int]:
        try:
            with self.connection() as connection:
                if audit_days is not None:
                    drop_months(connection, days=audit_days)
                rows = connection.execute("SELECT tenant, session FROM sessiontree.session ORDER BY 1, 2").fetchall()
                joined = sum(join_parts(connection, tenant, session) for tenant, session in rows)
                return joined, remove_backups(connection, days=days)
        except psycopg.Error as error:
            raise WriteError(f"{self.home}: cannot be cleaned up: {cause_of(error)}; run it again") from error

    def _pool(self) -> ConnectionPool[Connection]:
        if not self._is_checked:
            # The first connection is made directly: its error is immediate and clear, a pool only times out.
            with self.connect() as connection:
                check_version(connection, self.home)
                if self.tenant:
                    check_tenant(connection, self.home, self.tenant)
            self._is_checked = True
        return self._connections.pool

    def close(self) -> None:
        """Close the connections, those of other tenants included. A repository connects again when it is used."""
        self._is_checked = False
        self._connections.close()

    # Sessions

    def new(self, id: str, *, timestamp: str, cwd: str, near: SessionRef | None = None) -> PostgresStore:  # noqa: ARG002
        return self._store_type(self, SessionRef(check_session_id(id), self.home))

    def open(self, ref: SessionRef) -> PostgresStore:
        store = self._store_type(self, SessionRef(ref.name, self.home))
        store.opened()
        return store

    def find(self, wanted: str) -> SessionRef:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT session FROM sessiontree.session WHERE tenant = %s AND starts_with(session, %s)"
                " ORDER BY session LIMIT 1000",
                [self.tenant, wanted.replace("\x00", "")],
            ).fetchall()
        known = [(id, id) for (id,) in rows if is_session_id(id)]
        return SessionRef(find_by_id(wanted, known, self.home), self.home)

    def iter_stats(self) -> Iterator[SessionStat]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT session, size, (extract(epoch FROM changed) * 1000000)::bigint, generation"
                " FROM sessiontree.session WHERE tenant = %s ORDER BY session",
                [self.tenant],
            ).fetchall()
        for id, size, microseconds, generation in rows:
            # Another program wrote a row with any other id. In a reference it could name another server.
            if is_session_id(id):
                yield SessionStat(SessionRef(id, self.home), id, size, microseconds * 1000, generation)

    def stat(self, ref: SessionRef) -> SessionStat | None:
        row = self.read_row(
            "SELECT size, (extract(epoch FROM changed) * 1000000)::bigint, generation FROM sessiontree.session"
            " WHERE tenant = %s AND session = %s",
            [self.tenant, ref.name],
        )
        return None if row is None else SessionStat(ref, ref.name, row[0], row[1] * 1000, row[2])

    def delete(self, ref: SessionRef) -> None:
        try:
            with self.transaction() as connection:
                found = delete_session(connection, self.tenant, ref.name)
                connection.execute("SELECT pg_notify(%s, %s)", [self.channel, ref.name])
        except psycopg.Error as error:
            raise WriteError(f"{ref}: cannot be deleted: {cause_of(error)}") from error
        if not found:
            raise NotFoundError(f"{ref}: no such session")

    # The archive

    def archive(self, item: str, record: bytes, stat: SessionStat, *, remove: bool) -> None:
        with self._archiving() as connection:
            archive_session(connection, self.tenant, item, record, stat, remove=remove)
            if remove:
                connection.execute("SELECT pg_notify(%s, %s)", [self.channel, stat.ref.name])

    def archived(self) -> list[tuple[str, bytes]]:
        with self._reading() as connection:
            return list_archived(connection, self.tenant)

    def read_archived(self, item: str) -> Iterator[bytes]:
        size = self._read_archived_size(item)
        offset = 0
        while offset < size:
            row = self.read_row(READ_ARCHIVED, [self.tenant, item, offset, offset + ARCHIVED_CHUNK], binary=True)
            if row is None or row[0] is None:
                raise DamagedError(f"{self.home}: bytes of the archive item {item} are missing; run `store verify`")
            yield bytes(row[0])
            offset += len(row[0])

    def _read_archived_size(self, item: str) -> int:
        row = self.read_row(
            "SELECT size FROM sessiontree_archive.item WHERE tenant = %s AND item = %s", [self.tenant, item]
        )
        if row is None:
            raise NotFoundError(f"{self.home}: the archive has no item {item[:80]!r}")
        return int(row[0])

    def restore_archived(self, item: str, ref: SessionRef, *, remove: bool) -> None:
        self._read_archived_size(item)
        with self._archiving() as connection:
            restore_session(connection, self.tenant, item, ref, remove=remove)

    def remove_archived(self, item: str) -> None:
        self._read_archived_size(item)
        with self._archiving() as connection:
            remove_item(connection, self.tenant, item)

    @contextlib.contextmanager
    def _archiving(self) -> Iterator[Connection]:
        try:
            with self.transaction() as connection:
                yield connection
        except psycopg.Error as error:
            raise WriteError(f"{self.home}: the archive cannot be changed: {cause_of(error)}") from error

    def watch(self, ref: SessionRef, timeout: float | None = None) -> Iterator[int]:
        """Give the size of a session now and after each change; ends with it, or `timeout` seconds after a change."""
        seen: tuple[int, int] | None = None
        with self.connect() as listener:
            listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)))
            since = time.monotonic()
            while True:
                # Asked for before the size is read: a change after that is notified, one before it is seen.
                with self._as_tenant(listener):
                    row = listener.execute(
                        "UPDATE sessiontree.session SET watched_until = now() + %s::interval"
                        " WHERE tenant = %s AND session = %s RETURNING generation, size",
                        [_WATCHED, self.tenant, ref.name],
                    ).fetchone()
                if row is None:
                    return
                if row != seen:
                    seen, since = row, time.monotonic()
                    yield row[1]
                    continue
                if timeout is not None and time.monotonic() - since > timeout:
                    return
                for _ in listener.notifies(timeout=_SECONDS_BETWEEN_POLLS, stop_after=1):
                    pass

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self.connection() as connection:
                yield connection
        except psycopg.Error as error:
            raise self.unreachable(error) from error


class PostgresBlobs:
    """Blobs in a table, or in the object store that the database names. Older ones stay where they are."""

    def __init__(self, repository: PostgresRepository) -> None:
        self._repository = repository
        self._objects: ObjectBlobs | None = None
        self._is_known = False

    def put(self, data: bytes) -> str:
        name = blob_name(data)
        self._repository.check_quota()
        objects = self._find_objects()
        if objects is not None:
            return objects.put(data)
        try:
            with self._repository.connection() as connection:
                connection.execute(
                    "INSERT INTO sessiontree.blob (tenant, name, data) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                    [self._repository.tenant, name, data],
                    prepare=True,
                )
        except psycopg.Error as error:
            raise WriteError(f"{self._repository.home}: cannot store a blob: {cause_of(error)}") from error
        return name

    def _find_objects(self) -> ObjectBlobs | None:
        if not self._is_known:
            row = self._repository.read_row("SELECT value FROM sessiontree.setting WHERE name = 'blobs'", [])
            if row is not None:
                from sessiontree.stores.object_blobs import ObjectBlobs

                self._objects = ObjectBlobs(row[0], self._repository.tenant)
            self._is_known = True
        return self._objects

    def forget(self) -> None:
        """Ask the database again where its blobs are."""
        self._is_known, self._objects = False, None

    def get(self, name: str) -> bytes | None:
        objects = self._find_objects()
        found = None if objects is None else objects.get(name)
        return self._get_row(name) if found is None else found

    def _get_row(self, name: str) -> bytes | None:
        row = self._repository.read_row(
            "SELECT data FROM sessiontree.blob WHERE tenant = %s AND name = %s",
            [self._repository.tenant, check_blob_name(name)],
            binary=True,
        )
        if row is None:
            return None
        data = bytes(row[0])
        if hashlib.sha256(data).hexdigest() != name:
            raise DamagedError(f"{self._repository.home}: the content of the blob {name} has changed")
        return data


class PostgresDocuments:
    """Documents in a table."""

    def __init__(self, repository: PostgresRepository) -> None:
        self._repository = repository

    def location(self, name: str) -> str:
        return f"{self._repository.home}/{check_document_name(name)}"

    def read(self, name: str) -> bytes | None:
        row = self._repository.read_row(
            "SELECT data FROM sessiontree.document WHERE tenant = %s AND name = %s",
            [self._repository.tenant, check_document_name(name)],
            binary=True,
        )
        return None if row is None or row[0] is None else bytes(row[0])

    def update(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        key = (self._repository.tenant, check_document_name(name))
        try:
            with self._repository.transaction() as connection:
                # The row is there before it is locked: otherwise two first updates would not wait for each other.
                connection.execute(
                    "INSERT INTO sessiontree.document (tenant, name) VALUES (%s, %s) ON CONFLICT DO NOTHING", key
                )
                row = (
                    connection.cursor(binary=True)
                    .execute("SELECT data FROM sessiontree.document WHERE tenant = %s AND name = %s FOR UPDATE", key)
                    .fetchone()
                )
                assert row is not None
                old = None if row[0] is None else bytes(row[0])
                connection.execute(
                    "UPDATE sessiontree.document SET data = %s WHERE tenant = %s AND name = %s", [change(old), *key]
                )
        except psycopg.Error as error:
            raise WriteError(f"{self.location(name)}: cannot be written: {cause_of(error)}") from error


def find_store_type(environment: Mapping[str, str]) -> type[PostgresStore]:
    """The store without telemetry or, if the environment asks for it, the one with it."""
    if environment.get("SESSIONTREE_TELEMETRY", "") in ("", "0"):
        return PostgresStore
    try:
        from sessiontree.stores.postgres.telemetry import ObservedStore
    except ModuleNotFoundError:
        raise UsageError("SESSIONTREE_TELEMETRY needs a package: pip install 'sessiontree[telemetry]'") from None
    return ObservedStore


_repositories: dict[str, PostgresRepository] = {}
_repositories_lock = threading.Lock()


def find_repository(address: str) -> PostgresRepository:
    """The repository at an address: the same one, with one pool, for all of the process.

    An address without a password finds the repository that was opened with one.
    """
    home = without_password(address)
    with _repositories_lock:
        known = _repositories.get(home)
        if known is None:
            known = _repositories[home] = PostgresRepository(address)
        return known
