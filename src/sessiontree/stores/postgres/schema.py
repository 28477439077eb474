"""The tables, as numbered migrations. `sessiontree store upgrade` runs them; a newer schema is refused.

Stores know bytes only: no column and no statement looks inside a line.
"""

from __future__ import annotations

from typing import LiteralString

import psycopg
from psycopg import Connection

from sessiontree.errors import SessionTreeError, UsageError

SCHEMA = "sessiontree"
PARTITIONS = 16
"""Hash partitions of the table of parts; with Citus, its distribution column is the same `session`."""

MIGRATIONS: tuple[tuple[LiteralString, ...], ...] = (
    (
        "CREATE SCHEMA IF NOT EXISTS sessiontree",
        "CREATE TABLE sessiontree.version (number integer NOT NULL)",
        "INSERT INTO sessiontree.version VALUES (0)",
        # `fence` rises when a writer resolves a write of unknown outcome. A statement still in flight compares it, so
        # it can no longer take effect.
        """
        CREATE TABLE sessiontree.session (
            session text COLLATE "C" PRIMARY KEY,
            generation bigint NOT NULL DEFAULT 0,
            size bigint NOT NULL,
            fence bigint NOT NULL DEFAULT 0,
            changed timestamptz NOT NULL DEFAULT clock_timestamp(),
            watched_until timestamptz
        ) WITH (fillfactor = 50)
        """,
        """
        CREATE TABLE sessiontree.part (
            session text COLLATE "C" NOT NULL,
            generation bigint NOT NULL,
            start bigint NOT NULL,
            data bytea NOT NULL,
            PRIMARY KEY (session, generation, start)
        ) PARTITION BY HASH (session)
        """,
        "CREATE TABLE sessiontree.blob (name text PRIMARY KEY, data bytea NOT NULL)",
        "CREATE TABLE sessiontree.document (name text PRIMARY KEY, data bytea)",
    ),
    (
        # Tenants. The tenant is part of every key: otherwise a refused creation would reveal to one tenant what another
        # one has. Rows without a tenant are shared by all ordinary users.
        *(
            statement
            for table, key in (
                ("session", "tenant, session"),
                ("part", "tenant, session, generation, start"),
                ("blob", "tenant, name"),
                ("document", "tenant, name"),
            )
            for statement in (
                f"""ALTER TABLE sessiontree.{table} ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT ''""",
                f"ALTER TABLE sessiontree.{table} DROP CONSTRAINT {table}_pkey",
                f"ALTER TABLE sessiontree.{table} ADD PRIMARY KEY ({key})",
            )
        ),
        # `revision` rises when bytes are overwritten: an index of older bytes is not used.
        "ALTER TABLE sessiontree.session ADD COLUMN revision bigint NOT NULL DEFAULT 0",
        """
        CREATE TABLE sessiontree.session_index (
            tenant text COLLATE "C" NOT NULL,
            session text COLLATE "C" NOT NULL,
            name text COLLATE "C" NOT NULL,
            generation bigint NOT NULL,
            revision bigint NOT NULL,
            size bigint NOT NULL,
            data bytea NOT NULL,
            PRIMARY KEY (tenant, session, name)
        )
        """,
        "ALTER TABLE sessiontree.session_index ALTER COLUMN data SET STORAGE EXTERNAL",
        """
        CREATE TABLE sessiontree.tenant (
            tenant text COLLATE "C" PRIMARY KEY,
            quota bigint,
            created timestamptz NOT NULL DEFAULT now()
        )
        """,
        """
        CREATE FUNCTION sessiontree.current_tenant() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
            SELECT CASE WHEN starts_with(current_user::text, 'sessiontree_tenant_')
                THEN substr(current_user::text, 20) ELSE '' END
        $$
        """,
        *(
            statement
            for table in ("session", "part", "blob", "document", "session_index", "tenant")
            for statement in (
                f"ALTER TABLE sessiontree.{table} ENABLE ROW LEVEL SECURITY",
                f"CREATE POLICY own_rows ON sessiontree.{table} USING (tenant = sessiontree.current_tenant())",
            )
        ),
        # What holds for all users of the database, such as where its blobs are. Only administrators change it.
        "CREATE TABLE sessiontree.setting (name text PRIMARY KEY, value text NOT NULL)",
        # The log of writes, a partition for each month. Its trigger is created by `sessiontree store audit on`.
        """
        CREATE TABLE sessiontree.audit (
            at timestamptz NOT NULL DEFAULT clock_timestamp(),
            tenant text COLLATE "C" NOT NULL,
            session text COLLATE "C" NOT NULL,
            actor text NOT NULL,
            action text NOT NULL,
            generation bigint NOT NULL,
            size bigint NOT NULL
        ) PARTITION BY RANGE (at)
        """,
        "CREATE TABLE sessiontree.audit_other PARTITION OF sessiontree.audit DEFAULT",
        "CREATE INDEX audit_by_time ON sessiontree.audit (at)",
        # As its owner: a tenant writes to the log only by writing to a session.
        """
        CREATE FUNCTION sessiontree.record_write() RETURNS trigger LANGUAGE plpgsql
        SECURITY DEFINER SET search_path = pg_catalog AS $$
        DECLARE
            changed sessiontree.session := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
        BEGIN
            INSERT INTO sessiontree.audit (tenant, session, actor, action, generation, size) VALUES (
                changed.tenant, changed.session, session_user,
                CASE WHEN TG_OP = 'INSERT' THEN 'create' WHEN TG_OP = 'DELETE' THEN 'delete'
                    WHEN NEW.generation <> OLD.generation THEN 'replace'
                    WHEN NEW.revision <> OLD.revision THEN 'overwrite' ELSE 'append' END,
                changed.generation, changed.size);
            RETURN NULL;
        END $$
        """,
    ),
    (
        # Tokens of the users of the web page. No policy and no grant: the role of a tenant sees no row.
        """
        CREATE TABLE sessiontree.token (
            token text COLLATE "C" PRIMARY KEY,
            tenant text COLLATE "C" NOT NULL,
            scope text NOT NULL CHECK (scope IN ('read', 'write')),
            hash bytea NOT NULL,
            note text NOT NULL,
            created timestamptz NOT NULL DEFAULT now(),
            revoked timestamptz
        )
        """,
        "ALTER TABLE sessiontree.token ENABLE ROW LEVEL SECURITY",
    ),
    (
        # The archive, in a separate schema: it can be dumped, restored and kept on other disks by itself.
        "CREATE SCHEMA IF NOT EXISTS sessiontree_archive",
        """
        CREATE TABLE sessiontree_archive.item (
            tenant text COLLATE "C" NOT NULL,
            item text COLLATE "C" NOT NULL,
            session text COLLATE "C" NOT NULL,
            record bytea NOT NULL,
            size bigint NOT NULL,
            added timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (tenant, item)
        )
        """,
        """
        CREATE TABLE sessiontree_archive.part (
            tenant text COLLATE "C" NOT NULL,
            item text COLLATE "C" NOT NULL,
            start bigint NOT NULL,
            data bytea NOT NULL,
            PRIMARY KEY (tenant, item, start)
        )
        """,
        *(
            statement
            for table in ("item", "part")
            for statement in (
                f"ALTER TABLE sessiontree_archive.{table} ENABLE ROW LEVEL SECURITY",
                f"CREATE POLICY own_rows ON sessiontree_archive.{table} USING (tenant = sessiontree.current_tenant())",
            )
        ),
        # Tenants that were added before.
        """
        DO $$
        DECLARE
            role text;
        BEGIN
            FOR role IN SELECT 'sessiontree_tenant_' || tenant FROM sessiontree.tenant LOOP
                EXECUTE format('GRANT USAGE ON SCHEMA sessiontree_archive TO %I', role);
                EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON sessiontree_archive.item TO %I', role);
                EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON sessiontree_archive.part TO %I', role);
            END LOOP;
        END $$
        """,
    ),
)


def read_version(connection: Connection) -> int:
    """The version of the schema in the database; 0 if there is none."""
    try:
        row = connection.execute("SELECT number FROM sessiontree.version").fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return 0
    return 0 if row is None else int(row[0])


def check_version(connection: Connection, home: str) -> None:
    """Refuse a database without our tables, with older or with newer ones."""
    version = read_version(connection)
    if version > len(MIGRATIONS):
        raise NewerSchemaError(
            f"{home}: its tables have version {version}, this sessiontree knows {len(MIGRATIONS)}; upgrade sessiontree"
        )
    if version < len(MIGRATIONS):
        state = "has no tables of sessiontree yet" if version == 0 else f"has tables of version {version}"
        raise UsageError(f"{home}: {state}; run: sessiontree store upgrade --home {home}")


def upgrade(connection: Connection, home: str) -> list[int]:
    """Run the migrations that are missing, each in its own transaction; returns their numbers."""
    # Of two concurrent upgrades, the second waits and finds nothing left to do.
    connection.execute("SELECT pg_advisory_lock(hashtext('sessiontree upgrade'))")
    try:
        version = read_version(connection)
        if version > len(MIGRATIONS):
            check_version(connection, home)
        for number in range(version, len(MIGRATIONS)):
            with connection.transaction():
                for statement in MIGRATIONS[number]:
                    connection.execute(statement)
                if number == 0:
                    _create_partitions(connection)
                connection.execute("UPDATE sessiontree.version SET number = %s", [number + 1])
        return [*range(version + 1, len(MIGRATIONS) + 1)]
    finally:
        connection.execute("SELECT pg_advisory_unlock(hashtext('sessiontree upgrade'))")


def _create_partitions(connection: Connection) -> None:
    for number in range(PARTITIONS):
        connection.execute(
            psycopg.sql.SQL(
                "CREATE TABLE sessiontree.{} PARTITION OF sessiontree.part FOR VALUES WITH (MODULUS {}, REMAINDER {})"
            ).format(psycopg.sql.Identifier(f"part_{number}"), PARTITIONS, number)
        )


class NewerSchemaError(SessionTreeError):
    """The database was upgraded by a newer version of sessiontree."""
