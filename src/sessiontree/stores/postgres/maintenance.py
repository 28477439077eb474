"""Status, verification and clean-up of a database of sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from psycopg import Connection

from sessiontree.core.ids import is_session_id
from sessiontree.stores.contract import RepositoryStatus

_JOINED_SIZE = 256 << 10
"""Small parts are joined up to this size; reading them back then takes fewer rows."""


def read_status(connection: Connection, version: int) -> RepositoryStatus:
    """Count what is stored. Old generations are the backups of replaced sessions."""
    row = connection.execute(
        """
        SELECT (SELECT count(*) FROM sessiontree.session), (SELECT coalesce(sum(size), 0) FROM sessiontree.session),
            (SELECT count(*) FROM sessiontree.part),
            (SELECT count(*) FROM (
                SELECT DISTINCT part.tenant, part.session, part.generation FROM sessiontree.part
                JOIN sessiontree.session USING (tenant, session) WHERE part.generation < session.generation) AS old),
            (SELECT count(*) FROM sessiontree.blob),
            (SELECT coalesce(sum(length(data)), 0) FROM sessiontree.blob),
            current_setting('server_version'),
            (SELECT count(*) FROM sessiontree_archive.item),
            (SELECT coalesce(sum(size), 0) FROM sessiontree_archive.item)
        """
    ).fetchone()
    assert row is not None
    sessions, size, parts, backups, blobs, blob_size, server, archived, archived_size = row
    return RepositoryStatus(
        sessions=int(sessions),
        size=int(size),
        parts=int(parts),
        backups=int(backups),
        blobs=int(blobs),
        blob_size=int(blob_size),
        version=version,
        server=server,
        archived=int(archived),
        archived_size=int(archived_size),
    )


def find_damage(connection: Connection) -> Iterator[str]:
    """Describe ids of other programs, sessions whose parts do not join up, and blobs that do not match their name."""
    with connection.transaction():  # one snapshot of all tables, whatever is appended meanwhile
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield from _find_invalid_ids(connection)
        yield from _find_gaps(connection)
        with connection.cursor(name="blobs", binary=True) as cursor:
            cursor.itersize = 20
            for name, data in cursor.execute("SELECT name, data FROM sessiontree.blob ORDER BY name"):
                if hashlib.sha256(data).hexdigest() != name:
                    yield f"blob {name}: its content has changed"


def _find_invalid_ids(connection: Connection) -> Iterator[str]:
    for (id,) in connection.execute("SELECT session FROM sessiontree.session ORDER BY session").fetchall():
        if not is_session_id(id):
            yield f"session {id!r}: another program wrote this row; sessions with such an id are not listed"


def _find_gaps(connection: Connection) -> Iterator[str]:
    rows = connection.execute(
        """
        SELECT session, generation, start, expected FROM (
            SELECT session, generation, start,
                lag(start + length(data), 1, 0::bigint)
                    OVER (PARTITION BY tenant, session, generation ORDER BY start) AS expected
            FROM sessiontree.part) AS part
        WHERE start <> expected ORDER BY session, generation, start
        """
    )
    for session, generation, start, expected in rows:
        problem = "bytes are missing" if start > expected else "bytes are there twice"
        yield f"session {session}: {problem} at offset {min(start, expected)} of generation {generation}"
    rows = connection.execute(
        """
        SELECT session, session.size, coalesce(max(start + length(data)), 0) AS found
        FROM sessiontree.session LEFT JOIN sessiontree.part USING (tenant, session, generation)
        GROUP BY tenant, session, session.size HAVING session.size <> coalesce(max(start + length(data)), 0)
        ORDER BY session
        """
    )
    for session, size, found in rows:
        yield f"session {session}: {found} bytes are stored, but its row records {size}"
    rows = connection.execute(
        """
        SELECT item, session, size, coalesce(sum(length(data)), 0)
        FROM sessiontree_archive.item LEFT JOIN sessiontree_archive.part USING (tenant, item)
        GROUP BY tenant, item, session, size HAVING size <> coalesce(sum(length(data)), 0) ORDER BY item
        """
    )
    for item, session, size, found in rows:
        yield f"item {item} of the archive (session {session}): {found} bytes are stored, but its row records {size}"


def join_parts(connection: Connection, tenant: str, session: str) -> int:
    """Join the small parts of a session, and return how many rows that saves. Its bytes and offsets do not change."""
    with connection.transaction():
        # The row is locked, so no append, and no second clean-up, comes in between.
        row = connection.execute(
            "SELECT generation FROM sessiontree.session WHERE tenant = %s AND session = %s FOR UPDATE",
            [tenant, session],
        ).fetchone()
        if row is None:
            return 0
        values = {"tenant": tenant, "session": session, "generation": row[0], "size": _JOINED_SIZE}
        found = connection.execute(
            """
            WITH grouped AS (
                SELECT min(start) AS start, string_agg(data, ''::bytea ORDER BY start) AS data, count(*) AS parts
                FROM sessiontree.part
                WHERE tenant = %(tenant)s AND session = %(session)s AND generation = %(generation)s
                GROUP BY start / %(size)s HAVING count(*) > 1
            ), deleted AS (
                DELETE FROM sessiontree.part USING grouped
                WHERE part.tenant = %(tenant)s AND part.session = %(session)s
                    AND part.generation = %(generation)s AND part.start > grouped.start
                    AND part.start < grouped.start + length(grouped.data)
            ), joined AS (
                UPDATE sessiontree.part SET data = grouped.data FROM grouped
                WHERE part.tenant = %(tenant)s AND part.session = %(session)s
                    AND part.generation = %(generation)s AND part.start = grouped.start
            )
            SELECT coalesce(sum(parts - 1), 0) FROM grouped
            """,
            values,
        ).fetchone()
    return 0 if found is None else int(found[0])


def remove_backups(connection: Connection, *, days: float) -> int:
    """Remove the generations of sessions that were replaced and not changed for some days; returns their rows."""
    return connection.execute(
        """
        DELETE FROM sessiontree.part USING sessiontree.session
        WHERE part.tenant = session.tenant AND part.session = session.session AND part.generation < session.generation
            AND session.changed < clock_timestamp() - %s * interval '1 day'
        """,
        [days],
    ).rowcount
