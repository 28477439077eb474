"""The snapshot: known sessions at once, in any thread, and changes from one background scan."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.errors import StoreError
from sessiontree.library import Library, Summary
from sessiontree.library.aggregate import build_statistics, select_sessions
from sessiontree.library.cache import Cache, cache_path
from sessiontree.library.snapshot import Change
from sessiontree.library.summary_reader import SummaryRead
from tests.library.world import IDS, World, append, claude_lines


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of session files that are opened or whose status is read."""
    found: list[str] = []

    def counted(name: str) -> None:
        real = getattr(os, name)

        def call(path: Any, *arguments: Any, **more: Any) -> Any:
            if str(path).endswith(".jsonl"):
                found.append(f"{name} {path}")
            return real(path, *arguments, **more)

        monkeypatch.setattr(os, name, call)

    for name in ("open", "stat", "lstat", "scandir"):
        counted(name)
    return found


def kinds(changes: Iterator[Change]) -> list[tuple[str, str]]:
    return sorted((change.kind, change.summary.id) for change in changes)


def test_known_sessions_are_available_without_touching_a_session(world: World, calls: list[str]) -> None:
    for number in range(5):
        world.claude(IDS[number], "/x")
    with world.library() as library:
        listed = {one.ref: one for one in library.everything()}
    assert calls, "a scan is counted"
    calls.clear()
    with world.library() as library:
        assert {one.ref: one for one in library.snapshot().sessions} == listed
        assert library.snapshot().find(next(iter(listed))) in listed.values()
        assert library.snapshot().find("/nowhere") is None
    assert calls == []


def test_the_first_snapshot_is_empty_and_a_scan_adds_everything(world: World) -> None:
    world.claude(IDS[0], "/x")
    with world.library() as library:
        assert library.snapshot().sessions == ()
        assert kinds(library.snapshot().follow()) == [("added", IDS[0])]
        assert [one.id for one in library.snapshot().sessions] == [IDS[0]]


def test_a_scan_reports_what_was_added_changed_and_removed(world: World) -> None:
    paths = [world.claude(IDS[number], "/x") for number in range(3)]
    with world.library() as library:
        library.refresh()
    append(paths[0], claude_lines(IDS[0], "/x", ["more"], minute=9))
    paths[1].unlink()
    world.claude(IDS[5], "/x")
    with world.library() as library:
        changes = library.snapshot().follow()
        assert sorted(one.id for one in changes.sessions) == sorted(IDS[:3])
        assert kinds(changes) == [("added", IDS[5]), ("changed", IDS[0]), ("removed", IDS[1])]
        assert sorted(one.id for one in library.snapshot().sessions) == sorted([IDS[0], IDS[2], IDS[5]])
        assert sorted(one.ref for one in library.everything()) == sorted(
            one.ref for one in library.snapshot().sessions
        ), "the same scan answers `everything`"
        assert kinds(library.snapshot().follow()) == [], "nothing changed since"


def test_any_number_of_readers_share_one_scan(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        world.claude(IDS[number], "/x")
    scans = []
    real = Library.refresh
    go = threading.Event()

    def refresh(library: Library) -> None:
        scans.append(library)
        go.wait(10)
        real(library)

    monkeypatch.setattr(Library, "refresh", refresh)
    with world.library() as library:
        snapshot = library.snapshot()
        readers = [snapshot.follow() for _ in range(4)]
        found: list[list[tuple[str, str]]] = [[] for _ in readers]

        def read(number: int) -> None:
            found[number] = kinds(readers[number])

        threads = [threading.Thread(target=read, args=(number,)) for number in range(len(readers))]
        for thread in threads:
            thread.start()
        go.set()
        for thread in threads:
            thread.join(30)
        assert found == [sorted(("added", id) for id in IDS[:20])] * 4
        assert len(scans) == 1


def test_a_reader_that_joins_later_misses_nothing(world: World) -> None:
    """Whatever it joins, its first sessions and its changes make up the result."""
    for number in range(60):
        world.claude(IDS[number], "/x")
    with world.library() as library:
        first = library.snapshot().follow()
        next(first)
        second = library.snapshot().follow()
        known = {one.ref: one for one in second.sessions}
        for change in second:
            if change.kind == "removed":
                del known[change.summary.ref]
            else:
                known[change.summary.ref] = change.summary
        assert known == {one.ref: one for one in library.snapshot().sessions}
        assert len(known) == 60


def test_a_failed_scan_is_raised_in_each_reader(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Library) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(Library, "refresh", fail)
    with world.library() as library:
        for changes in (library.snapshot().follow(), library.snapshot().follow()):
            with pytest.raises(StoreError, match="the disk is gone"):
                list(changes)
            assert list(changes) == [], "and only once"


def test_closing_the_library_ends_a_background_scan(world: World) -> None:
    for number in range(40):
        world.claude(IDS[number], "/x")
    started = threading.Event()

    def slowly(done: int, total: int) -> None:
        started.set()
        time.sleep(0.02)

    library = world.library(progress=slowly)
    changes = library.snapshot().follow()
    assert started.wait(10)
    library.close()
    with pytest.raises(StoreError, match="closed during a scan"):
        list(changes)
    with world.library() as again:
        assert len(again.everything()) == 40


def test_threads_use_the_cache_at_once(world: World) -> None:
    cache = Cache(cache_path(world.environment))
    summaries = [summary(f"/r/{number}.jsonl") for number in range(200)]

    def work(part: int) -> None:
        for one in summaries[part::4]:
            cache.store([(SummaryRead(one, None, 0), (1, 2, 3), "pi")])
            assert cache.rows(["/r"])[one.ref].summary == one
            assert cache.find_stamp(one.ref) == (1, 2, 3)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))  # raises what a thread raised
    assert sorted(one.ref for one in cache.summaries({"/r": "pi"})) == sorted(one.ref for one in summaries)
    cache.close()


def summary(ref: str) -> Summary:
    return Summary(ref, "pi", "id", "t", False, "/x", None, None, 1, 1, True, 1, 1)


_PROCESS = """
import sys, threading
from sessiontree.library import Library

with Library() as library:
    snapshot = library.snapshot()
    for _ in range(8):
        readers = [snapshot.follow() for _ in range(2)]
        for reader in readers:
            list(reader)
        library.refresh()
        assert len(snapshot.sessions) == 50, len(snapshot.sessions)
"""


def test_two_processes_with_two_threads_each_use_the_cache_at_once(world: World) -> None:
    for number in range(50):
        world.claude(IDS[number], "/x")
    environment = {**os.environ, **world.environment}
    processes = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", _PROCESS], env=environment, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in processes:
        _, printed = process.communicate(timeout=60)
        assert (process.returncode, printed.decode()) == (0, "")


# Sessions of other repositories


def test_sessions_in_memory_are_listed_found_searched_and_counted_without_a_trace(world: World, tmp_path: Path) -> None:
    home = f"memory:{tmp_path.name}"
    session = sessiontree.create("/x", home=home)
    session.append("user", "where are the walnuts?")
    session.append("assistant", "in the attic")
    world.claude(IDS[0], "/x", ["walnuts, too"])
    with world.library(home=home) as library:
        library.search("walnuts")
    before = {path: path.read_bytes() for path in world.folder.rglob("*") if path.is_file()}
    with world.library(home=home) as library:
        (found,) = [one for one in library.everything() if one.agent == "native"]
        assert (found.ref, found.id, found.messages) == (f"{home}/{session.id}", session.id, 2)
        assert not found.is_file
        assert library.find(found.ref) == library.find(session.id) == found
        assert sorted(hit.session.id for hit in library.search("walnuts")) == sorted([session.id, IDS[0]])
        assert library.newest("/x") is not None
    with world.library(roots={"native": [home]}) as library:
        assert found in library.everything()
    with world.library(home=home) as library:
        statistics = build_statistics(library, select_sessions(library, agent="native"))
        assert (statistics.read, statistics.gaps) == (1, [])
    noise = (".sqlite", "-wal", "-shm", ".lock")
    after = {path: path.read_bytes() for path in world.folder.rglob("*") if path.is_file()}
    assert {str(path) for path in after if not str(path).endswith(noise)} == {
        str(path) for path in before if not str(path).endswith(noise)
    }
    assert not [path for path, data in after.items() if b"attic" in data or session.id.encode() in data]
