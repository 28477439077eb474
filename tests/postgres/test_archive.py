"""The archive of sessions in a database is in the database, and every step can be undone."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

import sessiontree
from sessiontree.cli import main
from sessiontree.errors import ConflictError, ExistsError, NotFoundError
from sessiontree.stores.contract import ArchiveRepository, read_bytes
from sessiontree.stores.postgres import open_postgres_repository
from sessiontree.stores.postgres.repository import PostgresRepository
from sessiontree.stores.repositories import find_ref, open_repository

SECRET = "kumquat"
Run = Callable[..., Any]


@pytest.fixture
def run(repository: PostgresRepository, place: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command on the database; returns its JSON. No file may have been written for it."""

    def run(*arguments: str, code: int = 0, home: str = repository.home) -> Any:
        before = files_of(place)
        capsys.readouterr()
        assert main([*arguments, "--home", home, "--json"]) == code, capsys.readouterr().err
        printed = capsys.readouterr()
        new = {path: data for path, data in files_of(place).items() if before.get(path) != data}
        assert all("cache" in path for path in new), "only the caches of this machine's own files"
        assert not [path for path, data in new.items() if SECRET.encode() in data], new.keys()
        return json.loads(printed.out) if code == 0 else printed.err

    return run


def files_of(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def write_session(home: str) -> str:
    """A session with two branches that was last used long ago."""
    with sessiontree.create(home=f"memory:{uuid.uuid4()}", cwd=".") as session:
        first = session.append("user", f"Sort this {SECRET} list.")
        for text in ("Quicksort?", f"Merge the {SECRET}!"):
            session.branch(at=first.id).append("assistant", [{"type": "text", "text": text}])
        data = bytes_of(str(session.ref))
    old = re.sub(rb'"timestamp":"[^"]*"', b'"timestamp":"2020-01-02T03:04:05.000Z"', data)
    store = open_repository(home).new(session.id, timestamp="", cwd="/")
    store.create([old])
    return str(store.ref)


def dead_leaves(ref: str) -> list[str]:
    with sessiontree.open(ref) as session:
        return [leaf for leaf in session.leaves() if leaf != session.leaf]


def bytes_of(ref: str) -> bytes:
    found = find_ref(ref)
    store = open_repository(found.home).open(found)
    return read_bytes(store, 0, store.size())


def test_a_cleaned_session_moves_to_the_archive_of_its_database_and_back(
    repository: PostgresRepository, run: Run
) -> None:
    old, pinned = write_session(repository.home), write_session(repository.home)
    before = bytes_of(old)
    assert main(["pin", pinned]) == 0
    assert main(["tag", old, "work"]) == 0
    planned = run("clean", "--older-than", "30d")
    assert [session["path"] for session in planned["sessions"]] == [old]
    assert planned["spared"] == {"pinned": 1}
    assert bytes_of(old) == before, "without --yes nothing changes"
    assert run("clean", "--older-than", "30d", "--yes")["failed"] == []
    assert [str(stat.ref) for stat in repository.iter_stats()] == [pinned]
    with pytest.raises(NotFoundError):
        sessiontree.open(old)
    (item,) = run("restore", "--list")["items"]
    assert (item["path"], item["what"], item["size"]) == (old, "cleaned", len(before))
    assert run("store", "status")["archived"] == 1
    assert run("store", "verify")["problems"] == []
    assert run("restore", item["item"])["written"] == [old]
    assert bytes_of(old) == before
    assert run("restore", "--list")["items"] == []
    assert run("tag", old)["tags"] == ["work"], "tags stay with their session"


def test_a_pruned_branch_comes_back_with_what_was_added_since(repository: PostgresRepository, run: Run) -> None:
    ref = write_session(repository.home)
    before = bytes_of(ref)
    (dead,) = dead_leaves(ref)
    assert run("prune", ref, "--branch", dead)["done"] is False
    assert bytes_of(ref) == before
    item = run("prune", ref, "--branch", dead, "--yes")["item"]
    assert dead not in sessiontree.open(ref)
    with sessiontree.open(ref) as session:
        added = session.append("user", "more")
    assert run("restore", item)["written"] == [ref]
    assert bytes_of(ref).startswith(before)
    with sessiontree.open(ref) as session:
        assert dead in session
        assert session.leaf == added.id
        assert session.problems == []
    assert run("restore", item, code=1).startswith("sessiontree: no archive item")


def test_after_two_rewrites_the_newest_is_undone_first(repository: PostgresRepository, run: Run) -> None:
    ref = write_session(repository.home)
    with sessiontree.open(ref) as session:
        session.branch(at=session.ids[0]).append("user", "a third branch")
    before, dead = bytes_of(ref), dead_leaves(ref)
    assert len(dead) == 2
    items = [run("prune", ref, "--branch", leaf, "--yes")["item"] for leaf in dead]
    assert "was rewritten again since" in run("restore", items[0], code=1)
    assert run("restore", items[1])["written"] == [ref]
    assert run("restore", items[0])["written"] == [ref]
    assert bytes_of(ref) == before
    assert run("shrink", ref, "--dead-branches", "--yes")["item"]
    assert len(sessiontree.open(ref).leaves()) == 1
    assert run("restore", ref)["written"] == [ref]
    assert bytes_of(ref) == before


def test_a_kept_copy_is_refreshed_and_restored_and_never_overwrites(
    repository: PostgresRepository, run: Run, place: Path
) -> None:
    ref = write_session(repository.home)
    first = run("keep", ref)["kept"][0]["item"]
    assert run("keep", ref)["current"] == [ref]
    with sessiontree.open(ref) as session:
        session.append("user", "more")
    (second,) = run("keep", "--all")["kept"]
    assert second["item"] != first
    (item,) = run("restore", "--list")["items"]
    assert item["what"] == "copy"
    assert run("restore", item["item"])["written"] == [], "already in place"
    with sessiontree.open(ref) as session:
        session.append("user", "even more")
    assert "another session exists" in run("restore", item["item"], code=1)
    kept = bytes_of(ref)[: item["size"]]
    assert main(["restore", item["item"], "--out", str(place / "out.jsonl"), "--home", repository.home]) == 0
    assert (place / "out.jsonl").read_bytes() == kept
    (place / "out.jsonl").unlink()
    repository.delete(find_ref(ref))
    assert run("restore", item["item"])["written"] == [ref]
    assert bytes_of(ref) == kept
    assert len(run("restore", "--list")["items"]) == 1, "a copy stays in the archive"


def test_purging_deletes_sessions_and_archived_items_and_nothing_else(repository: PostgresRepository, run: Run) -> None:
    write_session(repository.home)
    run("clean", "--yes")
    old = write_session(repository.home)
    with sessiontree.create(home=repository.home) as recent:
        recent.append("user", "today")
    assert run("clean", "--purge")["done"] is False
    assert repository.status().sessions == 2
    with repository.connect() as connection:
        (record,) = [record for _, record in repository.archived()]
        aged = re.sub(rb'"when":"[^"]*"', b'"when":"2020-01-02T03:04:05.000Z"', record)
        connection.execute("UPDATE sessiontree_archive.item SET record = %s", [aged])
    purged = run("clean", "--purge", "--yes")
    assert len(purged["fromArchive"]) == 1
    assert [session["path"] for session in purged["sessions"]] == [old]
    assert [stat.id for stat in repository.iter_stats()] == [recent.id]
    status = repository.status()
    assert (status.archived, status.archived_size) == (0, 0)
    with repository.connect() as connection:
        assert connection.execute("SELECT count(*) FROM sessiontree_archive.part").fetchone() == (0,)


def test_archiving_a_session_that_changes_meanwhile_is_refused_and_loses_nothing(
    repository: PostgresRepository, run: Run
) -> None:
    assert isinstance(repository, ArchiveRepository)
    ref = write_session(repository.home)
    stat = repository.stat(find_ref(ref))
    assert stat is not None
    with sessiontree.open(ref) as session:
        session.append("user", "more")
    with pytest.raises(ConflictError, match="changed while it was being archived"):
        repository.archive("item", b"{}", stat, remove=True)
    assert repository.archived() == []
    stat = repository.stat(find_ref(ref))
    assert stat is not None
    repository.archive("item", b"not a record", stat, remove=False)
    with pytest.raises(ExistsError):
        repository.restore_archived("item", stat.ref, remove=True)
    assert [id for id, _ in repository.archived()] == ["item"]
    assert run("restore", "--list")["items"] == [], "a damaged record is skipped and reported"
    repository.remove_archived("item")
    for verb in (repository.remove_archived, lambda id: list(repository.read_archived(id))):
        with pytest.raises(NotFoundError):
            verb("item")


def test_the_archive_of_a_tenant_is_its_own_and_counts_for_its_quota(repository: PostgresRepository, run: Run) -> None:
    alice, bob = (open_postgres_repository(repository.add_tenant(name)) for name in ("alice", "bob"))
    ref = write_session(alice.home)
    before = bytes_of(ref)
    run("clean", "--yes", home=alice.home)
    (item,) = run("restore", "--list", home=alice.home)["items"]
    for other in (bob.home, repository.home):
        assert run("restore", "--list", home=other)["items"] == []
        assert "no archive item matches" in run("restore", item["item"], code=1, home=other)
        found = open_postgres_repository(other)
        assert found.archived() == []
        for verb in (found.remove_archived, lambda id, found=found: list(found.read_archived(id))):
            with pytest.raises(NotFoundError):
                verb(item["item"])
    with bob.connection() as connection:
        for table in ("item", "part"):
            count = sql.SQL("SELECT count(*) FROM sessiontree_archive.{}").format(sql.Identifier(table))
            row = connection.execute(count).fetchone()
            assert row == (0,)
    sizes = {found.tenant: found.size for found in repository.tenants()}
    assert sizes["alice"] >= len(before)
    assert sizes["bob"] == 0
    with pytest.raises(ExistsError, match="the archive of the tenant 'alice' has 1 item"):
        repository.remove_tenant("alice")
    run("restore", item["item"], home=alice.home)
    assert bytes_of(ref) == before
    alice.close()
    bob.close()


def test_an_action_of_a_front_end_archives_in_the_database_and_is_undone(
    repository: PostgresRepository, place: Path
) -> None:
    from sessiontree.app.workbench import Workbench
    from sessiontree.library import Library

    ref = write_session(repository.home)
    before = bytes_of(ref)
    with Library(repository.home) as library:
        workbench = Workbench(library, str(place / "work"))
        done = workbench.plan("archive", library.find(ref)).do()
        assert list(repository.iter_stats()) == []
        assert [item.path for item in workbench.home.items()] == [ref]
        assert done.undo is not None
        done.undo.do()
    assert bytes_of(ref) == before
    assert not list((place / "sessiontree_home").rglob("archive")), "no archive in the home folder"
