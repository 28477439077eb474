"""Tenants share a database, and read, list, search and guess nothing of each other."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import sessiontree
from sessiontree.cli import main
from sessiontree.core.messages import message_text
from sessiontree.errors import NotFoundError, SessionTreeError, UsageError
from sessiontree.stores.contract import SessionRef, read_bytes
from sessiontree.stores.postgres import open_postgres_repository
from sessiontree.stores.postgres import tenants as tenants_module
from sessiontree.stores.postgres.repository import PostgresRepository
from sessiontree.stores.postgres.tenants import QuotaError, find_tenant, with_tenant, without_tenant
from sessiontree.testing import check_repository
from tests.postgres.conftest import MakeRepository

SECRET = "kumquat"
TABLES = ("session", "part", "blob", "document", "session_index", "tenant")
ARCHIVE = ("item", "part")

OpenTenant = Callable[[str], PostgresRepository]


@pytest.fixture
def tenant(repository: PostgresRepository) -> Iterator[OpenTenant]:
    opened: dict[str, PostgresRepository] = {}

    def open_tenant(name: str) -> PostgresRepository:
        if name not in opened:
            opened[name] = open_postgres_repository(repository.add_tenant(name))
        return opened[name]

    yield open_tenant
    for found in opened.values():
        found.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "SESSIONTREE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def fill(repository: PostgresRepository, chance: random.Random) -> list[str]:
    """Write sessions with everything that belongs to them, all with a secret; returns their ids."""
    ids: list[str] = []
    for _ in range(chance.randint(1, 3)):
        with sessiontree.create(home=repository.home, cwd=".") as session:
            first = session.append("user", f"{SECRET} {chance.random()}")
            session.append("assistant", [{"type": "text", "text": f"{SECRET}!"}])
            if chance.random() < 0.7:
                session.append("user", f"{SECRET} " * 20_000)
            if chance.random() < 0.5:
                session.append({"type": "label", "targetId": first.id, "label": SECRET})
            if chance.random() < 0.5:
                session.fork()
            ids.append(session.id)
        main(["tag", str(session.ref), SECRET])
    main(["keep", str(session.ref)])
    return ids


@pytest.mark.slow
def test_the_contract_of_repositories_holds_for_a_tenant(make_repository: MakeRepository) -> None:
    assert check_repository(lambda name: open_postgres_repository(make_repository(name).add_tenant("alice")))


def test_no_verb_shows_a_tenant_anything_of_another(
    repository: PostgresRepository, tenant: OpenTenant, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    alice, bob = tenant("alice"), tenant("bob")
    ids = [*fill(alice, chance), *fill(repository, chance)]
    with sessiontree.create(home=bob.home, cwd=".") as own:
        own.append("user", "my own text")
        own.append("assistant", [{"type": "text", "text": "an answer"}])
    with repository.connect() as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sessiontree.blob")]
    capsys.readouterr()

    # The repository
    assert [stat.id for stat in bob.iter_stats()] == [own.id]
    unknown = "01900000-0000-7000-8000-000000000000"
    for id in ids:
        verbs: list[Callable[[str], Any]] = [
            bob.find,
            lambda id: bob.find(id[:13]),
            lambda id: bob.open(SessionRef(id, bob.home)),
            lambda id: bob.delete(SessionRef(id, bob.home)),
            lambda id: main_error(["restore", id, "--home", bob.home]),
            lambda id: main_error(["keep", id, "--home", bob.home]),
            lambda id: main_error(["prune", id, "--branch", "x", "--home", bob.home]),
            lambda id: main_error(["shrink", id, "--home", bob.home]),
            lambda id: sessiontree.open(f"{bob.home}/{id}"),
            lambda id: sessiontree.open(id, home=bob.home),
        ]
        for verb in verbs:
            assert error_of(verb, id) == error_of(verb, unknown), "as if there were no such session"
        assert list(bob.watch(SessionRef(id, bob.home), timeout=0)) == []
        assert bob.stat(SessionRef(id, bob.home)) is None
        # Creating the same id works, and is another session.
        mine = bob.new(id, timestamp="", cwd="/")
        assert not mine.exists()
        mine.create([b"mine\n"])
        assert read_bytes(mine, 0, 100) == b"mine\n"
        bob.delete(mine.ref)
    assert bob.archived() == []
    for item, _ in (*alice.archived(), *repository.archived()):
        for use in (bob.remove_archived, lambda item: list(bob.read_archived(item))):
            with pytest.raises(NotFoundError):
                use(item)
        with pytest.raises(NotFoundError):
            bob.restore_archived(item, SessionRef(unknown, bob.home), remove=True)
    assert len(alice.archived()) == len(repository.archived()) == 1, "and nothing was removed"
    for name in names:
        assert bob.blobs.get(name) is None
    assert bob.documents.read("tags.json") is None
    content = f"{SECRET} again".encode()
    name = alice.blobs.put(content)
    assert bob.blobs.get(name) is None
    assert bob.blobs.put(content) == name
    assert bob.blobs.get(name) == content, "the same content is stored for each of them"

    # The commands
    for arguments in (
        *(["list"], ["list", "--all"], ["list", "--json"], ["search", SECRET], ["search", "text"], ["stats"]),
        *(["restore", "--list"], ["clean", "--older-than", "1h"], ["keep", "--all"], ["store", "tokens"]),
        *(["store", "status"], ["store", "verify"], ["history"], ["doctor"], ["search", f"re:/{SECRET[:4]}/"]),
        *([verb, id] for id in ids for verb in ("show", "tree", "info", "context", "export", "fork", "branches")),
    ):
        main([*arguments, "--home", bob.home])
        printed = capsys.readouterr()
        shown = printed.out + printed.err.replace(f"'{SECRET}'", "")
        asked = arguments[1] if len(arguments) > 1 else ""
        assert SECRET not in shown.replace(asked, ""), arguments
        assert not [id for id in ids if id != asked and id in shown], arguments


def main_error(arguments: list[str]) -> None:
    """Run a command, and raise what it printed if it failed."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
        code = main(arguments)
    if code:
        raise SessionTreeError(printed.getvalue())


def error_of(verb: Callable[[str], Any], id: str) -> str:
    with pytest.raises(SessionTreeError) as raised:
        verb(id)
    return f"{type(raised.value).__name__} {raised.value}".replace(id, "ID").replace(id[:13], "ID")


def test_row_level_security_holds_for_statements_that_name_no_tenant(
    repository: PostgresRepository, tenant: OpenTenant, home: Path
) -> None:
    alice, bob = tenant("alice"), tenant("bob")
    ids = fill(alice, random.Random(1))
    main(["keep", ids[0], "--home", alice.home])
    assert len(alice.archived()) == 1
    with alice.connection() as connection:
        assert connection.execute("SELECT count(*) > 0 FROM sessiontree.part").fetchone() == (True,)
    for table in TABLES:
        with bob.connection() as connection:
            query = psycopg.sql.SQL("SELECT count(*) FROM sessiontree.{} WHERE tenant <> 'bob'")
            row = connection.execute(query.format(psycopg.sql.Identifier(table))).fetchone()
            assert row == (0,), table
    for table in ARCHIVE:
        with bob.connection() as connection:
            query = psycopg.sql.SQL("SELECT count(*) FROM sessiontree_archive.{}")
            row = connection.execute(query.format(psycopg.sql.Identifier(table))).fetchone()
            assert row == (0,), table
    for statement in (
        "SELECT * FROM sessiontree.part_3",
        "SELECT * FROM sessiontree.token",
        "UPDATE sessiontree.token SET tenant = 'bob'",
        "INSERT INTO sessiontree_archive.item (tenant, item, session, record, size) VALUES ('alice', 'x', 'x', '', 0)",
        "INSERT INTO sessiontree_archive.part VALUES ('alice', 'x', 0, '')",
        "INSERT INTO sessiontree.blob (tenant, name, data) VALUES ('alice', 'x', '')",
        "INSERT INTO sessiontree.session (tenant, session, size) VALUES ('alice', 'x', 0)",
        "UPDATE sessiontree.session SET tenant = 'alice'",
        "DELETE FROM sessiontree.tenant",
        "UPDATE sessiontree.tenant SET quota = NULL",
        "DROP TABLE sessiontree.blob",
        "ALTER TABLE sessiontree.session DISABLE ROW LEVEL SECURITY",
    ):
        bob.documents.update("own", lambda _: b"x")
        with sessiontree.create(home=bob.home) as own:
            own.append("user", "x")
        with pytest.raises(psycopg.errors.InsufficientPrivilege), bob.connection() as connection:
            connection.execute(psycopg.sql.SQL(statement))  # type: ignore[arg-type]
    with bob.connection() as connection:
        assert connection.execute("DELETE FROM sessiontree.session WHERE tenant = 'alice'").rowcount == 0


def test_the_role_ends_with_its_transaction(repository: PostgresRepository, tenant: OpenTenant) -> None:
    alice = tenant("alice")
    with alice.connection() as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("sessiontree_tenant_alice",)
    with alice._pool().connection() as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("tester",)


def test_a_tenant_that_was_not_added_is_refused(repository: PostgresRepository) -> None:
    with pytest.raises(NotFoundError, match="no tenant 'nobody'"):
        list(PostgresRepository(with_tenant(repository.home, "nobody")).iter_stats())
    with pytest.raises(UsageError, match="is not a tenant name"):
        PostgresRepository(f"{repository.home}&tenant=A%3BDROP")


def test_the_address_for_the_server_does_not_have_the_tenant() -> None:
    for address, bare in (
        ("postgresql://db/team?tenant=a", "postgresql://db/team"),
        ("postgresql://db/team?tenant=a&host=/run", "postgresql://db/team?host=/run"),
        ("postgresql://db/team?host=/run&tenant=a", "postgresql://db/team?host=/run"),
        ("postgresql://db/team?host=/run&tenant=a&port=1", "postgresql://db/team?host=/run&port=1"),
    ):
        assert without_tenant(address) == bare
        assert find_tenant(address) == "a"
        assert find_tenant(with_tenant(bare, "b")) == "b"
    assert find_tenant("postgresql://db/team?host=/run") == ""


def test_a_quota_refuses_writes_and_loses_nothing(
    repository: PostgresRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants_module, "SECONDS_BETWEEN_CHECKS", 0.0)
    alice = open_postgres_repository(repository.add_tenant("alice", quota=3000))
    with sessiontree.create(home=alice.home) as session:
        refusal: QuotaError | None = None
        stored = 0
        while refusal is None and stored < 1000:
            try:
                session.append("user", "x" * 100)
                stored += 1
            except QuotaError as error:
                refusal = error
        assert 5 < stored < 30
        assert "quota of the tenant 'alice' is used up" in str(refusal)
        with pytest.raises(QuotaError):
            sessiontree.create(home=alice.home, appear="now")
        repository.add_tenant("alice", quota=1_000_000)
        session.append("user", "more")
    assert len(sessiontree.open(str(session.ref)).context().messages) == stored + 1
    alice.close()


def test_tenants_are_added_listed_and_removed_by_commands(
    repository: PostgresRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "add-tenant", "alice", "--quota", "1.5MB", "--home", repository.home]) == 0
    address = capsys.readouterr().out.strip()
    assert find_tenant(address) == "alice"
    with sessiontree.create(home=address) as session:
        session.append("user", "hello")
    main(["store", "tenants", "--home", repository.home])
    assert "1 session," in (shown := capsys.readouterr().out)
    assert "of 1,500,000" in shown
    assert main(["store", "remove-tenant", "alice", "--home", repository.home]) == 1
    assert "has 1 session;" in capsys.readouterr().err
    assert main(["store", "add-tenant", "bob", "--home", address]) == 2, "a tenant cannot add tenants"
    open_postgres_repository(address).delete(session.ref)
    assert main(["store", "remove-tenant", "alice", "--home", repository.home]) == 0
    assert repository.tenants() == []


def test_every_action_of_store_prints_one_json_object(
    repository: PostgresRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> dict[str, object]:
        assert main(["store", *arguments, "--json", "--home", repository.home]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    run("add-tenant", "alice")
    run("add-token", "alice")
    (token,) = repository.tokens()
    assert run("revoke-token", token.id)["revoked"] == token.id
    assert run("audit", "on")["audit"] is True
    assert run("audit", "off")["audit"] is False
    assert run("blobs")["blobs"] is None
    assert run("remove-tenant", "alice")["removed"] == "alice"
    for action in ("status", "upgrade", "verify", "vacuum", "tenants", "tokens", "audit"):
        assert run(action)["home"] == repository.home


def test_tenants_share_the_connections_of_their_database(repository: PostgresRepository, tenant: OpenTenant) -> None:
    names = [f"team{number}" for number in range(8)]
    for name in names:
        with sessiontree.create(home=tenant(name).home, cwd="/") as session:
            session.append("user", f"{SECRET} of {name}")
    with repository.connect() as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sessiontree'"
            " AND datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    assert row[0] <= 2, "one for each that is used at the same time, not for each tenant"
    for name in names:
        (stat,) = tenant(name).iter_stats()
        (message,) = sessiontree.open(stat.ref).context().messages
        assert message_text(message) == f"{SECRET} of {name}"
