"""PostgreSQL fulfills the contracts of stores, blobs, documents and repositories."""

from __future__ import annotations

import sys
import threading

import psycopg
import pytest

import sessiontree
from sessiontree.errors import ReplacedError, StoreError, UsageError
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.postgres import schema
from sessiontree.stores.postgres.repository import PostgresRepository, without_password
from sessiontree.stores.postgres.schema import NewerSchemaError
from sessiontree.stores.repositories import open_repository
from sessiontree.testing import check_repository
from tests.postgres.conftest import MakeRepository
from tests.postgres.server import Server


def test_the_contract_of_repositories_holds(make_repository: MakeRepository) -> None:
    assert check_repository(make_repository)


def test_a_database_without_tables_names_the_command_that_creates_them(server: Server) -> None:
    repository = PostgresRepository(server.create_database("empty"))
    with pytest.raises(UsageError, match="sessiontree store upgrade --home"):
        list(repository.iter_stats())
    assert repository.upgrade() == [*range(1, len(schema.MIGRATIONS) + 1)]
    assert list(repository.iter_stats()) == []
    assert repository.upgrade() == []
    repository.close()


def test_tables_of_an_older_version_are_upgraded_with_their_sessions(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.create_database("older")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        assert PostgresRepository(address).upgrade() == [1]
    repository = PostgresRepository(address)
    with repository.connect() as connection:
        connection.execute("INSERT INTO sessiontree.session (session, size) VALUES ('one', 5)")
        connection.execute("INSERT INTO sessiontree.part VALUES ('one', 0, 0, 'line\n')")
        connection.execute("INSERT INTO sessiontree.document VALUES ('tags', 'old')")
    with pytest.raises(UsageError, match="has tables of version 1; run: sessiontree store upgrade"):
        list(repository.iter_stats())
    assert repository.upgrade() == [*range(2, len(schema.MIGRATIONS) + 1)]
    store = repository.open(repository.find("one"))
    assert store.append(b"more\n", expected_size=5) == 10
    assert read_bytes(store, 0, 100) == b"line\nmore\n"
    assert repository.documents.read("tags") == b"old"
    repository.close()


def test_newer_tables_are_refused(repository: PostgresRepository) -> None:
    repository.close()
    with repository.connect() as connection:
        connection.execute("UPDATE sessiontree.version SET number = 99")
    with pytest.raises(NewerSchemaError, match="version 99"):
        list(repository.iter_stats())
    with pytest.raises(NewerSchemaError):
        repository.upgrade()


def test_a_server_that_is_not_there_is_one_clear_error() -> None:
    repository = PostgresRepository("postgresql://tester@/none?host=/nowhere")
    with pytest.raises(StoreError, match="the database cannot be used"):
        repository.find("abc")


def test_passwords_are_not_part_of_references() -> None:
    assert without_password("postgresql://me:secret@db:5432/team") == "postgresql://me@db:5432/team"
    assert without_password("postgresql:///team?host=/run/pg") == "postgresql:///team?host=/run/pg"
    assert without_password("postgresql:///team?password=secret") == "postgresql:///team"
    assert without_password("postgresql:///team?password=secret&host=/run/pg") == "postgresql:///team?host=/run/pg"


def test_a_reader_of_replaced_bytes_keeps_the_old_ones_and_cannot_write(repository: PostgresRepository) -> None:
    store = repository.new("one", timestamp="", cwd="/")
    store.create([b"old bytes\n"])
    reader = repository.open(store.ref)
    assert reader.size() == 10
    store.replace([b"new\n"], expected_size=10)
    assert read_bytes(reader, 0, 100) == b"old bytes\n"
    with pytest.raises(ReplacedError):
        reader.append(b"late\n", expected_size=10)
    assert read_bytes(repository.open(store.ref), 0, 100) == b"new\n"


def test_bytes_across_many_appends_are_overwritten(repository: PostgresRepository) -> None:
    store = repository.new("one", timestamp="", cwd="/")
    store.create([b"0123"])
    store.append(b"4567", expected_size=4)
    store.append(b"89", expected_size=8)
    with store.exclusive():
        store.overwrite(2, b"abcdefg", b"2345678")
    assert read_bytes(store, 0, 100) == b"01abcdefg9"


def test_a_failed_read_of_new_bytes_replaces_nothing(repository: PostgresRepository) -> None:
    store = repository.new("one", timestamp="", cwd="/")
    store.create([b"old\n"])

    def broken() -> object:
        yield b"new\n"
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            store.replace(broken(), expected_size=4)  # type: ignore[arg-type]
    assert read_bytes(store, 0, 100) == b"old\n"
    store.replace([b"new\n"], expected_size=4)
    assert read_bytes(store, 0, 100) == b"new\n"


def test_a_write_whose_connection_broke_is_settled_by_resolve(repository: PostgresRepository) -> None:
    with sessiontree.create(home=repository.home) as session:
        session.append("user", "one")
        with repository.connection() as connection, repository.connect() as other:
            pid = connection.info.backend_pid
            other.execute("SELECT pg_terminate_backend(%s)", [pid])
        with pytest.raises(StoreError):
            session.append("user", "two")
        with pytest.raises(StoreError):
            session.append("user", "three")
        assert session.resolve() == []
        session.append("user", "two again")
    texts = [message.text for message in sessiontree.open(str(session.ref)).context().messages]
    assert texts == ["one", "two again"]


def test_reading_goes_on_after_the_server_ended_the_connections(repository: PostgresRepository) -> None:
    store = repository.new("one", timestamp="", cwd="/")
    store.create([b"bytes\n"])
    with repository.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert store.size() == 6


def test_a_late_statement_of_a_resolved_write_changes_nothing(repository: PostgresRepository) -> None:
    store = repository.new("one", timestamp="", cwd="/")
    store.create([b"head\n"])
    late = repository.open(store.ref)
    late.size()
    store._failure = store._fail("append", psycopg.OperationalError("the connection broke"))
    store.resolve()
    assert late.append(b"late\n", expected_size=5) is None, "its fence is an older one"
    assert late.append(b"now\n", expected_size=late.size()) == 9


def test_eight_threads_lose_nothing(repository: PostgresRepository) -> None:
    with sessiontree.create(home=repository.home) as session:
        session.append("user", "start")

        def write(number: int) -> None:
            with sessiontree.open(str(session.ref)) as mine:
                for step in range(10):
                    mine.append("user", f"{number}-{step}")

        threads = [threading.Thread(target=write, args=[number]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with sessiontree.open(str(session.ref)) as opened:
        assert len(opened) == 81
        assert opened.problems == []


def test_without_psycopg_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sessiontree.stores.postgres.repository", None)
    with pytest.raises(UsageError, match=r"pip install 'sessiontree\[postgres\]'"):
        open_repository("postgresql://db.example/team")
