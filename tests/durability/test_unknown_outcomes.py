"""Writes whose outcome is unknown: the connection or the process dies between an append and its return."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pytest

import sessiontree
from sessiontree.errors import WriteError
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.file import FileStore
from sessiontree.stores.memory import MemoryRepository, MemoryStore
from sessiontree.testing.faults import FailingOsCalls


class LateStore(MemoryStore):
    """A store behind a connection: a cut loses the answer to a write, which is committed later or never."""

    def __init__(self, data: bytes | None = None) -> None:
        super().__init__(data)
        self.cut: str | None = None
        """What happens to the next write: "committed", "late" (at `resolve`) or "never"."""
        self._in_flight: bytes | None = None
        self._is_broken = False

    def create(self, data: Iterable[bytes]) -> None:
        cut, self.cut = self.cut, None
        if cut != "never":
            super().create(data)
        if cut is not None:
            self._break()

    def append(self, data: bytes, *, expected_size: int) -> int | None:
        if self._is_broken:
            raise WriteError("the connection is broken")
        cut, self.cut = self.cut, None
        if cut is None or cut == "committed":
            found = super().append(data, expected_size=expected_size)
            if cut is None or found is None:
                return found
        elif expected_size != self.size():
            return None
        elif cut == "late":
            self._in_flight = data
        self._break()
        raise AssertionError

    def resolve(self) -> None:
        """Wait for the transaction that was in flight."""
        self._is_broken = False
        data, self._in_flight = self._in_flight, None
        if data is not None:
            super().append(data, expected_size=self.size())

    def _break(self) -> None:
        self._is_broken = True
        raise WriteError("the connection broke; the outcome is unknown")


def connected() -> tuple[LateStore, Session]:
    store = LateStore()
    session = sessiontree.create(cwd="/", store=store, appear="now")
    session.append("user", "first")
    return store, session


def ids_in(store: MemoryStore) -> list[str]:
    return open_store(MemoryStore(bytes(store._data or b""))).ids


@pytest.mark.parametrize("outcome", ["committed", "late", "never"])
def test_after_resolve_the_session_and_the_store_agree(outcome: str) -> None:
    store, session = connected()
    first = session.leaf
    store.cut = outcome
    with pytest.raises(WriteError, match="unknown"):
        session.append("user", "second")
    with pytest.raises(WriteError):
        session.append("user", "not yet")
    found = session.resolve()
    assert session.ids == ids_in(store)
    assert found == session.ids[1:] == ([] if outcome == "never" else [session.leaf])
    if outcome == "never":
        assert session.leaf == first
    parent = session.leaf
    third = session.append("user", "third")
    assert third.parent_id == parent
    assert session.ids == ids_in(store)


@pytest.mark.parametrize("outcome", ["committed", "late", "never"])
def test_a_branch_continues_where_the_failed_write_left_it(outcome: str) -> None:
    store, session = connected()
    first = session.leaf
    branch = session.branch()
    store.cut = outcome
    with pytest.raises(WriteError):
        branch.append("user", "second")
    found = session.resolve()
    assert session.leaf == first
    assert branch.leaf == (found[0] if found else first)


@pytest.mark.parametrize("outcome", ["committed", "late", "never"])
def test_a_move_is_where_the_store_is(outcome: str) -> None:
    store, session = connected()
    first = session.leaf
    second = session.append("user", "second").id
    store.cut = outcome
    with pytest.raises(WriteError):
        session.move(first)
    session.resolve()
    assert session.leaf == (second if outcome == "never" else first) == session.follow()


@pytest.mark.parametrize("outcome", ["committed", "late", "never"])
def test_repeating_a_write_with_an_id_of_its_own_never_duplicates_it(outcome: str) -> None:
    store, session = connected()
    store.cut = outcome
    with pytest.raises(WriteError):
        session.append_entry({"role": "user", "content": "second"}, id="mine")
    session.resolve()
    session.append_entry({"role": "user", "content": "second"}, id="mine")
    assert ids_in(store).count("mine") == 1
    assert session.leaf == "mine"
    store.cut = outcome
    lines = [b'{"type":"custom","id":"%d","parentId":"mine","customType":"x"}' % number for number in range(3)]
    with pytest.raises(WriteError):
        session.append_lines(lines)
    session.resolve()
    session.append_lines(lines)
    assert session.ids[2:] == ids_in(store)[2:] == ["0", "1", "2"]


def test_an_entry_that_arrives_before_resolve_is_not_reported_as_another_writers() -> None:
    store, session = connected()
    store.cut = "committed"
    with pytest.raises(WriteError):
        session.append("user", "second")
    seen: list[str] = []
    session.on_entry(lambda entry: seen.append(entry.id))
    (found,) = session.resolve()
    assert session.refresh() == []
    assert seen == []
    assert session.leaf == found


@pytest.mark.parametrize("outcome", ["committed", "never"])
def test_a_session_whose_creation_was_cut_off_continues_in_its_store(outcome: str) -> None:
    store = LateStore()
    session = sessiontree.create(cwd="/", store=store)
    store.cut = outcome
    with pytest.raises(WriteError):
        session.append("user", "first")
    found = session.resolve()
    assert session.is_pending == (outcome == "never")
    if not found:
        session.append("user", "first")
    session.append("user", "second")
    assert len(session) == 2
    assert session.ids == ids_in(store)
    assert session.path_ids() == session.ids


def test_an_entry_whose_sync_failed_is_in_the_file_after_resolve(tmp_path: Path) -> None:
    sessiontree.create(cwd="/", path=tmp_path / "s.jsonl", appear="now").close()
    os_calls = FailingOsCalls()
    session = open_store(FileStore(tmp_path / "s.jsonl", os_calls=os_calls), durability="append")
    os_calls.fail("fsync", 5)
    with pytest.raises(WriteError, match="fsync"):
        session.append("user", "first")
    (found,) = session.resolve()
    assert session.leaf == found
    assert sessiontree.open(tmp_path / "s.jsonl").ids == [found]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_around_the_write_leaves_an_entry_once(tmp_path: Path, when: str) -> None:
    path = tmp_path / "s.jsonl"
    session = sessiontree.create(cwd="/", path=path, appear="now")
    session.append("user", "first")
    ids = session.ids
    session.close()
    code = f"""
        import os, signal, sessiontree
        from sessiontree.session.open import open_store
        from sessiontree.stores.file import FileStore
        from sessiontree.stores.os_calls import OsCalls

        class Dying(OsCalls):
            def write(self, fd, data):
                if {when!r} == "after":
                    super().write(fd, data)
                os.kill(os.getpid(), signal.SIGKILL)

        session = open_store(FileStore({str(path)!r}, os_calls=Dying()))
        session.append_entry({{"role": "user", "content": "second"}}, id="mine")
    """
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    assert sessiontree.open(path).ids.count("mine") == (1 if when == "after" else 0)
    again = sessiontree.open(path)
    again.append_entry({"role": "user", "content": "second"}, id="mine")
    assert sessiontree.open(path).ids == [*ids, "mine"]
    assert again.problems == []
    assert os.listdir(tmp_path) == ["s.jsonl"]


def test_a_repositorys_session_is_created_once(tmp_path: Path) -> None:
    repository = MemoryRepository("memory:once")
    store = repository.new("abc", timestamp="2026-01-01T00:00:00.000Z", cwd="/")
    session = sessiontree.create(cwd="/", store=store, id="abc")
    session.append("user", "first")
    with pytest.raises(sessiontree.StoreError, match="exists"):
        repository.new("abc", timestamp="2026-01-01T00:00:00.000Z", cwd="/").create([b"x"])
    assert [stat.id for stat in repository.iter_stats()] == ["abc"]
