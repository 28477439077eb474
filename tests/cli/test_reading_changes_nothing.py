"""No reading command changes a file of Codex, OpenCode, Gemini CLI or Qwen Code, also beside a running client."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.library.world import World
from tests.search.four_agents import BUILDERS, OPENCODE_DATABASE, OPENCODE_SESSION, SESSION, THREAD

DATABASE_FILES = tuple(OPENCODE_DATABASE + ending for ending in ("", "-wal", "-shm"))

# All commands in one process: starting Python takes longer than most of them.
COMMANDS = """
import json, sys
from sessiontree.cli import main
for arguments in json.loads(sys.argv[1]):
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code
    print(json.dumps([arguments, code]), file=sys.stderr)
"""

WRITER = """
import itertools, sqlite3, sys
client = sqlite3.connect(sys.argv[1], isolation_level=None)
client.execute("PRAGMA journal_mode = WAL")
client.execute("CREATE TABLE written (number integer)")
for number in itertools.count(1):
    client.execute("BEGIN IMMEDIATE")
    client.execute("UPDATE session SET time_updated = time_updated + 1")
    client.execute("INSERT INTO written VALUES (?)", (number,))
    client.execute("COMMIT")
    print(number, flush=True)
    if number == int(sys.argv[2]):
        sys.stdin.read()
"""
ALWAYS = 0


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    for build in BUILDERS.values():
        build(made)
    return made


def state(home: Path) -> dict[str, tuple[int, int, bytes]]:
    """Inode, modification time and content of every file and folder."""
    found = {}
    for path in (home, *home.rglob("*")):
        about = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(home))] = about.st_ino, about.st_mtime_ns, content
    return found


def read_everything(world: World) -> None:
    paths = {
        "codex": next(world.home.rglob(f"rollout-*{THREAD}.jsonl")),
        "opencode": f"{world.home / OPENCODE_DATABASE}#{OPENCODE_SESSION}",
        "gemini": next(world.home.rglob("session-*.jsonl")),
        "qwen": next(world.home.rglob(f"chats/{SESSION}.jsonl")),
    }
    commands = [["list", "--all"], ["search", "needleanswer"], ["stats", "--all"], ["doctor", "--all"]]
    for agent, path in paths.items():
        commands += [[command, str(path)] for command in ("show", "tree", "info", "doctor", "context")]
        commands.append(["export", str(path), "--out", str(world.folder / f"{agent}.html")])
    own = {"SESSIONTREE_HOME": str(world.folder / "ours"), "TZ": "UTC"}
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        env={**os.environ, **world.environment, **own},
        cwd=world.folder,
        capture_output=True,
        timeout=120,
        check=False,
    )
    ended = [json.loads(line) for line in done.stderr.splitlines() if line.startswith(b"[[")]
    # A doctor that finds a problem ends with 1; none of these sessions has one that hides a text.
    wrong = [(arguments, code) for arguments, code in ended if code not in (0, None) and arguments[0] != "doctor"]
    assert not wrong, done.stderr.decode()
    assert len(ended) == len(commands), done.stderr.decode()
    shown = done.stdout.decode()
    assert shown.count("needleanswer") >= 3 * len(paths)
    assert all((world.folder / f"{agent}.html").read_text().count("needleanswer") for agent in paths)


def test_reading_changes_no_byte_and_no_time_of_any_file(world: World) -> None:
    before = state(world.home)
    read_everything(world)
    assert state(world.home) == before


@contextmanager
def writing(world: World, count: int) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the database of OpenCode open and writes to it: some times, or all the time."""
    command = [sys.executable, "-c", WRITER, str(world.home / OPENCODE_DATABASE), str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def test_nothing_changes_while_a_client_holds_its_database_open(world: World) -> None:
    with writing(world, 1):
        _check_unchanged(world)


@pytest.mark.slow
def test_nothing_changes_while_a_client_is_stopped_at_any_moment(world: World) -> None:
    with writing(world, ALWAYS) as client:  # also within a transaction
        client.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, client.pid, os.WSTOPPED | os.WNOWAIT)
        _check_unchanged(world)


def _check_unchanged(world: World) -> None:
    before = state(world.home)
    assert {*DATABASE_FILES} <= before.keys()
    read_everything(world)
    assert state(world.home) == before


@pytest.mark.slow
def test_a_client_that_writes_all_the_time_is_not_disturbed(world: World) -> None:
    with writing(world, ALWAYS) as client:
        assert client.stdout is not None
        before = state(world.home)
        read_everything(world)
        after = state(world.home)
        assert after.keys() == before.keys()
        assert {name for name in after if after[name] != before[name]} <= {*DATABASE_FILES}
        assert client.poll() is None
        while int(client.stdout.readline()) < 100:  # it still writes
            continue
    with closing(sqlite3.connect(world.home / OPENCODE_DATABASE)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        numbers = [number for (number,) in database.execute("SELECT number FROM written ORDER BY number")]
    assert numbers == [*range(1, len(numbers) + 1)]
