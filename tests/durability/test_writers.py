"""Concurrent writers and readers, deleted and replaced files: no entry is lost or written to the wrong file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import sessiontree
from sessiontree.errors import NotFoundError, ReplacedError, UsageError


@pytest.fixture
def session(tmp_path: Path) -> sessiontree.Session:
    session = sessiontree.create(cwd="/", path=tmp_path / "s.jsonl", home=tmp_path, durability="system")
    session.append("user", "start")
    return session


def test_branches_of_one_session_are_written_from_threads_at_the_same_time(session: sessiontree.Session) -> None:
    root = session.leaf
    written: dict[int, list[str]] = {}

    def write(number: int) -> None:
        branch = session.branch(at=root)
        written[number] = [branch.append("user", f"{number} {step}").id for step in range(200)]

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = sessiontree.open(session.location)
    assert (len(again), again.problems) == (1201, [])
    for ids in written.values():
        assert again.path_ids(ids[-1]) == [root, *ids]


def test_refresh_shows_what_another_session_object_wrote(session: sessiontree.Session) -> None:
    other = sessiontree.open(session.location)
    received: list[str] = []
    stop = session.on_entry(lambda entry: received.append(entry.id))
    added = other.append("user", "from the other window")
    assert session.refresh() == [added.id]
    assert received == [added.id]
    stop()
    other.append("user", "not received")
    session.refresh()
    assert received == [added.id]


def test_an_append_reads_the_lines_of_others_first_and_refresh_still_reports_them(session: sessiontree.Session) -> None:
    other = sessiontree.open(session.location)
    theirs = other.append("user", "theirs")
    mine = session.append("user", "mine")
    assert theirs.id in session
    assert session.refresh() == [theirs.id]
    assert sessiontree.open(session.location).parent(mine.id) == sessiontree.open(session.location).parent(theirs.id)


def test_two_windows_that_continue_from_one_entry_become_two_branches(session: sessiontree.Session) -> None:
    other = sessiontree.open(session.location)
    mine = [session.append("user", f"mine {number}").id for number in range(3)]
    theirs = [other.append("user", f"theirs {number}").id for number in range(3)]
    again = sessiontree.open(session.location)
    assert again.path_ids(mine[-1])[1:] == mine
    assert again.path_ids(theirs[-1])[1:] == theirs
    assert sorted(again.leaves()) == sorted([mine[-1], theirs[-1]])


def test_reading_a_file_that_is_being_written_gives_a_correct_prefix(session: sessiontree.Session) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.durability.children", "append_forever", session.location, "w"],
        stdout=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )
    try:
        seen: list[str] = []
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            reader = sessiontree.open(session.location)
            assert reader.ids[: len(seen)] == seen
            assert {problem.kind for problem in reader.problems} <= {"torn-tail", "no-final-newline"}
            assert reader.path_ids(reader.ids[-1]) == reader.ids
            seen = reader.ids
    finally:
        child.kill()
        child.wait()
    assert len(seen) > 50


def test_a_deleted_file_is_noticed_and_not_created_again(session: sessiontree.Session) -> None:
    os.unlink(session.location)
    with pytest.raises(ReplacedError, match="was deleted"):
        session.append("user", "into the void")
    assert not os.path.exists(session.location)


def test_a_file_deleted_before_the_first_write_is_noticed_too(session: sessiontree.Session) -> None:
    fresh = sessiontree.open(session.location)
    os.unlink(session.location)
    with pytest.raises(ReplacedError):
        fresh.append("user", "into the void")
    assert not os.path.exists(session.location)


def test_a_replaced_file_is_noticed_and_not_written(session: sessiontree.Session) -> None:
    other_file = session.location + ".other"
    Path(other_file).write_bytes(b"something else\n")
    os.replace(other_file, session.location)
    with pytest.raises(ReplacedError, match="was replaced"):
        session.append("user", "to the wrong file")
    assert Path(session.location).read_bytes() == b"something else\n"


def test_a_file_truncated_by_another_program_is_noticed_and_not_written(session: sessiontree.Session) -> None:
    session.append("user", "second")
    os.truncate(session.location, 100)
    with pytest.raises(ReplacedError, match="truncated"):
        session.append("user", "after the cut")
    assert os.path.getsize(session.location) == 100


def test_files_are_readable_by_their_user_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        session = sessiontree.create(cwd="/", home=tmp_path / "home")
        session.append("user", "x" * 600_000)
        forked = session.fork()
        forked.append("user", "more")
    finally:
        os.umask(old)
    for root, folders, files in os.walk(tmp_path / "home"):
        for name in folders:
            assert stat.S_IMODE(os.stat(os.path.join(root, name)).st_mode) == 0o700
        for name in files:
            assert stat.S_IMODE(os.stat(os.path.join(root, name)).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "home").st_mode) == 0o700


@pytest.mark.parametrize("id", ["..", "../x", "/etc/passwd", "a/b", "a\x00b", "", ".hidden", "a..b", "a b"])
def test_a_session_id_cannot_leave_its_folder(tmp_path: Path, id: str) -> None:
    with pytest.raises(UsageError):
        sessiontree.create(cwd="/", home=tmp_path, id=id)
    with pytest.raises(sessiontree.SessionTreeError):
        sessiontree.open(id, home=tmp_path)
    assert not any(tmp_path.rglob("*.jsonl"))


def test_labels_and_names_are_only_ever_content(session: sessiontree.Session, tmp_path: Path) -> None:
    entry = session.append("user", "hello")
    session.label(entry.id, "../../../etc/passwd\x00\n")
    session.rename("../../x")
    assert sessiontree.open(session.location).labels == {entry.id: "../../../etc/passwd\x00\n"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.jsonl"]


def test_a_folder_of_sessions_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    session = sessiontree.create(cwd="/", home=tmp_path / "home")
    session.append("user", "hello")
    folder = Path(session.location).parent
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    with pytest.raises(UsageError, match="symbolic link"):
        sessiontree.create(cwd="/", home=tmp_path / "home")
    with pytest.raises(NotFoundError):
        sessiontree.open(session.id, home=tmp_path / "home")


def test_a_session_object_that_came_through_a_fork_of_the_process_takes_its_own_lock(
    session: sessiontree.Session,
) -> None:
    pids = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                branch = session.branch()
                for step in range(100):
                    branch.append("user", f"{number} {step}")
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
    again = sessiontree.open(session.location)
    assert (len(again), again.problems) == (401, [])
