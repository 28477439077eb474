"""The prompt history: adding without waiting, folding, searching, importing; and its command."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from sessiontree.errors import StoreError, WriteError
from sessiontree.search.prompt_history import Prompt, PromptHistory
from sessiontree.search.prompt_spool import LONGEST, normalize_prompt
from sessiontree.search.query import Phrase, Query
from tests.builders import examples
from tests.library.world import IDS, World, append, claude_lines, clock, git, json_lines, repository

SECOND = 1000
NOON = 1_760_000_000_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[PromptHistory]:
    with PromptHistory(tmp_path / "home") as history:
        yield history


def texts_of(prompts: Sequence[Prompt]) -> list[str]:
    return [one.prompt for one in prompts]


def add_all(history: PromptHistory, *prompts: str, cwd: str = "/p", session: str = "s") -> None:
    for number, prompt in enumerate(prompts):
        history.add(prompt, cwd=cwd, session=session, time=NOON + number * SECOND)


# Adding and folding


def test_the_newest_prompt_comes_first_with_all_of_its_fields(history: PromptHistory) -> None:
    history.add("older", cwd="/p", session="s1", time=NOON)
    history.add("newer", cwd="/q/r", session="s2", time=NOON + 1, agent="pi")
    assert history.search() == [
        Prompt("newer", "/q/r", "/q/r", "s2", "pi", NOON + 1),
        Prompt("older", "/p", "/p", "s1", "native", NOON),
    ]


def test_repeats_one_after_the_other_in_one_folder_are_folded(history: PromptHistory) -> None:
    add_all(history, "go on", "go on", "stop", "go on")
    history.add("go on", cwd="/elsewhere", time=NOON + 10 * SECOND)
    found = [(one.prompt, one.cwd, one.times) for one in history.search()]
    assert found == [("go on", "/elsewhere", 1), ("go on", "/p", 1), ("stop", "/p", 1), ("go on", "/p", 2)]


def test_prompts_in_another_folder_do_not_interrupt_repeats(history: PromptHistory) -> None:
    history.add("go on", cwd="/a", time=NOON)
    history.add("other", cwd="/b", time=NOON + 1)
    history.add("go on", cwd="/a", time=NOON + 2)
    assert [(one.prompt, one.times) for one in history.search()] == [("go on", 2), ("other", 1)]


def test_folding_does_not_depend_on_the_order_of_arrival(history: PromptHistory) -> None:
    for at in (2, 0, 1):
        history.add("same" if at != 1 else "between", cwd="/p", time=NOON + at)
        history.search()
    assert texts_of(history.search()) == ["same", "between", "same"]


def test_the_limit_counts_shown_prompts_and_the_last_one_has_all_repeats(history: PromptHistory) -> None:
    add_all(history, "first", "go on", "go on", "go on", "last")
    found = history.search(limit=2)
    assert [(one.prompt, one.times) for one in found] == [("last", 1), ("go on", 3)]
    assert history.search(limit=0) == []


def test_an_empty_prompt_is_not_stored(history: PromptHistory) -> None:
    add_all(history, "", "  \n\t ")
    assert len(history) == 0


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("a\0b", "a\ufffdb"),
        ("half \ud83d", "half \ufffd"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ('"); DROP TABLE prompts; --', '"); DROP TABLE prompts; --'),
        ("x" * (LONGEST + 5), "x" * (LONGEST - 1) + "…"),
        ("\x1b[31mred\u202e", "\x1b[31mred\u202e"),
    ],
)
def test_hostile_prompts_are_kept_as_text(history: PromptHistory, typed: str, kept: str) -> None:
    history.add(typed, cwd=typed[:50], session=typed[:50], time=NOON)
    assert texts_of(history.search()) == [kept]
    assert texts_of(history.search("DROP")) == ([kept] if "DROP" in kept else [])


def test_all_files_are_readable_by_the_user_only(history: PromptHistory) -> None:
    history.add("secret")
    assert [stat.S_IMODE(path.stat().st_mode) for path in Path(history.home).iterdir()] == [0o600]
    history.search()
    history.add("another")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path(history.home).iterdir()}
    assert modes["history.sqlite"] == 0o600
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(os.stat(history.home).st_mode) == 0o700


# Searching


def test_the_better_match_comes_first_and_then_the_newer(history: PromptHistory) -> None:
    add_all(
        history,
        "parser parser parser",
        "make the parser read numbers",
        "make the parser read letters",
        "a long prompt about many things of which the parser is only one among all of them, "
        "and neither the first nor the most important one, as this goes on and on and on and on and on",
    )
    found = texts_of(history.search("parser"))
    assert found[0] == "parser parser parser"
    assert found[1:3] == ["make the parser read letters", "make the parser read numbers"]
    assert found[3].startswith("a long prompt")


def test_a_prompt_is_found_once_however_often_it_was_typed(history: PromptHistory) -> None:
    add_all(history, "run the tests", "fix it", "run the tests", "explain", "run the tests")
    assert [(one.prompt, one.times) for one in history.search("tests")] == [("run the tests", 3)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("parser", {"fix the parser", "Parser ÉTÉ"}),
        ("PARSER été", {"Parser ÉTÉ"}),
        ("ete", {"Parser ÉTÉ"}),
        ('"the parser"', {"fix the parser"}),
        ('"parser the"', set()),
        ("pars*", {"fix the parser", "Parser ÉTÉ"}),
        ("parser -fix", {"Parser ÉTÉ"}),
        ("-parser -潮", {"use -> here"}),
        ("fix OR ete", {"fix the parser", "Parser ÉTÉ"}),
        ("(fix OR ete) -(the parser)", {"Parser ÉTÉ"}),
        ("潮", {"潮位の計算"}),
        ("潮位", {"潮位の計算"}),
        ("の計算", {"潮位の計算"}),
        ("位潮", set()),
        ("->", {"use -> here"}),
        ("%", set()),
        ("nothing", set()),
        ("parser re:/x/", {"fix the parser", "Parser ÉTÉ"}),
    ],
)
def test_queries_find_prompts(history: PromptHistory, query: str, found: set[str]) -> None:
    add_all(history, "fix the parser", "Parser ÉTÉ", "潮位の計算", "use -> here")
    assert set(texts_of(history.search(query))) == found


def test_filters_by_agent_project_and_time_apply(history: PromptHistory) -> None:
    history.add("one", cwd="/work/Tides", time=NOON, agent="pi")
    history.add("two", cwd="/work/moon", time=NOON + 1, agent="claude")
    assert texts_of(history.search("agent:pi")) == ["one"]
    assert texts_of(history.search("-agent:pi")) == ["two"]
    assert texts_of(history.search("project:tides")) == ["one"]
    assert texts_of(history.search("-project:tides two")) == ["two"]
    assert texts_of(history.search("before:2001")) == []
    assert texts_of(history.search("since:2001 one")) == ["one"]
    assert not history.notes
    assert texts_of(history.search("role:user one")) == ["one"]
    assert history.notes == ["the history holds only prompts: role: ignored"]


def test_a_session_is_selected_by_its_id_or_a_prefix(history: PromptHistory) -> None:
    history.add("mine", session="019c2f3a-1", time=NOON)
    history.add("other", session="019c2f3b-1", time=NOON + 1)
    assert texts_of(history.search(session="019c2f3a")) == ["mine"]
    assert texts_of(history.search("mine", session="019c2f3a-1")) == ["mine"]
    assert history.search(session="_19c") == []
    assert history.search(session="\udcff") == []


def test_here_means_the_project_in_all_its_worktrees_and_subfolders(tmp_path: Path) -> None:
    top = repository(tmp_path / "tides")
    (top / "src").mkdir()
    git(top, "worktree", "add", "-q", str(tmp_path / "tree"))
    with PromptHistory(tmp_path / "home") as history:
        history.add("at the top", cwd=top, time=NOON)
        history.add("below", cwd=top / "src", time=NOON + 1)
        history.add("elsewhere", cwd=tmp_path, time=NOON + 2)
        assert texts_of(history.search(here=tmp_path / "tree")) == ["below", "at the top"]
        assert texts_of(history.search(here=tmp_path)) == ["elsewhere"]
        assert {one.project for one in history.search(here=top)} == {str(top)}


@examples(100, HealthCheck.function_scoped_fixture)
@given(
    query=st.one_of(
        st.text(max_size=40),
        st.lists(st.sampled_from([*"ab潮\"*()-+^:{}\\'%_\0", " NEAR(", " OR ", " AND ", " NOT ", "words:", "-"])).map(
            "".join
        ),
    )
)
def test_no_query_is_an_error(history: PromptHistory, query: str) -> None:
    if not len(history):
        add_all(history, "fix the parser", "潮位の計算", "a b NEAR(c) words: {x}")
    history.search(query, session=query[:3], here=None)


@examples(100, HealthCheck.function_scoped_fixture)
@given(prompt=st.text(min_size=1, max_size=40))
def test_every_prompt_is_found_by_itself(history: PromptHistory, prompt: str) -> None:
    history.add(prompt, cwd="/p")
    kept = normalize_prompt(prompt)
    assert not kept or kept in texts_of(history.search(Query(Phrase(kept)), limit=1000))


def test_prompts_are_reindexed_when_the_tokenizer_has_changed(history: PromptHistory) -> None:
    add_all(history, "buildSessionContext")
    assert texts_of(history.search("session context")) == ["buildSessionContext"]
    history.close()
    with contextlib.closing(sqlite3.connect(history.path)) as database:
        database.execute("UPDATE prompts SET words = 'as another version cut it'")
        database.execute("UPDATE notes SET note = 'by other rules'")
        database.commit()
    assert texts_of(history.search("session context")) == ["buildSessionContext"]
    assert history.search("another") == []


# Concurrency


def test_prompts_can_be_added_while_the_database_is_locked(history: PromptHistory) -> None:
    add_all(history, "before")
    history.search()
    with contextlib.closing(sqlite3.connect(history.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        start = time.monotonic()
        for number in range(50):
            history.add(f"meanwhile {number}")
        assert time.monotonic() - start < 1
        assert texts_of(history.search()) == ["before"]  # the database is readable
        assert "the newest prompts are not shown" in history.notes[0]
        other.execute("ROLLBACK")
    assert len(history) == 51


def test_a_writer_creates_another_file_if_the_spool_is_locked(history: PromptHistory) -> None:
    import fcntl

    history.add("first", time=NOON)
    with open(Path(history.home, "history-new.jsonl"), "rb") as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        start = time.monotonic()
        history.add("second", time=NOON + 1)
        assert time.monotonic() - start < 0.5
    assert len(list(Path(history.home).glob("history-new*.jsonl"))) == 2
    assert texts_of(history.search()) == ["second", "first"]
    assert not list(Path(history.home).glob("history-new*"))


def test_threads_that_add_while_others_search_lose_nothing(tmp_path: Path) -> None:
    def write(name: str) -> None:
        with PromptHistory(tmp_path) as own:
            for number in range(60):
                own.add(f"{name} {number}", time=NOON + number)

    def look() -> None:
        with PromptHistory(tmp_path) as own:
            while any(thread.is_alive() for thread in writers):
                own.search(limit=1)

    writers = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    lookers = [threading.Thread(target=look) for _ in range(2)]
    for thread in (*writers, *lookers):
        thread.start()
    for thread in (*writers, *lookers):
        thread.join()
    with PromptHistory(tmp_path) as history:
        assert len(history) == 180


_CHILD = """
import sys
from sessiontree.search.prompt_history import PromptHistory
with PromptHistory(sys.argv[1]) as history:
    for number in range(int(sys.argv[3])):
        history.add(f"{sys.argv[2]} {number}")
        print(number, flush=True)
        if number % 10 == 9:
            history.search("潮 OR 3")
"""


def start_child(home: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _CHILD, str(home), name, str(count)], stdout=subprocess.PIPE)


def test_processes_that_add_and_search_in_parallel_lose_nothing(tmp_path: Path) -> None:
    children = [start_child(tmp_path, name, 40) for name in ("one", "two", "three")]
    assert [child.communicate()[0].count(b"\n") for child in children] == [40] * 3
    assert [child.returncode for child in children] == [0] * 3
    with PromptHistory(tmp_path) as history:
        assert len(history) == 120
        assert not history.notes


def test_a_killed_process_loses_no_acknowledged_prompt(tmp_path: Path) -> None:
    acknowledged = 0
    for turn in range(6):
        child = start_child(tmp_path, f"turn{turn}", 100_000)
        assert child.stdout is not None
        for _ in range(5 + 7 * turn):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        acknowledged += 5 + 7 * turn + child.stdout.read().count(b"\n")
        child.stdout.close()
        child.wait()
    with PromptHistory(tmp_path) as history:
        assert acknowledged <= len(history) <= acknowledged + 6
        database = sqlite3.connect(history.path)
        assert database.execute("INSERT INTO found(found) VALUES('integrity-check')").fetchall() == []
        database.close()


def test_a_torn_line_is_kept_and_does_not_affect_others(history: PromptHistory) -> None:
    history.add("before", time=NOON)
    with open(Path(history.home, "history-new.jsonl"), "ab") as file:
        file.write(b'\n{"prompt":"to')
    history.add("behind", time=NOON + 1)
    assert texts_of(history.search()) == ["behind", "before"]
    assert "incomplete lines: 1" in history.notes[0]
    (torn,) = Path(history.home).glob("history-torn-*.jsonl")
    assert b'{"prompt":"to' in torn.read_bytes()


def test_prompts_that_were_imported_but_not_deleted_count_once(history: PromptHistory) -> None:
    add_all(history, "one", "two")
    waiting = Path(history.home, "history-new.jsonl")
    data = waiting.read_bytes()
    history.search()
    waiting.write_bytes(data)  # as if the process had died in between
    assert len(history) == 2


# Damage


def test_a_damaged_file_is_moved_aside_and_repaired_from_the_log(history: PromptHistory) -> None:
    add_all(history, "typed before the damage")
    history.search()
    history.close()
    Path(history.path).write_bytes(b"this is no database" * 100)
    history.add("new", time=NOON)
    assert texts_of(history.search()) == ["new", "typed before the damage"]
    assert history.was_damaged
    (aside,) = [path for path in Path(history.home).iterdir() if ".damaged-" in path.name]
    assert aside.read_bytes().startswith(b"this is no database")
    (note,) = history.notes
    assert str(aside) in note
    assert "prompts recovered: 1" in note


def test_damage_in_the_middle_of_the_file_is_detected_and_the_file_moved_aside(tmp_path: Path) -> None:
    with PromptHistory(tmp_path) as history:
        add_all(history, *(f"prompt number {number} with some words to fill pages" for number in range(800)))
        history.search()
    path = tmp_path / "history.sqlite"
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    with PromptHistory(tmp_path) as history:
        history.add("new", time=NOON)
        assert texts_of(history.search("new")) == ["new"]
        assert history.was_damaged


def test_a_file_of_a_newer_version_is_not_changed(history: PromptHistory) -> None:
    history.search()
    history.close()
    with contextlib.closing(sqlite3.connect(history.path)) as database:
        database.execute("PRAGMA user_version = 99")
    history.add("kept")
    with pytest.raises(StoreError, match="newer version"):
        history.search("kept")
    assert Path(history.home, "history-new.jsonl").exists()


def test_a_home_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    history = PromptHistory(tmp_path / "home")
    with pytest.raises(WriteError, match="home"):
        history.add("x")
    with pytest.raises(StoreError, match="home"):
        history.search()


# Importing


def imported(world: World, history: PromptHistory) -> tuple[int, int, int]:
    with world.library() as library:
        done = history.import_from(library)
    return done.added, done.sources, done.unreadable


def claude_history(*prompts: tuple[Any, Any], session: str = IDS[0]) -> list[dict[str, Any]]:
    around = {"pastedContents": {}, "project": "/work/tides", "sessionId": session}
    return [{"display": prompt, "timestamp": at, **around} for prompt, at in prompts]


def test_the_history_of_claude_code_is_imported(world: World, history: PromptHistory) -> None:
    (world.home / ".claude/projects").mkdir(parents=True)
    lines = json_lines(claude_history(("first", NOON), ("潮位", NOON + 1)))
    world.put(".claude/history.jsonl", lines + b'{"display":7}\n[]\nnot json\n\n{"display":"no time"}\n')
    assert imported(world, history) == (2, 1, 4)
    assert history.search() == [
        Prompt("潮位", "/work/tides", "/work/tides", IDS[0], "claude", NOON + 1),
        Prompt("first", "/work/tides", "/work/tides", IDS[0], "claude", NOON),
    ]
    assert imported(world, history) == (0, 0, 0)


def omp_database(path: Path, rows: Sequence[tuple[Any, ...]], *, with_session: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = "id INTEGER PRIMARY KEY, prompt TEXT, created_at INTEGER, cwd TEXT" + ", session_id TEXT" * with_session
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute(f"CREATE TABLE history({columns})")
    marks = ", ".join("?" * len(rows[0]))
    database.executemany(f"INSERT INTO history VALUES({marks})", rows)
    database.commit()
    database.close()


def test_the_histories_of_oh_my_pi_and_xcsh_are_imported(world: World, history: PromptHistory) -> None:
    for product in (".omp", ".xcsh"):
        (world.home / product / "agent/sessions").mkdir(parents=True)
    rows = [(1, "with session", 1_760_000_000, "/w", "s1"), (2, None, 5, "/w", "s1"), (3, "no time", None, "/w", "s")]
    omp_database(world.home / ".omp/agent/history.db", rows)
    older = [(1, "without session", 1_750_000_000, None)]
    omp_database(world.home / ".xcsh/agent/history.db", older, with_session=False)
    before = sorted((world.home / ".omp/agent").iterdir())
    assert imported(world, history) == (2, 2, 2)
    assert history.search() == [
        Prompt("with session", "/w", "/w", "s1", "omp", 1_760_000_000_000),
        Prompt("without session", "", "", "", "omp", 1_750_000_000_000),
    ]
    assert sorted((world.home / ".omp/agent").iterdir()) == before


def test_prompts_in_the_write_ahead_log_of_a_database_are_imported(world: World, history: PromptHistory) -> None:
    (world.home / ".omp/agent/sessions").mkdir(parents=True)
    path = world.home / ".omp/agent/history.db"
    omp_database(path, [(1, "old", 1_760_000_000, "/w", "s")])
    # the agent is running, and its log is not checkpointed yet
    with contextlib.closing(sqlite3.connect(path)) as running:
        running.execute("INSERT INTO history VALUES(2, 'fresh', 1760000001, '/w', 's')")
        running.commit()
        assert imported(world, history)[0] == 2


@pytest.mark.parametrize("data", [b"", b"no database at all" * 50, b"SQLite format 3\0" + b"\xff" * 500])
def test_an_invalid_history_of_oh_my_pi_is_counted(world: World, history: PromptHistory, data: bytes) -> None:
    (world.home / ".omp/agent/sessions").mkdir(parents=True)
    world.put(".omp/agent/history.db", data)
    assert imported(world, history) == (0, 1, 1)


def test_the_history_of_neovate_is_imported_after_prompts_with_times(world: World, history: PromptHistory) -> None:
    (world.home / ".neovate/projects").mkdir(parents=True)
    notes = {"projects": {"/a": {"history": ["one", "two", 3]}, "/b": {"lastAccessed": 1}, "/c": 5}, "recentModels": []}
    world.put(".neovate/data.json", json.dumps(notes).encode())
    history.add("timed", cwd="/a", time=NOON)
    assert imported(world, history) == (2, 1, 2)
    assert [(one.prompt, one.cwd, one.time) for one in history.search()] == [
        ("timed", "/a", NOON),
        ("two", "/a", None),
        ("one", "/a", None),
    ]
    notes["projects"]["/a"]["history"].append("three")  # type: ignore[index]
    world.put(".neovate/data.json", json.dumps(notes).encode())
    assert imported(world, history) == (1, 1, 2)
    world.put(".neovate/data.json", b"[1, 2")
    assert imported(world, history) == (0, 1, 1)


def test_prompts_in_sessions_are_imported_incrementally(world: World, history: PromptHistory) -> None:
    path = world.claude(IDS[0], "/work/tides", ["make it fast", "潮位の計算"])
    world.pi("019c2f3a-0000-7000-8000-000000000001", "/work/moon", ["from pi"], minute=30)
    assert imported(world, history) == (3, 2, 0)
    assert [(one.prompt, one.agent, one.cwd) for one in history.search()] == [
        ("from pi", "pi", "/work/moon"),
        ("潮位の計算", "claude", "/work/tides"),
        ("make it fast", "claude", "/work/tides"),
    ]
    assert {one.session for one in history.search(session=IDS[0][:8])} == {IDS[0]}
    assert imported(world, history) == (0, 0, 0)
    append(path, claude_lines(IDS[0], "/work/tides", ["and one more"], minute=50))
    assert imported(world, history) == (1, 1, 0)


def test_an_incomplete_line_is_imported_once_it_is_complete(world: World, history: PromptHistory) -> None:
    lines = json_lines(claude_lines(IDS[0], "/w", ["first", "second"]))
    cut = lines.index(b"second")
    path = world.put(f".claude/projects/-w/{IDS[0]}.jsonl", lines[:cut])
    assert imported(world, history)[0] == 1
    append(path, lines[cut:])
    assert imported(world, history)[0] == 1
    assert texts_of(history.search()) == ["second", "first"]


def test_tool_results_and_inserted_text_are_not_prompts(world: World, history: PromptHistory) -> None:
    lines = claude_lines(IDS[0], "/w", ["real", "<command-name>/clear</command-name>"])
    result = {"type": "tool_result", "tool_use_id": "t", "content": "output"}
    lines.append({**lines[0], "uuid": "x", "message": {"role": "user", "content": [result]}})
    lines.append(
        {**lines[0], "uuid": "y", "isCompactSummary": True, "message": {"role": "user", "content": "what was"}}
    )
    lines.append({**lines[0], "uuid": "z", "isMeta": True, "message": {"role": "user", "content": "a note"}})
    world.put(f".claude/projects/-w/{IDS[0]}.jsonl", lines)
    imported(world, history)
    assert texts_of(history.search()) == ["real"]


def test_one_prompt_in_several_sources_is_stored_once(world: World, history: PromptHistory) -> None:
    world.claude(IDS[0], "/work/tides", ["make it fast"])
    fork = world.claude(IDS[1], "/work/tides", ["make it fast", "or not"])
    typed = round(1000 * _seconds(clock(0))) - 400
    world.put(".claude/history.jsonl", claude_history(("make it fast", typed)))
    imported(world, history)
    assert fork.exists()
    assert [(one.prompt, one.times) for one in history.search()] == [("or not", 1), ("make it fast", 1)]


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_a_killed_import_is_continued(world: World) -> None:
    for number in range(40):
        world.pi(f"019c2f3a-0000-7000-8000-{number:012x}", "/w", [f"prompt {number} of {turn}" for turn in range(20)])
    home = Path(world.environment["SESSIONTREE_HOME"])
    command = [sys.executable, "-m", "sessiontree", "history"]
    for delay in (0.35, 0.5, 0.65):
        child = subprocess.Popen(command, env={**os.environ, **world.environment}, stdout=subprocess.DEVNULL)
        time.sleep(delay)
        child.kill()
        child.wait()
    with PromptHistory(home) as history:
        imported(world, history)
        assert len(history) == 800


# The command

Ran = subprocess.CompletedProcess[str]


def run(world: World, *arguments: str, cwd: Path | None = None, width: int = 80) -> Ran:
    return subprocess.run(
        [sys.executable, "-m", "sessiontree", *arguments],
        env={**os.environ, **world.environment, "COLUMNS": str(width)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_appended_user_messages_are_in_the_history(world: World) -> None:
    session = run(world, "new", "--cwd", str(world.folder)).stdout.strip()
    run(world, "append", session, "user", "add a --json flag")
    run(world, "append", session, "assistant", "which one?")
    shown = run(world, "history", "--json", "flag")
    (found,) = json.loads(shown.stdout)["prompts"]
    assert found["prompt"] == "add a --json flag"
    assert found["cwd"] == str(world.folder)
    assert found["session"] in session
    assert run(world, "history").stderr == ""
    assert len(run(world, "history").stdout.splitlines()) == 1
    assert run(world, "history", "--session", session).stdout.endswith("add a --json flag\n")


def test_an_append_succeeds_without_a_history(world: World) -> None:
    session = run(world, "new", "--cwd", "/", "--path", str(world.home / "s.jsonl")).stdout.strip()
    (world.home / "st").write_text("in the way")
    done = run(world, "append", session, "user", "hello")
    assert done.returncode == 0
    assert "the prompt is not in the history" in done.stderr
    assert len(done.stdout.split()) == 1


def test_the_listing_fits_the_terminal_and_is_sanitized(world: World) -> None:
    with PromptHistory(world.environment["SESSIONTREE_HOME"]) as history:
        history.add("\x1b]0;title\x07 evil \u202e\nsecond line", cwd="/work/tides", time=NOON)
        history.add("潮位の計算が遅い" * 10, cwd="/work/\x1b[31m月", time=NOON + 1)
        history.add("潮位の計算が遅い" * 10, cwd="/work/\x1b[31m月", time=NOON + 2)
    shown = run(world, "history", width=40).stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown
    wide, evil = shown.splitlines()
    assert wide.endswith("… ×2")
    assert "evil \\u202e second line" in evil or evil.endswith("…")
    from sessiontree.views.text import columns

    assert max(map(columns, (wide, evil))) <= 40


def test_here_limits_to_this_project_and_an_empty_history_has_a_hint(world: World) -> None:
    here = repository(world.folder / "tides")
    empty = run(world, "history")
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "the history is empty" in empty.stderr
    world.claude(IDS[0], here, ["in tides"])
    world.claude(IDS[1], "/elsewhere", ["not here"])
    assert "in tides" in run(world, "history", "--here", cwd=here).stdout
    assert "not here" not in run(world, "history", "--here", cwd=here).stdout
    assert "no match among 2 prompts" in run(world, "history", "unheard").stderr
    world.claude(IDS[2], here, ["said later"])
    assert "said later" not in run(world, "history", "--no-refresh").stdout
    assert "said later" in run(world, "history").stdout


def test_notes_about_a_query_are_printed_and_an_invalid_limit_is_rejected(world: World) -> None:
    noted = run(world, "history", "since:banana")
    assert noted.returncode == 0
    assert "sessiontree: at character 1: since: expects an age" in noted.stderr
    assert "expects an age" in json.loads(run(world, "history", "since:banana", "--json").stdout)["notes"][0]
    assert run(world, "history", "--limit", "-1").returncode == 2
    assert run(world, "history", "--", "-draft").returncode == 0


def test_a_damaged_history_is_imported_again_from_the_sessions(world: World) -> None:
    world.claude(IDS[0], "/work/tides", ["still in its session"])
    home = Path(world.environment["SESSIONTREE_HOME"])
    home.mkdir(parents=True)
    (home / "history.sqlite").write_bytes(b"x" * 5000)
    shown = run(world, "history")
    assert shown.stdout.endswith("still in its session\n")
    assert "moved to" in shown.stderr
    assert [path.read_bytes() for path in home.glob("history.sqlite.damaged-*")] == [b"x" * 5000]
