"""`python -m benchmarks.full_text`: the search index of sessions in a database against PostgreSQL's full text search.

Both index the same texts of the same sessions. PostgreSQL gets the texts of entries in a table, which the store does
not have: SQL would have to look inside lines for it. Its configuration is `simple`, as no language fits all sessions.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from psycopg import Connection
from tests.postgres.server import running

import sessiontree
from benchmarks.texts import Texts
from sessiontree.library.library import Library
from sessiontree.search import search
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.postgres import open_postgres_repository
from sessiontree.stores.postgres.repository import PostgresRepository
from sessiontree.stores.repositories import open_repository

_MARKED = 20
"""Sessions that contain each of the texts below."""
_CASES = (
    # What a text contains, and the words somebody would search it by.
    ("a whole word", "please check the marmalade first", "marmalade"),
    ("a part of an identifier", "def renderQuokkaTable(rows):", "quokka"),
    ("another way to write an identifier", "call build_wombat_index() here", "buildWombatIndex"),
    ("an identifier with a number", "class NarwhalServer2(Base):", "narwhal"),
    ("a Chinese word in a sentence", "请把这个列表按照价格排序一下", "价格排序"),
    ("a Chinese word of one pair", "这里需要重新编译内核模块", "内核"),
    ("a Japanese word in a sentence", "この関数は再帰呼び出しを使います", "再帰"),
)


def _write(repository: PostgresRepository, count: int) -> list[tuple[str, str]]:
    """Write sessions of eight messages; returns the id of a session with each of its texts."""
    texts, chance = Texts(Random(1)), Random(2)
    written: list[tuple[str, str]] = []
    for number in range(count):
        with sessiontree.create(home="memory:benchmark", cwd="/work") as session:
            bodies = [texts.prose(300) if step % 2 == 0 else texts.code(900) for step in range(8)]
            for case, (_, text, _) in enumerate(_CASES):
                if number // _MARKED == case:
                    bodies[chance.randrange(8)] += f"\n{text}\n"
            for step, body in enumerate(bodies):
                session.append("user" if step % 2 == 0 else "assistant", [{"type": "text", "text": body}])
            store = open_repository("memory:benchmark").open(session.ref)
            repository.new(session.id, timestamp="", cwd="/work").create([read_bytes(store, 0, store.size())])
            written += ((session.id, body) for body in bodies)
        open_repository("memory:benchmark").delete(session.ref)
    return written


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def _index(connection: Connection, written: list[tuple[str, str]]) -> None:
    connection.execute("CREATE TABLE entry_text (session text, words tsvector)")
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO entry_text VALUES (%s, to_tsvector('simple', %s))", written)
    connection.execute("CREATE INDEX ON entry_text USING gin (words)")


def _find(connection: Connection, words: str) -> set[str]:
    rows = connection.execute(
        "SELECT DISTINCT session FROM entry_text WHERE words @@ plainto_tsquery('simple', %s) LIMIT 60", [words]
    )
    return {session for (session,) in rows}


def _search(library: Library, words: str) -> set[str]:
    return {hit.session.id for hit in search(library, words, limit=60, per_session=1, refresh="none")}


def run(count: int) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pg")))
        folder.chmod(0o755)  # as root, the server runs as another user
        os.environ["XDG_CACHE_HOME"] = os.environ["HOME"] = str(folder / "home")
        server = stack.enter_context(running(folder / "server"))
        repository = open_postgres_repository(server.create_database("bench"))
        stack.callback(repository.close)
        repository.upgrade()
        written = _write(repository, count)
        size = sum(len(body.encode()) for _, body in written)
        print(f"{count:,} sessions, {len(written):,} entries, {size / 1e6:.1f} MB of text\n")
        connection = stack.enter_context(repository.connect())

        def build() -> None:
            with Library(repository.home, only_home=True) as library:
                library.refresh()
                list(search(library, "marmalade", refresh="all"))

        ours, _ = _timed(build)
        theirs, _ = _timed(lambda: _index(connection, written))
        documents = connection.execute(
            "SELECT sum(length(data)) FROM sessiontree.document WHERE name LIKE 'cache-%' AND name <> 'cache-library'"
        ).fetchone()
        tables = connection.execute("SELECT pg_total_relation_size('entry_text')").fetchone()
        assert documents is not None
        assert tables is not None
        print(f"build           ours {ours:7.2f} s    PostgreSQL {theirs:7.2f} s (ours with reading the sessions)")
        print(f"size            ours {documents[0] / 1e6:7.2f} MB   PostgreSQL {tables[0] / 1e6:7.2f} MB")

        def first() -> set[str]:
            with Library(repository.home, only_home=True) as library:
                return _search(library, "marmalade")

        with Library(repository.home, only_home=True) as library:
            _search(library, "marmalade")
            again = min(_timed(lambda: _search(library, "marmalade"))[0] for _ in range(5))
            query = min(_timed(lambda: _find(connection, "marmalade"))[0] for _ in range(5))
            print(f"first query     ours {1e3 * _timed(first)[0]:7.1f} ms")
            print(f"further query   ours {1e3 * again:7.1f} ms   PostgreSQL {1e3 * query:7.1f} ms\n")
            for name, text, words in _CASES:
                right = {session for session, body in written if text in body}
                found, other = _search(library, words), _find(connection, words)
                print(f"{name:36} of {len(right)}: ours {len(found & right):3}   PostgreSQL {len(other & right):3}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=2_000)
    run(parser.parse_args().sessions)
