"""The archive of a database: contents of sessions, in a separate schema. Each function runs in a transaction."""

from __future__ import annotations

from typing import LiteralString

import psycopg
from psycopg import Connection

from sessiontree.errors import ConflictError, ExistsError
from sessiontree.stores.contract import SessionRef, SessionStat

ARCHIVED_CHUNK = 4 << 20
"""Bytes of an item that are read together. Parts of a session have at most 1 MB."""
READ_ARCHIVED: LiteralString = """
SELECT string_agg(data, ''::bytea ORDER BY start) FROM sessiontree_archive.part
WHERE tenant = %s AND item = %s AND start >= %s AND start < %s
"""


def archive_session(
    connection: Connection, tenant: str, item: str, record: bytes, stat: SessionStat, *, remove: bool
) -> None:
    """Copy a session to a new item, and delete it with `remove`; `ConflictError` if it is not as in `stat`."""
    row = connection.execute(
        "SELECT generation, size, (extract(epoch FROM changed) * 1000000)::bigint * 1000 FROM sessiontree.session"
        " WHERE tenant = %s AND session = %s FOR UPDATE",
        [tenant, stat.ref.name],
    ).fetchone()
    if row != (stat.identity, stat.size, stat.changed):
        raise ConflictError(f"{stat.ref}: changed while it was being archived; nothing was changed")
    values = {"tenant": tenant, "item": item, "session": stat.ref.name, "record": record, "size": stat.size}
    connection.execute(
        "INSERT INTO sessiontree_archive.item (tenant, item, session, record, size)"
        " VALUES (%(tenant)s, %(item)s, %(session)s, %(record)s, %(size)s)",
        values,
    )
    connection.execute(
        "INSERT INTO sessiontree_archive.part (tenant, item, start, data)"
        " SELECT tenant, %(item)s, start, data FROM sessiontree.part"
        " WHERE tenant = %(tenant)s AND session = %(session)s AND generation = %(generation)s",
        {**values, "generation": stat.identity},
    )
    if remove:
        delete_session(connection, tenant, stat.ref.name)


def delete_session(connection: Connection, tenant: str, session: str) -> int:
    """Delete a session with its backups and its index; returns how many there were."""
    key = (tenant, session)
    found = connection.execute("DELETE FROM sessiontree.session WHERE tenant = %s AND session = %s", key).rowcount
    connection.execute("DELETE FROM sessiontree.part WHERE tenant = %s AND session = %s", key)
    connection.execute("DELETE FROM sessiontree.session_index WHERE tenant = %s AND session = %s", key)
    return found


def list_archived(connection: Connection, tenant: str) -> list[tuple[str, bytes]]:
    """Ids and records of all items, oldest first."""
    rows = connection.execute(
        "SELECT item, record FROM sessiontree_archive.item WHERE tenant = %s ORDER BY added, item", [tenant]
    ).fetchall()
    return [(item, bytes(record)) for item, record in rows]


def restore_session(connection: Connection, tenant: str, item: str, ref: SessionRef, *, remove: bool) -> None:
    """Create a session with the content of an item; `ExistsError` if there is one."""
    values = {"tenant": tenant, "item": item, "session": ref.name}
    try:
        connection.execute(
            "INSERT INTO sessiontree.session (tenant, session, size)"
            " SELECT tenant, %(session)s, size FROM sessiontree_archive.item"
            " WHERE tenant = %(tenant)s AND item = %(item)s",
            values,
        )
    except psycopg.errors.UniqueViolation:
        raise ExistsError(f"{ref}: the session exists; nothing was restored") from None
    connection.execute(
        "INSERT INTO sessiontree.part (tenant, session, generation, start, data)"
        " SELECT tenant, %(session)s, 0, start, data FROM sessiontree_archive.part"
        " WHERE tenant = %(tenant)s AND item = %(item)s",
        values,
    )
    if remove:
        remove_item(connection, tenant, item)


def remove_item(connection: Connection, tenant: str, item: str) -> None:
    for table in ("item", "part"):
        connection.execute(
            psycopg.sql.SQL("DELETE FROM sessiontree_archive.{} WHERE tenant = %s AND item = %s").format(
                psycopg.sql.Identifier(table)
            ),
            [tenant, item],
        )
