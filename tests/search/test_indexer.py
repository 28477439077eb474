"""The index stays correct when files change, the index is damaged, or the indexing process dies."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessiontree.search import Index, engine
from sessiontree.search.index_db import VERSION, decode_row
from tests.library.world import IDS, World, append, claude_lines, json_lines, pi_lines, touch

WORDS = [f"{first}{second}" for first in ("ba", "ke", "lo", "mi", "tu") for second in ("rn", "st", "lk", "ndo", "x")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def fill(world: World, sessions: int, prompts: int, seed: int = 1) -> list[Path]:
    chance = random.Random(seed)
    paths = []
    for number in range(sessions):
        texts = [" ".join(chance.choices(WORDS, k=60)) + f" only{number}x{turn}" for turn in range(prompts)]
        make = world.claude if number % 2 else world.pi
        paths.append(make(IDS[number], "/work", texts, minute=number))
    return paths


def update(world: World) -> None:
    with world.library() as library, Index(world.environment) as indexer:
        indexer.update(library.everything())


Row = tuple[str, str, int, bool]


def rows(world: World) -> list[Row]:
    """The content of the index for existing files: terms by file and chunk."""
    with Index(world.environment) as indexer:
        database = indexer.store.database
        database.execute("CREATE VIRTUAL TABLE temp.every USING fts5vocab('main', 'terms', 'instance')")
        paths = {known.file: known.path for known in indexer.store.indexed_files().values()}
        found: set[Row] = set()
        for term, row in database.execute("SELECT term, doc FROM temp.every"):
            spot = decode_row(row)
            if spot.file in paths:
                found.add((term, paths[spot.file], spot.chunk, spot.is_descriptive))
        known = [(one.path, one.agent, one.size, one.head, one.edge) for one in indexer.store.indexed_files().values()]
    assert found
    return sorted(found) + sorted(known)  # type: ignore[operator]


def rows_from_scratch(world: World) -> list[Row]:
    folder = Path(world.environment["SESSIONTREE_CACHE"])
    shutil.rmtree(folder)
    update(world)
    return rows(world)


def hits(world: World, query: str, **arguments: object) -> list[str]:
    with world.library() as library:
        return [hit.session.path for hit in library.search(query, **arguments)]


def test_appends_give_the_index_that_reading_everything_gives(world: World) -> None:
    paths = fill(world, 4, 30)
    update(world)
    for number in range(5):
        append(paths[1], claude_lines(IDS[1], "/work", [f"later{number} " + "wide " * 300], minute=90 + number))
        append(paths[0], pi_lines(IDS[0], "/work", [f"afterwards{number}"], minute=90 + number)[1:])
        update(world)
    assert hits(world, "later3") == [str(paths[1])]
    assert rows(world) == rows_from_scratch(world)


def test_an_append_reads_only_what_is_new(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.claude(IDS[0], "/work", ["some words " * 3000] * 20)
    update(world)
    append(path, claude_lines(IDS[0], "/work", ["newest"], minute=59))
    from sessiontree.search import indexer as module

    read: list[int] = []
    whole = module.read_line

    def counting(raw: bytes, *rest: object) -> object:
        read.append(len(raw))
        return whole(raw, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "read_line", counting)
    assert hits(world, "newest") == [str(path)]
    assert sum(read) < 20_000


_INDEXER = """
import sys
from sessiontree.library import Library
from sessiontree.search import Index, indexer
indexer._STEP = 20_000
with Library() as library, Index() as one:
    print("ready", flush=True)
    one.update(library.everything())
"""


def start_indexer(world: World) -> subprocess.Popen[str]:
    environment = {**world.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", _INDEXER], env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("runs", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_after_a_kill_at_any_point_the_next_run_completes_the_same_index(world: World, runs: int) -> None:
    fill(world, 12, 120)
    chance = random.Random(7)
    killed = 0
    for _ in range(runs):
        child = start_indexer(world)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.uniform(0, 0.12))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        killed += child.returncode == -signal.SIGKILL
    assert killed > runs // 4
    update(world)
    assert rows(world) == rows_from_scratch(world)


def test_several_processes_may_index_at_once(world: World) -> None:
    fill(world, 10, 100)
    children = [start_indexer(world) for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        child.stdout.read()
        child.stdout.close()
        assert child.wait() == 0
    assert rows(world) == rows_from_scratch(world)


def test_searches_work_while_another_process_is_indexing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_LOCK_SECONDS", 0.05)
    (path, *_) = fill(world, 2, 5)
    update(world)
    append(path, pi_lines(IDS[0], "/work", ["freshword"], minute=50)[1:])
    with Index(world.environment) as indexer, indexer.store.writer_lock():
        assert set(hits(world, "freshword")) == {str(path)}
        assert hits(world, "only1x3")


def changes() -> Iterator[tuple[str, object]]:
    def shrink(world: World, path: Path) -> None:
        path.write_bytes(json_lines(claude_lines(IDS[40], "/work", ["what is left"])))

    def replace(world: World, path: Path) -> None:
        other = path.with_suffix(".new")
        other.write_bytes(json_lines(claude_lines(IDS[40], "/work", ["what is left"] * 40)))
        os.replace(other, path)

    def rewrite(world: World, path: Path) -> None:
        """Rewrite in place with the same size."""
        path.write_bytes(path.read_bytes().replace(b"oldword", b"newword"))
        touch(path)

    def delete(world: World, path: Path) -> None:
        path.unlink()

    yield from {"shrink": shrink, "replace": replace, "rewrite": rewrite, "delete": delete}.items()


@pytest.mark.parametrize(("name", "change"), list(changes()))
def test_a_file_that_is_changed_leaves_no_stale_hits(world: World, name: str, change: object) -> None:
    fill(world, 3, 3)
    path = world.claude(IDS[40], "/work", ["the oldword stands here"] * 30)
    assert hits(world, "oldword")
    change(world, path)  # type: ignore[operator]
    assert str(path) not in hits(world, "oldword")
    if name in ("shrink", "replace"):
        assert set(hits(world, '"what is left"')) == {str(path)}
    if name == "rewrite":
        assert str(path) in hits(world, "newword")


def test_a_file_that_moves_is_found_where_it_is_now(world: World) -> None:
    path = world.claude(IDS[0], "/work", ["the oldword stands here"])
    assert hits(world, "oldword") == [str(path)]
    there = path.parent.parent / "-elsewhere" / path.name
    there.parent.mkdir()
    path.rename(there)
    assert hits(world, "oldword") == [str(there)]
    assert rows(world) == rows_from_scratch(world)


def test_an_index_with_mostly_deleted_files_is_rebuilt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from sessiontree.search import indexer as module

    monkeypatch.setattr(module, "_STEP", 1000)
    paths = fill(world, 6, 20)
    update(world)
    for path in paths[:5]:
        path.unlink()
    update(world)
    update(world)
    with Index(world.environment) as indexer:
        assert indexer.store.database.execute("SELECT value FROM numbers WHERE name = 'wasted'").fetchone() is None
    assert hits(world, "only5x3") == [str(paths[5])]
    assert not hits(world, "only1x3")


@pytest.mark.parametrize("damage", ["garbage", "truncated", "middle", "other tables", "empty", "no tables"])
def test_a_damaged_index_is_rebuilt(world: World, damage: str) -> None:
    fill(world, 3, 60)
    update(world)
    path = Path(world.environment["SESSIONTREE_CACHE"]) / "search.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    whole = path.read_bytes()
    match damage:
        case "garbage":
            path.write_bytes(b"no database at all, " * 400)
        case "truncated":
            path.write_bytes(whole[: len(whole) // 2])
        case "middle":
            path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
        case "empty":
            path.write_bytes(b"")
        case _:
            path.unlink()
            database = sqlite3.connect(path)
            database.execute("CREATE TABLE files(a)")
            database.execute(f"PRAGMA user_version = {VERSION if damage == 'other tables' else 99}")
            database.commit()
            database.close()
    assert hits(world, "only1x5")
    assert hits(world, "only2x7")
    assert rows(world) == rows_from_scratch(world)


def test_search_works_if_the_index_cannot_be_written(world: World) -> None:
    fill(world, 2, 3)
    blocked = world.folder / "blocked"
    blocked.write_text("a file where a folder should be")
    world.environment["SESSIONTREE_CACHE"] = str(blocked / "inside")
    assert hits(world, "only1x2")


def test_a_line_that_is_being_written_is_found_when_it_is_complete(world: World) -> None:
    path = world.pi(IDS[0], "/work", ["beginning"])
    update(world)
    line = json_lines(pi_lines(IDS[0], "/work", ["", "halfway"], minute=3)[-1:])
    append(path, line[:40])
    assert not hits(world, "halfway")
    append(path, line[40:-1])
    assert hits(world, "halfway") == [str(path)]
    append(path, b"\n")
    append(path, json_lines(pi_lines(IDS[0], "/work", ["", "", "behind"], minute=5)[-1:]))
    assert hits(world, "behind") == [str(path)]
    assert hits(world, "halfway") == [str(path)]
    assert rows(world) == rows_from_scratch(world)


def test_complete_records_on_damaged_lines_are_searched(world: World) -> None:
    one, two = (json_lines([line]).strip() for line in claude_lines(IDS[0], "/work", ["fusedword"])[:2])
    path = world.claude(IDS[0], "/work", ["start"])
    append(path, one + two + b"\n" + b'{"type":"us' + one.replace(b"fused", b"glued") + b"\n" + b"\0" * 64 + b"\n")
    append(path, one.replace(b"fusedword", b"bad\xff\xfebytesword") + b"\n")
    assert hits(world, "fusedword") == [str(path)]
    assert hits(world, "gluedword") == [str(path)]
    assert hits(world, "bytesword") == [str(path)]


def test_lines_longer_than_a_chunk_are_found_at_both_ends(world: World) -> None:
    long = "startword " + "filler words here " * 20_000 + " endword"
    path = world.pi(IDS[0], "/work", ["before", long, "after"])
    for word in ("startword", "endword", "before", "after"):
        assert set(hits(world, word)) == {str(path)}
