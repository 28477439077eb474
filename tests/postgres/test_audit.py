"""The log of writes: each write has one row, and old months are dropped."""

from __future__ import annotations

import json

import psycopg
import pytest

import sessiontree
from sessiontree.cli import main
from sessiontree.errors import UsageError
from sessiontree.stores.postgres import open_postgres_repository
from sessiontree.stores.postgres.repository import PostgresRepository


def test_every_write_has_one_row_and_nothing_else_has(
    repository: PostgresRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    store = repository.new("before", timestamp="", cwd="/")
    store.create([b"line\n"])
    assert repository.audit(limit=10) == [], "off by default"
    assert main(["store", "audit", "on", "--home", repository.home]) == 0
    alice = open_postgres_repository(repository.add_tenant("alice"))
    with sessiontree.create(home=alice.home) as session:
        session.append("user", "hello")
        session.append("user", "again")
    store.append(b"more\n", expected_size=5)
    assert store.append(b"late\n", expected_size=5) is None, "writes nothing"
    with store.exclusive():
        store.overwrite(0, b"LINE", b"line")
    store.replace([b"new\n"], expected_size=10)
    repository.delete(store.ref)
    with repository.connect() as connection, connection.transaction(force_rollback=True):
        connection.execute("INSERT INTO sessiontree.session (session, size) VALUES ('undone', 0)")
    found = [(record.tenant, record.action, record.size) for record in reversed(repository.audit(limit=100))]
    sizes = [size for tenant, action, size in found if tenant == "alice"]
    assert [action for tenant, action, _ in found if tenant == "alice"] == ["create", "append", "append"]
    assert sizes == sorted(sizes)
    assert [(action, size) for tenant, action, size in found if not tenant] == [
        ("append", 10),
        ("overwrite", 10),
        ("replace", 4),
        ("delete", 4),
    ]
    with pytest.raises(UsageError, match="cannot read the log of writes as a tenant"):
        alice.audit(limit=1)
    with pytest.raises(psycopg.errors.InsufficientPrivilege), alice.connection() as connection:
        connection.execute("SELECT * FROM sessiontree.audit")
    capsys.readouterr()
    main(["store", "audit", "--json", "--home", repository.home])
    assert json.loads(capsys.readouterr().out)["writes"][0]["action"] == "delete"
    repository.set_audit(enabled=False)
    before = len(repository.audit(limit=100))
    repository.new("after", timestamp="", cwd="/").create([b"x\n"])
    assert len(repository.audit(limit=100)) == before
    alice.close()


def test_months_that_ended_long_ago_are_dropped(repository: PostgresRepository) -> None:
    repository.set_audit(enabled=True)
    with repository.connect() as connection:
        connection.execute(
            "CREATE TABLE sessiontree.audit_2020_01 PARTITION OF sessiontree.audit"
            " FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-02-01 00:00+00')"
        )
        for at in ("2020-01-15", "2019-05-05"):
            connection.execute(
                "INSERT INTO sessiontree.audit VALUES (%s, '', 'old', 'me', 'append', 0, 1)", [f"{at} 00:00+00"]
            )
    repository.new("now", timestamp="", cwd="/").create([b"x\n"])
    repository.vacuum(days=30, audit_days=100_000)
    assert len(repository.audit(limit=10)) == 4
    repository.vacuum(days=30, audit_days=90)
    assert {record.session for record in repository.audit(limit=10)} == {"now"}
    with repository.connect() as connection:
        assert connection.execute("SELECT to_regclass('sessiontree.audit_2020_01')").fetchone() == (None,)
