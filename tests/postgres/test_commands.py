"""The commands on sessions in PostgreSQL: everything stays in the database, and transfers are exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.cli import main
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.postgres.repository import PostgresRepository
from sessiontree.stores.repositories import open_repository
from tests.postgres.conftest import MakeRepository


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(list(arguments)) == code
    return capsys.readouterr().out


def write_session(home: Any, text: str = "Sort this list by clock.") -> sessiontree.Session:
    session = sessiontree.create(home=home, cwd=".")
    question = session.append("user", text)
    session.append("assistant", [{"type": "text", "text": "Quicksort?"}])
    session.branch(at=question.id).append("assistant", [{"type": "text", "text": "Merge sort!"}])
    session.close()
    return session


def all_bytes(home: Any, id: str) -> bytes:
    repository = open_repository(home)
    store = repository.open(repository.find(id))
    return read_bytes(store, 0, store.size())


def test_sessions_are_listed_searched_shown_forked_and_checked(
    repository: PostgresRepository, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = write_session(repository.home)
    ref = str(session.ref)
    assert session.id[:8] in printed(capsys, "list", "--home", repository.home)
    assert "«clock»" in printed(capsys, "search", "clock", "--home", repository.home)
    assert "Merge sort!" in printed(capsys, "tree", ref)
    assert "branches     2" in printed(capsys, "info", ref)
    fork = printed(capsys, "fork", ref).strip()
    assert fork.startswith(repository.home)
    assert printed(capsys, "doctor", ref, fork)
    printed(capsys, "append", ref, "user", "And now?")
    assert "And now?" in printed(capsys, "show", ref)
    assert len(list(repository.iter_stats())) == 2
    assert not (home / "sessions").exists(), "nothing of it is in the home folder"


def test_sessions_are_pushed_and_pulled_byte_for_byte_and_only_once(
    repository: PostgresRepository, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = "x" * 100_000
    session = sessiontree.create(home=home, cwd=".")
    session.append("user", [{"type": "image", "mimeType": "image/png", "data": "aGVsbG8=" * 2000}])
    session.append("user", image)
    session.close()
    other = write_session(home)
    assert "to copy" in printed(capsys, "push", repository.home, "--dry-run")
    assert list(repository.iter_stats()) == []
    assert printed(capsys, "push", repository.home).count("copied") == 2
    assert printed(capsys, "push", repository.home) == "", "the second time nothing is left to copy"
    for id in (session.id, other.id):
        assert all_bytes(repository.home, id) == all_bytes(home, id)

    with sessiontree.open(str(repository.find(other.id))) as remote:
        remote.append("user", "written in the database")
    assert "extended" in printed(capsys, "pull", repository.home)
    assert all_bytes(home, other.id) == all_bytes(repository.home, other.id)

    elsewhere = str(tmp_path / "elsewhere")
    printed(capsys, "pull", repository.home, "--home", elsewhere)
    for id in (session.id, other.id):
        assert all_bytes(elsewhere, id) == all_bytes(home, id)
    with sessiontree.open(session.id, home=elsewhere) as copy:
        original = sessiontree.open(session.id, home=home).context().messages
        assert copy.context().messages == original, "with the large content"


def test_a_session_that_grew_in_both_homes_is_reported_and_left_alone(
    repository: PostgresRepository, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = write_session(home)
    printed(capsys, "push", repository.home)
    for place in (home, repository.home):
        with sessiontree.open(session.id, home=place) as opened:
            opened.append("user", f"only in {place}")
    before = all_bytes(home, session.id), all_bytes(repository.home, session.id)
    assert "diverged" in printed(capsys, "push", repository.home, code=4)
    assert (all_bytes(home, session.id), all_bytes(repository.home, session.id)) == before


def test_the_store_is_upgraded_shown_verified_and_cleaned_up(
    make_repository: MakeRepository, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = make_repository("kept")
    session = write_session(repository.home)
    with sessiontree.open(str(session.ref)) as opened:
        for number in range(20):
            opened.append("user", f"{number}")
    before = all_bytes(repository.home, session.id)
    printed(capsys, "store", "upgrade", "--home", repository.home)
    assert "sessions  1" in printed(capsys, "store", "status", "--home", repository.home)
    assert repository.status().parts > 20
    printed(capsys, "store", "vacuum", "--home", repository.home)
    assert repository.status().parts == 1
    assert all_bytes(repository.home, session.id) == before
    with sessiontree.open(str(session.ref)) as opened:
        opened.append("user", "appending goes on")
    assert printed(capsys, "store", "verify", "--home", repository.home) == ""

    with repository.connection() as connection:
        connection.execute("UPDATE sessiontree.session SET size = size + 1")
    found = printed(capsys, "store", "verify", "--home", repository.home, code=3)
    assert f"session {session.id}" in found


def test_verify_reports_rows_whose_ids_are_not_listed(
    repository: PostgresRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.new("one", timestamp="", cwd="/").create([b"line\n"])
    with repository.connection() as connection:
        connection.execute("UPDATE sessiontree.session SET session = '../\u001b[31mone'")
        connection.execute("UPDATE sessiontree.part SET session = '../\u001b[31mone'")
    assert [stat.id for stat in repository.iter_stats()] == []
    found = printed(capsys, "store", "verify", "--home", repository.home, code=3)
    assert r"session '../\x1b[31mone': another program wrote this row" in found


def test_backups_are_removed_after_some_days(repository: PostgresRepository) -> None:
    store = repository.new("one", timestamp="", cwd="/")
    store.create([b"old\n"])
    store.replace([b"new\n"], expected_size=4)
    assert repository.status().backups == 1
    assert repository.vacuum(days=1) == (0, 0)
    assert repository.vacuum(days=0) == (0, 1)
    assert read_bytes(store, 0, 100) == b"new\n"


@pytest.mark.parametrize(("backups", "removed"), [(1, "1 row of"), (2, "2 rows of")])
def test_vacuum_counts_rows(
    repository: PostgresRepository, capsys: pytest.CaptureFixture[str], backups: int, removed: str
) -> None:
    store = repository.new("one", timestamp="", cwd="/")
    store.create([b"old\n"])
    for _ in range(backups):
        store.replace([b"new\n"], expected_size=4)
    assert main(["store", "vacuum", "--days", "0", "--home", repository.home]) == 0
    assert f"0 rows merged, {removed} old backups removed" in capsys.readouterr().err


def test_a_folder_of_sessions_has_no_tables(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "status"]) == 2
    assert "sessiontree doctor" in capsys.readouterr().err
