"""A database of sessions that another user of it filled with hostile values."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from sessiontree.cli import main
from sessiontree.stores.postgres.repository import PostgresRepository
from tests.postgres.conftest import make_repository, repository  # noqa: F401 - fixtures

HEADER = {"type": "session", "version": 3, "id": "x", "timestamp": "../../../../evil", "cwd": "/a", "sessiontree": 1}


@pytest.mark.parametrize("id", ["../../evil", ",evil.example/x", "a\x1b[31mb\nfake", "", "/abs.jsonl"])
def test_an_id_in_a_database_leads_nowhere_else(
    repository: PostgresRepository,  # noqa: F811
    id: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in ("good", "other"):
        store = repository.new(name, timestamp="2026", cwd="/a")
        store.create([json.dumps(HEADER).encode() + b"\n"])
        store.close()
    with psycopg.connect(repository.home) as connection:
        connection.execute("SET session_replication_role = replica")
        for table in ("session", "part"):
            connection.execute(f"UPDATE sessiontree.{table} SET session = %s WHERE session = 'good'", [id])  # type: ignore[arg-type]
    home = tmp_path / "outer" / "home"
    assert main(["pull", repository.home, "--home", str(home)]) == 0
    shown = capfd.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "evil" not in shown.out + shown.err, "no connection to another server was tried"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name.partition("_")[2] for path in files if path.suffix == ".jsonl"] == ["other.jsonl"]
    assert all(path.is_relative_to(home) for path in files)
    main(["list", "--all", "--json", "--home", repository.home])
    listed = json.loads(capfd.readouterr().out)["sessions"]
    assert [one["path"].rpartition("/")[2] for one in listed if "postgresql" in one["path"]] == ["other"]
