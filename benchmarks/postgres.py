"""Sessions in PostgreSQL against plain statements, and against sessions in files.

The server is one of its own, on a Unix socket, with the settings of a fresh installation: each commit is synced.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from tests.postgres.server import Server, find_programs, running

import sessiontree
from benchmarks.generate import Shape, generated
from benchmarks.results import Outcome, Result, Skipped, microseconds, milliseconds
from benchmarks.timing import best_of, empty_cache
from sessiontree.core.context import Context
from sessiontree.stores.postgres import open_postgres_repository
from sessiontree.stores.postgres.repository import PostgresRepository

_TEXT = "word " * 60
_TURN = 10
"""Appends of each writer before the next competitor's turn."""
_TURNS = {1: 20, 32: 4}
"""By number of writers: turns of each competitor in a round."""
_LATE = 1_000_000
_SHARING = 64
"""Writers of one session."""


def measure(rounds: int) -> list[Result] | Outcome:
    """Every bound of sessions in PostgreSQL, in one run."""
    try:
        find_programs()
    except FileNotFoundError as error:
        return Skipped("PostgreSQL", str(error))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pg")))
        folder.chmod(0o755)  # as root, the server runs as another user
        server = stack.enter_context(running(folder / "server"))
        repository = open_postgres_repository(server.create_database("bench"))
        repository.upgrade()
        try:
            return [
                *_writers(server, repository, 1, rounds, floor=0.6),
                *_writers(server, repository, 32, rounds, floor=0.8),
                _longest_wait(repository),
                _late_append(repository),
                *_read(repository, rounds),
            ]
        finally:
            repository.close()


def _writers(server: Server, repository: PostgresRepository, count: int, rounds: int, floor: float) -> Iterator[Result]:
    """Appends a second of some writers, each with a session of its own, against as many that only insert and commit.

    They insert the same bytes with the same key into a table of the same shape: as programs usually do it, with
    `execute` and `commit`, and in one round trip (autocommit), which is for information. The disk and other programs
    make a commit slow for seconds at a time, so the turns are short, and the median of them counts.
    """
    times: dict[str, list[float]] = {"raw": [], "autocommit": [], "ours": []}
    with ExitStack() as stack:
        address = server.address("bench")
        committing = [stack.enter_context(psycopg.connect(address)) for _ in range(count)]
        autocommit = [stack.enter_context(psycopg.connect(address, autocommit=True)) for _ in range(count)]
        autocommit[0].execute(
            "CREATE TABLE IF NOT EXISTS raw (tenant text, session text, generation bigint, start bigint, data bytea,"
            " PRIMARY KEY (tenant, session, generation, start))"
        )
        sessions = [stack.enter_context(sessiontree.create(home=repository.home)) for _ in range(count)]
        for session in sessions:
            session.append("user", "start")
        data = sessions[0].raw(sessions[0].append("user", _TEXT).id)
        starts = itertools.count()

        def insert(connection: psycopg.Connection, number: int) -> None:
            values = ["", sessions[number].id, 0, next(starts), data]
            connection.execute("INSERT INTO raw VALUES (%s, %s, %s, %s, %s)", values, prepare=True)

        def commit(number: int) -> None:
            for _ in range(_TURN):
                insert(committing[number], number)
                committing[number].commit()

        def insert_alone(number: int) -> None:
            for _ in range(_TURN):
                insert(autocommit[number], number)

        def append(number: int) -> None:
            for _ in range(_TURN):
                sessions[number].append("user", _TEXT)

        competitors = {"raw": commit, "autocommit": insert_alone, "ours": append}
        for turn in range(rounds * _TURNS[count]):
            # Each of them is the first one in some turns: the server writes more after a checkpoint.
            for at in range(len(competitors)):
                name = [*competitors][(turn + at) % len(competitors)]
                times[name].append(_elapsed(competitors[name], count))
    rates = {name: count * _TURN / statistics.median(taken) for name, taken in times.items()}
    writers = "one writer" if count == 1 else f"{count} writers of {count} sessions"
    for name, peer, least in (("insert and commit", "raw", floor), ("an insert with autocommit", "autocommit", None)):
        yield Result(
            f"PostgreSQL: {writers}, against {name}",
            f"{rates['ours']:,.0f} a second",
            f"{rates[peer]:,.0f} a second, on the clock",
            rates["ours"] / rates[peer],
            floor=least,
        )


def _elapsed(work: Callable[[int], None], count: int) -> float:
    threads = [threading.Thread(target=work, args=[number]) for number in range(count)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def _longest_wait(repository: PostgresRepository) -> Result:
    """The longest append of 64 writers of one session takes at most 5 seconds."""
    with sessiontree.create(home=repository.home) as session:
        start = session.append("user", "start").id
    waits: list[float] = []

    def write(_number: int) -> None:
        with sessiontree.open(str(session.ref)) as mine:
            branch = mine.branch(at=start)
            for _ in range(5):
                begin = time.perf_counter()
                branch.append("user", _TEXT)
                waits.append(time.perf_counter() - begin)

    _elapsed(write, _SHARING)
    name = f"PostgreSQL: the longest of {len(waits)} appends, {_SHARING} writers of one session"
    return Result(name, milliseconds(max(waits)), "on the clock", 1e3 * max(waits), bound=5_000, unit="ms")


def _late_append(repository: PostgresRepository) -> Result:
    """An append after a million entries costs at most 1.3 times as much as the 100th."""
    early, late = (sessiontree.create(home=repository.home) for _ in range(2))
    for session in (early, late):
        for _ in range(100):
            session.append("user", "x")
    # Rows of a million more appends, written at once: each is the child of the one before it.
    line = late.raw(late.ids[-1])
    size, last = late.journal.size, late.ids[-1]
    with repository.connection() as connection:
        with (
            connection.cursor() as cursor,
            cursor.copy(
                "COPY sessiontree.part (tenant, session, generation, start, data) FROM STDIN (FORMAT binary)"
            ) as copy,
        ):
            copy.set_types(["text", "text", "int8", "int8", "bytea"])
            before = late.parent(last) or ""
            for number in range(_LATE):
                id = f"{number:08x}x"
                row = line.replace(last.encode(), id.encode()).replace(before.encode(), last.encode()) + b"\n"
                copy.write_row(("", late.id, 0, size, row))
                size, before, last, line = size + len(row), last, id, row[:-1]
        connection.execute("UPDATE sessiontree.session SET size = %s WHERE session = %s", [size, late.id])
        connection.execute("ANALYZE sessiontree.part")
    late.close()
    with sessiontree.open(str(late.ref)) as again:
        entries = len(again)
        best = {"early": 1.0, "late": 1.0}
        for _ in range(200):
            for name, session in (("early", early), ("late", again)):
                start = time.perf_counter()
                session.append("user", "x")
                best[name] = min(best[name], time.perf_counter() - start)
    early.close()
    return Result(
        f"PostgreSQL: append after {entries:,} entries, against the 100th",
        microseconds(best["late"]),
        f"{microseconds(best['early'])}, both on the clock",
        best["late"] / best["early"],
        bound=1.3,
    )


def _read(repository: PostgresRepository, rounds: int) -> Iterator[Result]:
    """Open + context of 100 MB, and the round trips of reading."""
    path = generated(Shape())
    store = repository.new("large", timestamp="", cwd="/")
    store.create([path.read_bytes()])
    ref = str(store.ref)

    def build(place: str | Path) -> Context:
        return sessiontree.open(place).context()

    def forget_index() -> None:
        with repository.connection() as connection:
            connection.execute("DELETE FROM sessiontree.session_index")

    with empty_cache():
        build(path)
        build(ref)
        again = best_of(rounds, {"ours": lambda: build(ref), "file": lambda: build(path)}, keeps_cache=True)
    cold = {"ours": float("inf"), "file": float("inf")}
    for _ in range(2 * rounds):
        forget_index()
        for name, taken in best_of(1, {"ours": lambda: build(ref), "file": lambda: build(path)}).items():
            cold[name] = min(cold[name], taken)
    for name, best in (("for the first time", cold), ("again", again)):
        yield Result(
            f"PostgreSQL: open + context of 100 MB {name}, against a file",
            milliseconds(best["ours"]),
            milliseconds(best["file"]),
            best["ours"] / best["file"],
            bound=1.5,
        )
    session = sessiontree.open(ref)
    entries = len(session.path_ids())
    forget_index()
    for name, work, bound in (
        ("open + context of 100 MB for the first time", lambda: build(ref), 40),
        ("open + context of 100 MB again", lambda: build(ref), 40),
        (f"path() of {entries:,} entries", session.path, 60),
        ("the latest 50 entries", lambda: session.entries(session.ids[-50:]), 2),
    ):
        with _counted() as sent:
            work()
        yield Result(f"PostgreSQL: round trips, {name}", f"{len(sent)}", "", len(sent), bound=bound)


@contextmanager
def _counted() -> Iterator[list[str]]:
    """Count the statements that are sent: each is a round trip."""
    sent: list[str] = []
    execute = psycopg.Cursor.execute

    def counted(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        sent.append(str(query))
        return execute(self, query, *arguments, **options)

    psycopg.Cursor.execute = counted  # type: ignore[method-assign]
    try:
        yield sent
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]
