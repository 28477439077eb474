"""A process killed with SIGKILL at any time loses nothing that had returned, and leaves no partial file."""

from __future__ import annotations

import glob
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import sessiontree
from sessiontree.conversion.verify import first_difference
from sessiontree.stores.blobs import FileBlobs
from tests.conversion.conversations import everything


@pytest.fixture(params=[pytest.param(3, id="short"), pytest.param(30, id="long", marks=pytest.mark.slow)])
def rounds(request: pytest.FixtureRequest) -> int:
    """Number of times a child is killed."""
    return int(request.param)


def kill_while(task: str, *arguments: str, after_lines: int, pause: float) -> list[str]:
    """Run a child, kill it some time after it printed a number of lines, and return all lines it printed."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.durability.children", task, *arguments],
        stdout=subprocess.PIPE,
        bufsize=0,  # `communicate` ignores what `readline` has buffered
        cwd=Path(__file__).parents[2],
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(after_lines)]
    time.sleep(pause)
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate(timeout=30)
    output = b"".join(lines) + rest
    return output[: output.rfind(b"\n") + 1].decode().splitlines()


def iter_moments(seed: int, rounds: int) -> Iterator[tuple[int, float]]:
    """When to kill: after how many lines, and how many seconds later."""
    chance = random.Random(seed)
    for _ in range(rounds):
        yield chance.randrange(1, 40), chance.random() * 0.01


def test_every_append_that_returned_survives_a_kill(tmp_path: Path, rounds: int) -> None:
    path = tmp_path / "s.jsonl"
    sessiontree.create(cwd="/", path=path, appear="now").close()
    returned: list[str] = []
    for number, (after, pause) in enumerate(iter_moments(1, rounds)):
        returned += kill_while("append_forever", str(path), f"writer{number}", after_lines=after, pause=pause)
        session = sessiontree.open(path)
        assert set(returned) <= set(session.ids)
        assert {problem.kind for problem in session.problems} <= {"torn-tail", "no-final-newline", "undecodable"}
        # A line may have been written by a child that was killed before it printed the id; it is on the path as well.
        assert [id for id in session.path_ids(session.ids[-1]) if id in set(returned)] == returned
    assert len(returned) > rounds


def test_appending_continues_after_a_line_that_a_kill_tore(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    session = sessiontree.create(cwd="/", path=path)
    kept = [session.append("user", str(number)).id for number in range(3)]
    session.close()
    with open(path, "ab") as file:
        file.write(b'{"type":"message","id":"torn0000","parentId":"')
    session = sessiontree.open(path)
    added = session.append("user", "after the tear")
    again = sessiontree.open(path)
    assert again.ids == [*kept, added.id]
    assert [problem.kind for problem in again.problems] == ["undecodable"]
    assert again.path_ids() == [*kept, added.id]


def test_a_killed_fork_leaves_only_complete_sessions(tmp_path: Path, rounds: int) -> None:
    source = sessiontree.create(cwd="/", home=tmp_path)
    for number in range(300):
        source.append("user", f"{number} " + "x" * 2000)
    expected = source.ids
    source.close()
    for after, pause in iter_moments(2, min(rounds, 12)):
        forks = kill_while("fork_forever", source.location, after_lines=min(after, 4), pause=pause)
        assert all(os.path.exists(path) for path in forks)
    for path in glob.glob(f"{tmp_path}/sessions/*/*.jsonl"):
        session = sessiontree.open(path)
        assert session.ids == expected
        assert session.problems == []


def test_a_killed_creation_leaves_no_partial_session(tmp_path: Path, rounds: int) -> None:
    created: list[str] = []
    for after, pause in iter_moments(3, min(rounds, 12)):
        created += kill_while("create_forever", str(tmp_path), after_lines=min(after, 6), pause=pause)
    found = glob.glob(f"{tmp_path}/sessions/*/*.jsonl")
    assert set(created) <= set(found)
    for path in found:
        session = sessiontree.open(path)
        assert (len(session), session.problems) == (2, [])


def test_a_killed_blob_write_leaves_no_partial_blob(tmp_path: Path, rounds: int) -> None:
    blobs = FileBlobs(tmp_path)
    stored: set[str] = set()
    for after, pause in iter_moments(4, min(rounds, 15)):
        stored |= set(kill_while("put_blobs_forever", str(tmp_path), after_lines=after, pause=pause))
    names = [entry.name for entry in tmp_path.glob("??/*") if not entry.name.startswith(".")]
    assert stored <= set(names)
    for name in names:
        assert blobs.get(name) is not None


def test_a_killed_migration_leaves_the_complete_old_or_new_file(tmp_path: Path, rounds: int) -> None:
    header = b'{"type":"session","id":"019c0000-0000-7000-8000-00000000000a","timestamp":"2026-02-16T10:00:00.000Z"}\n'
    line = b'{"type":"message","timestamp":"2026-02-16T10:00:01.000Z","message":{"role":"user","content":"%s %d"}}\n'
    old = header + b"".join(line % (b"x" * 500, number) for number in range(400))
    path, pristine = tmp_path / "s.jsonl", tmp_path / "pristine"
    path.write_bytes(old)
    pristine.write_bytes(old)
    expected = sessiontree.open(path).ids
    for after, pause in iter_moments(5, min(rounds, 12)):
        kill_while("migrate_forever", str(path), str(pristine), after_lines=min(after, 3), pause=pause)
        session = sessiontree.open(path)
        assert session.ids == expected
        assert session.header.version in (1, 3)
        assert {problem.kind for problem in session.problems} <= {"old-version"}


@pytest.mark.parametrize(
    "to",
    ["claude", "native", *(pytest.param(name, marks=pytest.mark.slow) for name in ("neovate", "omp", "pi"))],
)
def test_a_killed_installation_leaves_no_partial_file_where_an_agent_looks(tmp_path: Path, to: str) -> None:
    source, home = tmp_path / "source.jsonl", tmp_path / "home"
    source.write_bytes(b"".join(sessiontree.convert(everything(), "native", branch="all").lines))
    chance = random.Random(7)
    for _ in range(3):
        kill_while(
            "install_forever",
            str(source),
            str(home),
            to,
            after_lines=chance.randrange(1, 3),
            pause=chance.random() * 0.05,
        )
    files = [path for path in home.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".jsonl"}
    for path in files:
        installed = sessiontree.open(path, dialect=to)
        assert (
            first_difference(sessiontree.open(source), sessiontree.open(source).leaf, installed, all_branches=True)
            is None
        )


@pytest.mark.parametrize(("processes", "entries"), [(3, 200), pytest.param(8, 1000, marks=pytest.mark.slow)])
def test_processes_that_append_to_one_file_lose_no_entry_and_wait_less_than_a_second(
    tmp_path: Path, processes: int, entries: int
) -> None:
    path = tmp_path / "s.jsonl"
    first = sessiontree.create(cwd="/", path=path)
    first.append("user", "start")
    first.close()
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.durability.children", "append_some", str(path), f"w{number}", str(entries)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        for number in range(processes)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
    outputs = [child.communicate(timeout=200)[0].decode().split() for child in children]
    assert [child.returncode for child in children] == [0] * processes
    session = sessiontree.open(path)
    assert session.problems == []
    assert len(session) == 1 + processes * entries
    for *ids, longest in outputs:
        assert len(ids) == entries
        assert [session.parent(id) for id in ids[1:]] == ids[:-1]
        assert session.path_ids(ids[-1])[-entries:] == ids
        assert float(longest) < 1
