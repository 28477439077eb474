"""A search that does not reach every session says so, and the next one continues."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sessiontree.cli import main
from sessiontree.search import Index, Results, search
from sessiontree.search import engine as engine_module
from sessiontree.stores.os_calls import OsCalls
from tests.library.world import World

SESSIONS = 60


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A library without a cache; only the oldest session has the word."""
    world = World(tmp_path)
    for number in range(SESSIONS):
        world.pi(f"{number:08d}-session", "/work", ["needle" if number == 0 else "hay", "x"], minute=number)
    return world


def ticking(step: float = 1.0) -> Callable[[], float]:
    """A clock that advances by a step each time it is read."""
    now = 0.0

    def read() -> float:
        nonlocal now
        now += step
        return now

    return read


def find(world: World, query: str = "needle", **arguments: object) -> Results:
    with world.library() as library:
        return search(library, query, **arguments)  # type: ignore[arg-type]


def test_listing_the_sessions_does_not_count_against_the_time_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    library = world.library()
    refresh = library.refresh

    def slow_refresh() -> None:
        nonlocal now
        now += 1000.0
        refresh()

    monkeypatch.setattr(library, "refresh", slow_refresh)
    with library:
        results = search(library, "needle", time_limit=10.0, clock=lambda: now, refresh="none")
    assert ({hit.session.id for hit in results}, results.is_complete) == ({"00000000-session"}, True)
    assert results.state == "scan"


@pytest.mark.parametrize("refresh", ["none", "all"])
def test_a_search_that_is_stopped_counts_what_it_did_not_search(world: World, refresh: str) -> None:
    find(world, refresh=refresh)
    results = find(world, "hay OR needle", refresh=refresh, limit=1000, time_limit=20.0, clock=ticking())
    assert not results.is_complete
    assert 0 < results.unsearched.sessions < SESSIONS
    assert results.unsearched.size > 0
    found = {hit.session.id for hit in results}
    assert len(found) + results.unsearched.sessions == SESSIONS
    (note,) = results.notes
    unsearched = f"not searched: {results.unsearched.sessions} of {SESSIONS} sessions"
    assert f"incomplete: the time limit was reached; {unsearched}" in note


def test_a_full_page_is_complete_although_sessions_are_left(world: World) -> None:
    results = find(world, "hay", limit=5, refresh="none")
    assert (len(results), results.next_offset, results.is_complete) == (5, 5, True)


def test_a_pattern_that_is_stopped_makes_the_search_incomplete(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "_PATTERN_SECONDS", 0.2)
    world.pi("slow", "/work", ["a" * 5000 + "!"], minute=999)
    results = find(world, r"re:/(a|aa)+$/", refresh="none")
    assert not results.is_complete
    assert results.unsearched.sessions > 0
    (note,) = results.notes
    assert note.startswith("incomplete: stopped matching the pattern after 0.2 seconds; not searched: ")
    assert note.endswith("Use a more specific pattern, or add a word or a filter such as project:NAME or agent:NAME.")


@pytest.mark.parametrize(
    ("query", "refresh", "hint"),
    [
        ("hay OR needle", "none", "Run it again to continue."),
        ("hay OR needle", "all", "Add a word or a filter such as project:NAME or agent:NAME."),
        ("re:/nothing.*matches/", "none", "Use a more specific pattern, or add a word or a filter"),
        ("re:/nothing.*matches/", "all", "Use a more specific pattern, or add a word or a filter"),
    ],
)
def test_a_search_that_is_stopped_suggests_what_helps(world: World, query: str, refresh: str, hint: str) -> None:
    find(world, refresh=refresh)
    results = find(world, query, refresh=refresh, limit=1000, time_limit=20.0, clock=ticking())
    (note,) = results.notes
    assert hint in note


def test_a_pattern_that_is_stopped_in_the_last_session_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine_module, "_PATTERN_SECONDS", 0.2)
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    world.pi("slow-session", "/work", ["needle " + "a" * 5000 + "!"], minute=999)
    for _ in range(2):  # from the files, then from the index
        assert main(["search", "needle", r"re:/(a|aa)+$/", "session:slow-session"]) == 4
        assert "incomplete: stopped matching the pattern after 0.2 seconds" in capfd.readouterr().err
    assert main(["search", "needle", r"re:/(a|aa)+$/", "session:slow-session", "--json"]) == 4
    answer = json.loads(capfd.readouterr().out)
    assert (answer["complete"], answer["total"]) == (False, None)


def test_a_pattern_is_found_in_any_part_of_a_large_session(world: World) -> None:
    filler = [f"hay {'x' * 30_000} {number}" for number in range(40)]
    world.pi("large", "/work", ["first", "pattern-77-here", *filler], minute=999)
    find(world, refresh="all")
    results = find(world, r"re:/pattern-\d+-here/", refresh="none")
    assert {hit.session.id for hit in results} == {"large"}
    assert (results.state, results.is_complete) == ("index", True)


@pytest.mark.parametrize("refresh", ["none", "all"])
def test_matching_reports_its_progress(world: World, refresh: str) -> None:
    calls: list[tuple[int, int, str]] = []
    find(world, "re:/nothing.*matches/", refresh=refresh, match_progress=lambda *call: calls.append(call))
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert len({call[2] for call in calls}) == SESSIONS
    assert calls[-1][0] == calls[-1][1] > 0


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that are out of time after a few sessions."""

    def limited(*arguments: object, **options: object) -> Results:
        return search(*arguments, **{**options, "time_limit": 5.0, "clock": ticking()})  # type: ignore[arg-type]

    monkeypatch.setattr("sessiontree.cli.search.search", limited)
    monkeypatch.setattr(engine_module, "_SMALL", 0)


@pytest.mark.usefixtures("stopped")
def test_the_command_says_that_its_answer_is_incomplete_and_continues_the_next_time(
    world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    code = main(["search", "needle", "--no-refresh"])
    out, err = capfd.readouterr()
    assert (code, out) == (4, "")
    assert "incomplete" in err
    assert f"of {SESSIONS} sessions" in err.splitlines()[-1]
    code = main(["search", "needle", "--json"])
    answer = json.loads(capfd.readouterr().out)
    assert code == 4
    assert (answer["complete"], answer["total"], answer["hits"]) == (False, None, [])
    assert answer["unsearched"]["sessions"] > 0
    assert answer["unsearched"]["bytes"] > 0
    # The index was built after the output, and the same search finds the word in it.
    code = main(["search", "needle", "--json"])
    answer = json.loads(capfd.readouterr().out)
    assert (code, answer["complete"]) == (0, True)
    assert {hit["session"]["id"] for hit in answer["hits"]} == {"00000000-session"}


def test_indexing_many_small_files_that_is_stopped_is_continued(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class StoppedError(Exception):
        pass

    clock = ticking()
    monkeypatch.setattr("sessiontree.search.indexer.time.monotonic", clock)

    def stop(done: int, of: int, path: str) -> None:
        if done > of // 2:
            raise StoppedError

    with world.library() as library, Index(world.environment) as index:
        with pytest.raises(StoppedError):
            index.update(library.indexable(), progress=stop)
        indexed = len(index.store.indexed_files())
        assert SESSIONS // 2 <= indexed < SESSIONS
        assert len(index.pending(library.indexable())) == SESSIONS - indexed


@pytest.mark.parametrize("count", [8, pytest.param(64, marks=pytest.mark.slow)])
def test_searches_at_the_same_time_on_a_new_cache_answer_alike(world: World, count: int) -> None:
    environment = {**os.environ, **world.environment}

    def run(_: int) -> tuple[int, list[str], bool]:
        command = [sys.executable, "-m", "sessiontree", "search", "hay", "--json", "--limit", "200"]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=300, check=False)
        assert b"Traceback" not in done.stderr
        answer = json.loads(done.stdout)
        return done.returncode, [hit["session"]["id"] for hit in answer["hits"]], answer["complete"]

    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(run, range(count)))
    assert len(set(answers[0][1])) == SESSIONS - 1
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == 0


@pytest.mark.parametrize("command", [["list", "--all"], ["search", "hay"]])
def test_a_folder_with_an_input_error_makes_an_answer_incomplete(
    world: World, command: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scandir = os.scandir

    def failing(path: str) -> object:
        if str(path).endswith("--broken--"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    world.pi("unreachable", "/broken", ["hay"])
    monkeypatch.setattr("sessiontree.library.scan.os.scandir", failing)
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    code = main(command)
    _, err = capfd.readouterr()
    assert code == 4
    assert "--broken--" in err
    code = main([*command, "--json"])
    answer = json.loads(capfd.readouterr().out)
    assert (code, answer["complete"]) == (4, False)


@pytest.mark.parametrize("refresh", ["auto", "none"])
def test_a_session_that_cannot_be_read_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch, refresh: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = world.pi("broken-session", "/work", ["needle"], minute=90)
    with world.library() as library:
        library.everything()  # it was readable when it was listed
        opened = OsCalls.open

        def refuse(self: OsCalls, path: str, *arguments: int) -> int:
            if os.fspath(path) == str(broken):
                raise PermissionError(13, "Permission denied", str(broken))
            return opened(self, path, *arguments)

        monkeypatch.setattr(OsCalls, "open", refuse)
        results = search(library, "needle", refresh=refresh)  # type: ignore[arg-type]
    assert results.unreadable == [str(broken)]
    assert not results.is_complete
    assert any(str(broken) in note for note in results.notes)
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    assert main(["search", "needle", "--json"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert (found["unreadable"], found["complete"]) == ([str(broken)], False)


def test_further_hits_are_counted_and_not_estimated(tmp_path: Path) -> None:
    world = World(tmp_path)
    few = world.pi("few-session", "/work", ["needle"] * 20)
    many = world.pi("many-session", "/work", ["needle"] * 300)
    results = find(world, "needle", refresh="all")
    lines = few.read_bytes().count(b"needle")
    assert results.more[str(few)] == lines - 3
    assert results.more_at_least == {str(many)}
