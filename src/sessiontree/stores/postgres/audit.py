"""The log of writes: who created, appended to, overwrote, replaced or deleted which session, and when.

A trigger writes it in the transaction of the write, so there is no write without its row, and no row without its write.
It is off by default, because each append then writes two rows more. Months are partitions, so old ones are dropped at
once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from psycopg import Connection, sql

from sessiontree.stores.contract import AuditRecord

_MONTHS = 12
"""Months whose partitions are created ahead. Later rows are in the default partition until the next `vacuum`."""


def set_audit(connection: Connection, *, enabled: bool) -> None:
    """Create or drop the trigger that writes the log."""
    with connection.transaction():
        connection.execute("DROP TRIGGER IF EXISTS record_write ON sessiontree.session")
        if enabled:
            create_months(connection)
            connection.execute(
                "CREATE TRIGGER record_write AFTER INSERT OR DELETE OR UPDATE OF size, generation, revision"
                " ON sessiontree.session FOR EACH ROW EXECUTE FUNCTION sessiontree.record_write()"
            )


def create_months(connection: Connection) -> None:
    """Create the partitions of this month and of the next ones, as far as no row is in the default partition."""
    now = datetime.now(UTC)
    start = datetime(now.year, now.month, 1, tzinfo=UTC)
    for _ in range(_MONTHS):
        end = (start + timedelta(days=32)).replace(day=1)
        name = f"audit_{start:%Y_%m}"
        exists = connection.execute("SELECT to_regclass(%s)", [f"sessiontree.{name}"]).fetchone()
        taken = connection.execute(
            "SELECT 1 FROM sessiontree.audit_other WHERE at >= %s AND at < %s LIMIT 1", [start, end]
        ).fetchone()
        if exists == (None,) and taken is None:
            connection.execute(
                sql.SQL(
                    "CREATE TABLE sessiontree.{} PARTITION OF sessiontree.audit FOR VALUES FROM ({}) TO ({})"
                ).format(sql.Identifier(name), sql.Literal(start.isoformat()), sql.Literal(end.isoformat()))
            )
        start = end


def drop_months(connection: Connection, *, days: float) -> int:
    """Drop the months that ended some days ago; returns how many."""
    before = datetime.now(UTC) - timedelta(days=days)
    dropped = 0
    rows = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'sessiontree.audit'::regclass"
    ).fetchall()
    for (name,) in sorted(rows):
        month = name.removeprefix("sessiontree.audit_")
        if month == "other":
            connection.execute("DELETE FROM sessiontree.audit_other WHERE at < %s", [before])
            continue
        start = datetime.strptime(month, "%Y_%m").replace(tzinfo=UTC)
        if (start + timedelta(days=32)).replace(day=1) <= before:
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier("sessiontree", f"audit_{month}")))
            dropped += 1
    return dropped


def read_audit(connection: Connection, *, limit: int) -> list[AuditRecord]:
    """The latest rows of the log, newest first."""
    rows = connection.execute(
        "SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'), tenant, session, actor, action,"
        " generation, size FROM sessiontree.audit ORDER BY at DESC LIMIT %s",
        [limit],
    ).fetchall()
    return [AuditRecord(*row) for row in rows]
