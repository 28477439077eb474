"""Tenants of a database: each sees only its own sessions, blobs and documents.

A tenant is a role of the server. Statements name the tenant, and row-level security holds even for a statement that
does not: the role is set for each transaction, so connections and poolers can be shared. `?tenant=NAME` in an address
chooses it.
"""

from __future__ import annotations

import re
import time
from urllib.parse import unquote

import psycopg
from psycopg import Connection, sql

from sessiontree.errors import ExistsError, NotFoundError, StoreError, UsageError
from sessiontree.stores.contract import TenantStatus

ROLE_PREFIX = "sessiontree_tenant_"
"""As in the function `current_tenant` of the schema."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_OPTION = re.compile(r"([?&])tenant=([^&]*)(&|$)")
SECONDS_BETWEEN_CHECKS = 10.0
"""How often a writer compares what is stored with its quota. A tenant may store more by what it writes in this time."""
_TABLES = (
    *(("sessiontree", table) for table in ("session", "part", "blob", "document", "session_index")),
    ("sessiontree_archive", "item"),
    ("sessiontree_archive", "part"),
)
_SCHEMAS = ("sessiontree", "sessiontree_archive")


def check_tenant_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name[:80]!r} is not a tenant name: use at most 40 of a-z, 0-9, '-' and '_'")
    return name


def find_tenant(address: str) -> str:
    """The tenant that an address names; empty without one."""
    found = _OPTION.search(address)
    return "" if found is None else check_tenant_name(unquote(found[2]))


def without_tenant(address: str) -> str:
    """The address for the server, which does not know this option."""
    return _OPTION.sub(lambda found: found[1] if found[3] else "", address)


def with_tenant(address: str, tenant: str) -> str:
    """The address of the same database as a tenant sees it."""
    bare = without_tenant(address)
    return f"{bare}{'&' if '?' in bare else '?'}tenant={check_tenant_name(tenant)}" if tenant else bare


def _role(tenant: str) -> sql.Identifier:
    return sql.Identifier(f"{ROLE_PREFIX}{tenant}")


def begin_as(tenant: str) -> sql.Composed:
    """Statements that start a transaction with the role of a tenant."""
    return sql.SQL("BEGIN; SET LOCAL ROLE {}").format(_role(tenant))


def check_tenant(connection: Connection, home: str, tenant: str) -> None:
    """`NotFoundError` for a tenant that was not added, or that this user may not act for."""
    row = connection.execute(
        "SELECT pg_has_role(oid, 'MEMBER') FROM pg_roles WHERE rolname = %s", [f"{ROLE_PREFIX}{tenant}"]
    ).fetchone()
    if row is None or not row[0]:
        raise NotFoundError(
            f"{home}: no tenant {tenant!r}; an administrator adds it with: sessiontree store add-tenant"
        )


def add_tenant(connection: Connection, home: str, tenant: str, quota: int | None) -> None:
    """Create the role of a tenant, with the rights to its own rows."""
    role = _role(check_tenant_name(tenant))
    try:
        with connection.transaction():
            connection.execute(
                "INSERT INTO sessiontree.tenant (tenant, quota) VALUES (%s, %s)"
                " ON CONFLICT (tenant) DO UPDATE SET quota = excluded.quota",
                [tenant, quota],
            )
            row = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [f"{ROLE_PREFIX}{tenant}"]).fetchone()
            if row is None:  # roles belong to the server: another database of it may have created it
                connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(role))
            connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(role))
            for schema in _SCHEMAS:
                connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(schema), role))
            for table in ("version", "setting", "tenant"):
                connection.execute(sql.SQL("GRANT SELECT ON sessiontree.{} TO {}").format(sql.Identifier(table), role))
            for named in _TABLES:
                connection.execute(
                    sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}").format(sql.Identifier(*named), role)
                )
    except psycopg.errors.InsufficientPrivilege as error:
        raise UsageError(f"{home}: cannot add a tenant: {error.diag.message_primary}") from None


def remove_tenant(connection: Connection, home: str, tenant: str) -> None:
    """Remove a tenant without sessions; `ExistsError` if there are any."""
    role = _role(check_tenant_name(tenant))
    with connection.transaction():
        row = connection.execute("SELECT count(*) FROM sessiontree.session WHERE tenant = %s", [tenant]).fetchone()
        if row is not None and row[0]:
            sessions = "1 session" if row[0] == 1 else f"{row[0]} sessions"
            raise ExistsError(f"{home}: the tenant {tenant!r} has {sessions}; delete or pull them first")
        row = connection.execute("SELECT count(*) FROM sessiontree_archive.item WHERE tenant = %s", [tenant]).fetchone()
        if row is not None and row[0]:
            items = "1 item" if row[0] == 1 else f"{row[0]} items"
            raise ExistsError(f"{home}: the archive of the tenant {tenant!r} has {items}; purge them first")
        for table in ("blob", "document", "session_index", "part", "token"):
            connection.execute(
                sql.SQL("DELETE FROM sessiontree.{} WHERE tenant = %s").format(sql.Identifier(table)), [tenant]
            )
        if not connection.execute("DELETE FROM sessiontree.tenant WHERE tenant = %s", [tenant]).rowcount:
            raise NotFoundError(f"{home}: no tenant {tenant!r}")
        # The role may have rights in other databases of the server, so only those of this one are taken.
        for schema in map(sql.Identifier, _SCHEMAS):
            connection.execute(sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA {} FROM {}").format(schema, role))
            connection.execute(sql.SQL("REVOKE ALL ON SCHEMA {} FROM {}").format(schema, role))


def list_tenants(connection: Connection) -> list[TenantStatus]:
    """All tenants with what they have stored."""
    rows = connection.execute(
        """
        SELECT tenant, (SELECT count(*) FROM sessiontree.session WHERE session.tenant = tenant.tenant),
            (SELECT coalesce(sum(size), 0) FROM sessiontree.session WHERE session.tenant = tenant.tenant)
            + (SELECT coalesce(sum(length(data)), 0) FROM sessiontree.blob WHERE blob.tenant = tenant.tenant)
            + (SELECT coalesce(sum(size), 0) FROM sessiontree_archive.item WHERE item.tenant = tenant.tenant), quota
        FROM sessiontree.tenant ORDER BY tenant
        """
    ).fetchall()
    return [TenantStatus(tenant, int(sessions), int(size), quota) for tenant, sessions, size, quota in rows]


class Quota:
    """The limit of a tenant, and what it has stored. Both are read again from time to time, not at each write."""

    def __init__(self, home: str, tenant: str) -> None:
        self._home = home
        self._tenant = tenant
        self._until = 0.0
        self._is_full = False

    def is_due(self) -> bool:
        return bool(self._tenant) and time.monotonic() >= self._until

    def read(self, connection: Connection) -> None:
        row = connection.execute(
            """
            SELECT quota < (SELECT coalesce(sum(size), 0) FROM sessiontree.session WHERE tenant = %(tenant)s)
                + (SELECT coalesce(sum(length(data)), 0) FROM sessiontree.blob WHERE tenant = %(tenant)s)
                + (SELECT coalesce(sum(size), 0) FROM sessiontree_archive.item WHERE tenant = %(tenant)s)
            FROM sessiontree.tenant WHERE tenant = %(tenant)s
            """,
            {"tenant": self._tenant},
        ).fetchone()
        self._is_full = row is not None and row[0] is True
        self._until = time.monotonic() + SECONDS_BETWEEN_CHECKS

    def check(self) -> None:
        if self._is_full:
            raise QuotaError(
                f"{self._home}: the quota of the tenant {self._tenant!r} is used up; nothing was written. "
                "Delete sessions, or ask for a larger quota."
            )


class QuotaError(StoreError):
    """A tenant has stored as much as it may. Nothing was written."""
