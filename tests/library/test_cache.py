"""The cache: only changes are read again, and damage to it costs only time."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from sessiontree.library import Library, Summary, counts
from sessiontree.library.cache import VERSION, Cache, cache_path
from sessiontree.session.open import open as open_session
from tests.library.world import IDS, World, append, claude_lines, clock, json_lines, pi_lines, touch


def listed(world: World) -> tuple[dict[str, Summary], Library]:
    with world.library() as library:
        return {one.id: one for one in library.sessions(include_subagents=True)}, library


def database(world: World) -> Path:
    return world.folder / "cache" / "library.sqlite"


def test_the_second_listing_reads_no_session(world: World) -> None:
    for number in range(5):
        world.claude(IDS[number], "/x", ["a"] * 10)
    first, library = listed(world)
    assert library.scan.read == 5
    second, library = listed(world)
    assert (library.scan.read, library.scan.bytes_read) == (0, 0)
    assert second == first


def test_of_a_file_that_grew_only_the_new_end_is_read(world: World) -> None:
    path = world.claude(IDS[0], "/x", ["the first prompt", *["x" * 2000] * 300])
    before, _ = listed(world)
    new = claude_lines("another-id", "/x", ["one more"], minute=700)
    new[0]["parentUuid"] = f"assistant-300-{IDS[0][:8]}"
    append(path, [{**line, "sessionId": IDS[0]} for line in new])
    after, library = listed(world)
    added = path.stat().st_size - before[IDS[0]].size
    assert library.scan.bytes_read <= added + 1024 + 64
    one = after[IDS[0]]
    assert (one.first_prompt, one.last_prompt) == ("the first prompt", "one more")
    assert one.title == "the first prompt"
    assert one.messages == before[IDS[0]].messages + 2
    assert one.branches == before[IDS[0]].branches
    assert one.tokens_out == before[IDS[0]].tokens_out + 5


@pytest.mark.parametrize("agent", ["claude", "pi", "omp", "native"])
def test_a_file_that_grows_line_by_line_has_the_summary_of_a_fresh_read(agent: str, world: World) -> None:
    """Covers rewinds, titles, names and responses of several lines."""
    lines = _story(agent)
    place = {
        "claude": f".claude/projects/-x/{IDS[0]}.jsonl",
        "pi": f".pi/agent/sessions/--x--/2026_{IDS[0]}.jsonl",
        "omp": f".omp/agent/sessions/-x/2026_{IDS[0]}.jsonl",
        "native": f"st/sessions/x/2026_{IDS[0]}.jsonl",
    }[agent]
    path = world.put(place, lines[:2])
    listed(world)
    for line in lines[2:]:
        append(path, [line])
        (grown,), _ = list(listed(world)[0].values()), None
        shutil.rmtree(world.folder / "cache")
        (anew,) = listed(world)[0].values()
        assert grown == anew, line


def _story(agent: str) -> list[dict[str, object]]:
    if agent == "claude":
        lines = claude_lines(IDS[0], "/x", ["one", "two", "three"])
        shard = {**lines[1], "uuid": "shard", "parentUuid": lines[1]["uuid"]}
        rewound = {**lines[4], "uuid": "rewound", "parentUuid": lines[1]["uuid"], "timestamp": clock(50)}
        return [
            *lines[:2],
            shard,
            *lines[2:],
            {"type": "ai-title", "aiTitle": "made", "sessionId": IDS[0]},
            rewound,
            {"type": "custom-title", "customTitle": "given", "sessionId": IDS[0]},
            {"type": "ai-title", "aiTitle": "made again", "sessionId": IDS[0]},
            {"type": "last-prompt", "lastPrompt": "x", "leafUuid": "rewound", "sessionId": IDS[0]},
        ]
    extra = {"sessiontree": 1} if agent == "native" else {}
    lines = pi_lines(IDS[0], "/x", ["one", "two", "three"], **extra)
    around = {"parentId": lines[-1]["id"], "timestamp": clock(40)}
    other = {**lines[3], "id": "bbbbbbbb", "parentId": lines[2]["id"], "timestamp": clock(50)}
    return [
        *lines,
        {"type": "session_info", "id": "cccccccc", **around, "name": "given"},
        other,
        {"type": "label", "id": "dddddddd", **around, "parentId": "bbbbbbbb", "targetId": "bbbbbbbb", "label": "l"},
        {"type": "session_info", "id": "eeeeeeee", **around, "parentId": "bbbbbbbb", "name": ""},
        {**lines[4], "id": "ffffffff", "parentId": None, "timestamp": clock(55)},
    ]


def test_a_large_file_that_branches_far_away_is_only_estimated(world: World) -> None:
    path = world.claude(IDS[0], "/x", ["x" * 2000] * 200)
    session = open_session(path)
    listed(world)
    with world.library() as library:
        library.store_exact(str(path), path.stat().st_size, counts.count(session))
    exact = listed(world)[0][IDS[0]]
    assert (exact.exact, exact.messages, exact.branches) == (True, 400, 1)
    line = claude_lines(IDS[0], "/x", ["on"], minute=700)[0]
    append(path, [{**line, "uuid": "n1", "parentUuid": f"assistant-199-{IDS[0][:8]}"}])
    grown = listed(world)[0][IDS[0]]
    assert (grown.exact, grown.messages, grown.branches) == (True, 401, 1)
    append(path, [{**line, "uuid": "n2", "parentUuid": f"user-5-{IDS[0][:8]}"}])
    branched = listed(world)[0][IDS[0]]
    assert (branched.exact, branched.messages, branched.branches) == (False, 402, 2)


def test_exact_counts_of_another_size_are_ignored(world: World) -> None:
    path = world.claude(IDS[0], "/x", ["x" * 2000] * 200)
    listed(world)
    with world.library() as library:
        library.store_exact(str(path), 5, counts.Counted(messages=1))
        library.store_exact("/nowhere", 5, counts.Counted(messages=1))
    assert not listed(world)[0][IDS[0]].exact


def test_a_replaced_truncated_or_rewritten_file_is_read_again(world: World) -> None:
    path = world.pi("a", "/x", ["one", "two"])
    assert listed(world)[0]["a"].title == "one"
    path.write_bytes(json_lines(pi_lines("a", "/x", ["ONE", "two", "three"])))
    touch(path)
    assert listed(world)[0]["a"].title == "ONE"
    path.write_bytes(json_lines(pi_lines("a", "/x", ["less"])))
    touch(path)
    assert listed(world)[0]["a"].messages == 2
    other = path.with_suffix(".new")
    other.write_bytes(json_lines(pi_lines("b", "/x", ["one", "two", "three", "four"])))
    other.rename(path)
    assert listed(world)[0].keys() == {"b"}


def test_a_title_slot_that_is_overwritten_in_place_is_seen(world: World) -> None:
    slot = {"type": "title", "v": 1, "title": "old!", "updatedAt": "x", "pad": "    "}
    path = world.put(".omp/agent/sessions/-x/2026_a.jsonl", [slot, *pi_lines("a", "/x", ["one"])])
    assert listed(world)[0]["a"].title == "old!"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"old!", b"new!") + json_lines([{"type": "custom", "id": "z", "parentId": None}]))
    touch(path)
    assert listed(world)[0]["a"].title == "new!"


def test_a_line_that_was_still_being_written_is_read_when_it_is_complete(world: World) -> None:
    path = world.pi("a", "/x", ["one", "two"])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert listed(world)[0]["a"].health == "damaged"
    append(path, whole[-20:])
    one = listed(world)[0]["a"]
    assert (one.health, one.messages) == ("ok", 4)


def test_sessions_that_are_gone_are_forgotten(world: World) -> None:
    path = world.claude(IDS[0], "/x")
    world.claude(IDS[1], "/x")
    listed(world)
    path.unlink()
    assert listed(world)[0].keys() == {IDS[1]}
    cache = Cache(cache_path(world.environment))
    assert [Path(known).stem for known in cache.rows([str(world.home)])] == [IDS[1]]
    assert cache.rows([str(world.folder / "other")]) == {}
    cache.close()


def test_a_scan_of_other_roots_does_not_drop_cached_sessions(world: World) -> None:
    world.claude(IDS[0], "/x")
    listed(world)
    with world.library(roots={"claude": [str(world.folder / "cache")]}) as library:
        assert library.sessions() == []
    assert listed(world)[1].scan.read == 0


def test_deleting_the_cache_loses_nothing(world: World) -> None:
    world.claude(IDS[0], "/x", ["hello"])
    before, _ = listed(world)
    shutil.rmtree(world.folder / "cache")
    after, library = listed(world)
    assert after == before
    assert library.scan.read == 1


def test_the_cache_is_readable_by_the_user_only(world: World) -> None:
    listed(world)
    for path in (world.folder / "cache").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    assert (world.folder / "cache").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "data", [b"not a database at all, but long enough to be one" * 200, b"SQLite format 3\x00" + b"\xff" * 8192]
)
def test_a_corrupt_file_is_moved_away_and_rebuilt(data: bytes, world: World) -> None:
    world.claude(IDS[0], "/x")
    database(world).parent.mkdir()
    database(world).write_bytes(data)
    assert listed(world)[0].keys() == {IDS[0]}
    assert listed(world)[1].scan.read == 0
    assert database(world).with_suffix(".sqlite.damaged").read_bytes() == data


def test_damage_in_the_middle_of_the_file_is_repaired_too(world: World) -> None:
    for number in range(60):
        world.claude(IDS[number], "/x", ["hello " * 50])
    expected, _ = listed(world)
    data = bytearray(database(world).read_bytes())
    for start in range(4096, len(data), 4096):
        data[start : start + 200] = b"\xa5" * 200
    database(world).write_bytes(data)
    assert listed(world)[0] == expected
    assert listed(world)[0] == expected


def test_damaged_rows_are_read_again(world: World) -> None:
    world.claude(IDS[0], "/x")
    expected, _ = listed(world)
    with sqlite3.connect(database(world)) as other:
        other.execute("UPDATE sessions SET summary = x'c0ffee'")
        other.execute("UPDATE states SET state = 5")
    other.close()
    assert listed(world)[0] == expected


def test_tables_of_another_version_are_rebuilt_and_other_parts_kept(world: World) -> None:
    world.claude(IDS[0], "/x")
    expected, _ = listed(world)
    with sqlite3.connect(database(world)) as other:
        other.execute("UPDATE versions SET version = 99")
        other.execute("INSERT INTO versions VALUES('search', 7)")
        other.execute("DROP TABLE sessions")
        other.execute("CREATE TABLE sessions(other)")
    other.close()
    assert listed(world)[0] == expected
    with sqlite3.connect(database(world)) as other:
        assert dict(other.execute("SELECT * FROM versions").fetchall()) == {"listing": VERSION, "search": 7}
    other.close()


def test_a_dropped_table_is_rebuilt(world: World) -> None:
    world.claude(IDS[0], "/x")
    expected, _ = listed(world)
    with sqlite3.connect(database(world)) as other:
        other.execute("DROP TABLE sessions")
        other.execute("DROP TABLE notes")
    other.close()
    assert listed(world)[0] == expected
    assert listed(world)[1].scan.read == 0


def test_listing_works_without_a_writable_cache_folder(world: World) -> None:
    world.claude(IDS[0], "/x")
    (world.folder / "file").write_bytes(b"")
    world.environment["SESSIONTREE_CACHE"] = str(world.folder / "file" / "below")
    assert listed(world)[0].keys() == {IDS[0]}


def test_a_listing_works_while_another_process_locks_the_cache(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessiontree.library.cache._BUSY_SECONDS", 0.05)
    world.claude(IDS[0], "/x")
    listed(world)
    world.claude(IDS[1], "/x")
    other = sqlite3.connect(database(world), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        assert listed(world)[0].keys() == {IDS[0], IDS[1]}
    finally:
        other.close()


@pytest.mark.slow
def test_several_processes_list_at_once(world: World) -> None:
    for number in range(80):
        world.claude(IDS[number], "/x", ["hello"] * 5)
    code = "from sessiontree.library import Library\nwith Library() as library: print(len(library.sessions()))"
    environment = {**os.environ, **world.environment}
    for _ in range(2):
        running = [
            subprocess.Popen(
                [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            for _ in range(6)
        ]
        for process in running:
            out, err = process.communicate(timeout=60)
            assert (out.strip(), err) == (b"80", b"")
        assert listed(world)[1].scan.read == 0
        database(world).write_bytes(b"no database" * 1000)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SESSIONTREE_CACHE": "/c"}, "/c/library.sqlite"),
        ({"SESSIONTREE_CACHE": "/c/x.sqlite"}, "/c/x.sqlite"),
        ({"XDG_CACHE_HOME": "/xdg", "HOME": "/h"}, "/xdg/sessiontree/library.sqlite"),
        ({"HOME": "/h"}, "/h/.cache/sessiontree/library.sqlite"),
    ],
)
def test_the_environment_sets_its_path(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_path(variables) == expected
