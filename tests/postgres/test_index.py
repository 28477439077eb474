"""The index beside the bytes in PostgreSQL, and how many round trips it saves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import sessiontree
from sessiontree.session import journal
from sessiontree.session.stored_index import index_name
from sessiontree.stores.contract import IndexStore, read_bytes
from sessiontree.stores.postgres.repository import PostgresRepository
from sessiontree.stores.postgres.store import PostgresStore

_LINES = 4000
_NAME = index_name("native", 3)


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], int]:
    """Count the statements that some work sends: each is a round trip."""
    sent: list[str] = []
    execute = psycopg.Cursor.execute

    def counted(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        sent.append(str(query))
        return execute(self, query, *arguments, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", counted)

    def count(work: Callable[[], Any]) -> int:
        sent.clear()
        work()
        return len(sent)

    return count


def large_session(repository: PostgresRepository, name: str = "large") -> str:
    """A session of about 8 MB on one path."""
    with sessiontree.create(in_memory=True, id=name) as session:
        for number in range(_LINES):
            session.append("user", f"{number} " + "word " * 380)
        data = b"".join(line + b"\n" for line in session.journal.raw_lines())
    store = repository.new(name, timestamp="", cwd="/")
    store.create([data])
    return str(store.ref)


def facts(ref: str) -> list[object]:
    with sessiontree.open(ref) as session:
        return [session.header, session.ids, session.leaf, [message.text for message in session.context().messages]]


def test_opening_again_reads_the_index_and_the_lines_of_the_context(
    repository: PostgresRepository, round_trips: Callable[[Callable[[], Any]], int]
) -> None:
    ref = large_session(repository)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "STORED_SIZE", 1 << 60)
        expected = facts(ref)
    assert facts(ref) == expected
    assert isinstance(repository.open(sessiontree.open(ref).ref), IndexStore)
    with sessiontree.open(ref) as session:
        assert round_trips(lambda: session.entries(session.ids[-50:])) == 1
    assert facts(ref) == expected


def test_round_trips_grow_with_megabytes_and_not_with_blocks(
    repository: PostgresRepository, round_trips: Callable[[Callable[[], Any]], int]
) -> None:
    ref = large_session(repository)
    assert round_trips(lambda: sessiontree.open(ref)) <= 10, "8 MB in pieces of 4"
    assert round_trips(lambda: sessiontree.open(ref)) <= 4, "size, head, size, index"
    session = sessiontree.open(ref)
    assert round_trips(lambda: session.path()) <= 6
    with sessiontree.open(ref) as other:
        other.append("user", "one more")
    assert round_trips(lambda: sessiontree.open(ref)) <= 6, "and the tail"
    assert sessiontree.open(ref).context().messages[-1].text == "one more"


def test_an_index_of_bytes_that_were_overwritten_or_replaced_is_not_used(repository: PostgresRepository) -> None:
    ref = large_session(repository)
    sessiontree.open(ref).close()
    store = repository.open(sessiontree.open(ref).ref)
    assert store.read_index(_NAME) is not None
    data = read_bytes(store, 0, store.size())
    at = data.index(b'"0 word')
    with store.exclusive():
        store.overwrite(at, b'"X', b'"0')
    assert store.read_index(_NAME) is None
    assert facts(ref)[3][0].startswith("X word")  # type: ignore[index]
    assert store.read_index(_NAME) is not None
    store.replace([data], expected_size=len(data))
    assert store.read_index(_NAME) is None
    assert facts(ref)[3][0].startswith("0 word")  # type: ignore[index]


def test_an_index_of_bytes_that_changed_while_they_were_read_is_not_stored(repository: PostgresRepository) -> None:
    store = repository.new("one", timestamp="", cwd="/")
    store.create([b"head\nline\n"])
    reader = repository.open(store.ref)
    assert reader.read_index("x") is None
    with store.exclusive():
        store.overwrite(0, b"HEAD", b"head")
    reader.write_index("x", [b"index"], 10)
    assert reader.read_index("x") is None
    reader.write_index("x", [b"index"], 10)
    assert reader.read_index("x") is not None
    repository.delete(store.ref)
    with repository.connection() as connection:
        assert connection.execute("SELECT count(*) FROM sessiontree.session_index").fetchone() == (0,)


def test_a_user_who_may_only_read_opens_without_an_index(repository: PostgresRepository) -> None:
    ref = large_session(repository)
    with repository.connection() as connection:
        connection.execute(
            "CREATE FUNCTION sessiontree.refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE insufficient_privilege; END $$"
        )
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON sessiontree.session_index EXECUTE FUNCTION sessiontree.refuse()"
        )
    assert facts(ref) == facts(ref)


def test_bytes_that_were_read_ahead_are_given_out_once_and_right(repository: PostgresRepository) -> None:
    store = repository.new("one", timestamp="", cwd="/")
    data = bytes(range(256)) * 50_000
    store.create([data])
    reader = repository.open(store.ref)
    assert isinstance(reader, PostgresStore)
    found = bytearray()
    while len(found) < len(data):
        found += read_bytes(reader, len(found), 100_003)
    assert bytes(found) == data
    assert reader._ahead == (0, b""), "the buffer is freed at the end"
    for offset in (5, 7_000_000, 7_100_003, 12, len(data) - 1):
        assert read_bytes(reader, offset, 100_003) == data[offset : offset + 100_003]
