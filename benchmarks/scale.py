"""`python -m benchmarks.scale`: measure a database of sessions on this machine, and extrapolate it.

It loads sessions, appends with several writers, and measures bytes, rows, WAL and memory per entry, session, append and
connection. What cannot be measured here (a billion entries, a hundred thousand writers) is multiplied, and marked so.
Prices are arguments, because they are not ours to know.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

from msgspec import Struct
from tests.postgres.server import Server, running

import sessiontree
from benchmarks.texts import Texts
from sessiontree.stores.postgres import open_postgres_repository
from sessiontree.stores.postgres.repository import PostgresRepository

_TEXT = "word " * 160
_WRITERS = 16
_SECONDS = 5.0


class Measured(Struct, frozen=True):
    """What one server on this machine needs."""

    entries: int
    sessions: int
    line: float
    """Bytes of a line."""
    table: float
    """Bytes of table and index for each entry, a row each."""
    joined: float
    """The same after `sessiontree store vacuum`."""
    joined_rows: float
    """Rows for each entry after it."""
    wal: float
    """Bytes of the log for each append."""
    rate: float
    """Appends a second of all writers together."""
    connection: float
    """Bytes of memory of a connection's process."""


def measure(server: Server, repository: PostgresRepository, sessions: int, entries: int) -> Measured:
    line = _load(repository, sessions, entries)
    with repository.connect() as connection:
        connection.execute("VACUUM ANALYZE sessiontree.part")
        table = _size(repository)
    rate, wal = _write(repository)
    repository.vacuum(days=0)
    with repository.connect() as connection:
        connection.execute("VACUUM FULL sessiontree.part")
        row = connection.execute("SELECT count(*) FROM sessiontree.part").fetchone()
        assert row is not None
    total = sessions * entries
    return Measured(
        total, sessions, line, table / total, _size(repository) / total, row[0] / total, wal, rate, _memory(server)
    )


def _load(repository: PostgresRepository, sessions: int, entries: int) -> float:
    """Write sessions of one row for each entry, as appends do; returns the bytes of a line."""
    texts = Texts(Random(1))
    with sessiontree.create(in_memory=True) as sample:
        for number in range(1000):
            sample.append("user", (texts.prose, texts.code, texts.output)[number % 3](800))
        lines = [sample.raw(id) + b"\n" for id in sample.ids]
    size = [0] * sessions
    chosen = itertools.cycle(lines)
    with repository.connection() as connection, connection.cursor() as cursor:
        for number in range(sessions):
            id = f"scale-{number:08d}"
            cursor.execute("INSERT INTO sessiontree.session (tenant, session, size) VALUES ('', %s, 0)", [id])
        with cursor.copy(
            "COPY sessiontree.part (tenant, session, generation, start, data) FROM STDIN (FORMAT binary)"
        ) as copy:
            copy.set_types(["text", "text", "int8", "int8", "bytea"])
            for _ in range(entries):
                for number in range(sessions):
                    line = next(chosen)
                    copy.write_row(("", f"scale-{number:08d}", 0, size[number], line))
                    size[number] += len(line)
        for number in range(sessions):
            cursor.execute(
                "UPDATE sessiontree.session SET size = %s WHERE session = %s", [size[number], f"scale-{number:08d}"]
            )
    return sum(map(len, lines)) / len(lines)


def _size(repository: PostgresRepository) -> float:
    """Bytes of the table of parts with its indexes, over all partitions."""
    with repository.connect() as connection:
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('sessiontree.part')"
        ).fetchone()
    assert row is not None
    return float(row[0])


def _write(repository: PostgresRepository) -> tuple[float, float]:
    """Appends a second of several writers, and bytes of the log for each."""
    counts = [0] * _WRITERS
    with ExitStack() as stack:
        opened = [stack.enter_context(sessiontree.create(home=repository.home)) for _ in range(_WRITERS)]
        for session in opened:
            session.append("user", "start")
        connection = stack.enter_context(repository.connect())
        before = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
        until = time.monotonic() + _SECONDS

        def append(number: int) -> None:
            while time.monotonic() < until:
                opened[number].append("user", _TEXT)
                counts[number] += 1

        threads = [threading.Thread(target=append, args=[number]) for number in range(_WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), %s)", before).fetchone()
    assert row is not None
    return sum(counts) / _SECONDS, float(row[0]) / sum(counts)


def _memory(server: Server) -> float:
    """Private memory of the process of a connection that has read and written."""
    import psycopg

    with psycopg.connect(server.address("scale"), autocommit=True) as connection:
        connection.execute("SELECT count(*) FROM sessiontree.part WHERE session = 'scale-00000000'")
        with open(f"/proc/{connection.info.backend_pid}/smaps_rollup", encoding="ascii") as file:
            fields = {line.split(":")[0]: line.split()[1] for line in file if line.endswith("kB\n")}
    return 1024.0 * (int(fields["Private_Dirty"]) + int(fields["Private_Clean"]))


def render(found: Measured, options: argparse.Namespace) -> str:
    """The measured figures and what they mean for the given number of entries and writers, as Markdown."""
    entries, writers = float(options.entries), float(options.writers)
    appends = writers * options.appends_per_hour / 3600
    nodes = max(1.0, appends / found.rate)
    rows = [
        ("bytes of a line", f"{found.line:,.0f}", f"{found.line * entries / 1e12:,.2f} TB"),
        ("bytes in the tables, one row each", f"{found.table:,.0f}", f"{found.table * entries / 1e12:,.2f} TB"),
        (
            "bytes in the tables after `store vacuum`",
            f"{found.joined:,.0f}",
            f"{found.joined * entries / 1e12:,.2f} TB",
        ),
        ("rows after `store vacuum`", f"{found.joined_rows:.4f}", f"{found.joined_rows * entries:,.0f}"),
        ("bytes of WAL for each append", f"{found.wal:,.0f}", f"{found.wal * appends / 1e6:,.1f} MB a second"),
        (
            "appends a second of one server",
            f"{found.rate:,.0f}",
            f"{appends:,.0f} needed, {nodes:,.1f} servers like it",
        ),
        ("memory of a connection", f"{found.connection / 1e6:,.1f} MB", f"{found.connection * writers / 1e9:,.0f} GB"),
        (
            "storage a month",
            f"${options.disk_price}/GB",
            f"${found.table * entries / 1e9 * options.disk_price:,.0f} before `store vacuum`",
        ),
    ]
    title = f"at {entries:,.0f} entries and {writers:,.0f} writers"
    lines = [f"| | measured, for each | {title} (multiplied) |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {one} | {many} |" for name, one, many in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--sessions", type=int, default=500, help="sessions to load (default: 500)")
    parser.add_argument("--length", type=int, default=400, help="entries of each (default: 400)")
    parser.add_argument("--entries", type=float, default=1e9, help="entries to extrapolate to (default: 10^9)")
    parser.add_argument("--writers", type=float, default=1e5, help="writers to extrapolate to (default: 10^5)")
    parser.add_argument("--appends-per-hour", type=float, default=60, help="appends of each writer (default: 60)")
    parser.add_argument("--disk-price", type=float, default=0.12, help="dollars for a GB a month (default: 0.12)")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pg")))
        folder.chmod(0o755)
        server = stack.enter_context(running(folder / "server"))
        repository = open_postgres_repository(server.create_database("scale"))
        repository.upgrade()
        found = measure(server, repository, options.sessions, options.length)
        repository.close()
    print(f"{found.entries:,} entries in {found.sessions:,} sessions, {_WRITERS} writers for {_SECONDS:g} seconds\n")
    print(render(found, options))


if __name__ == "__main__":
    main()
