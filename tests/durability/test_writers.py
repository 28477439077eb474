"""Concurrent writers and readers, deleted and replaced files: no entry is lost or written to the wrong file."""

from __future__ import annotations

import itertools
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
from tests.stores import POSTGRESQL

_numbers = itertools.count()


@pytest.fixture
def session(tmp_path: Path) -> sessiontree.Session:
    session = sessiontree.create(cwd="/", path=tmp_path / "s.jsonl", home=tmp_path, durability="system")
    session.append("user", "start")
    return session


@pytest.fixture(params=["files", POSTGRESQL])
def stored_session(request: pytest.FixtureRequest) -> sessiontree.Session:
    """A session in a file or in a database."""
    if request.param == "files":
        found: sessiontree.Session = request.getfixturevalue("session")
        return found
    from sessiontree.stores.postgres import open_postgres_repository  # needs psycopg, which few tests do

    address = request.getfixturevalue("server").create_database(f"writers{next(_numbers)}")
    open_postgres_repository(address).upgrade()
    session = sessiontree.create(cwd="/", home=address)
    session.append("user", "start")
    return session


def test_branches_of_one_session_are_written_from_threads_at_the_same_time(stored_session: sessiontree.Session) -> None:
    root = stored_session.leaf
    written: dict[int, list[str]] = {}

    def write(number: int) -> None:
        branch = stored_session.branch(at=root)
        written[number] = [branch.append("user", f"{number} {step}").id for step in range(200)]

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = sessiontree.open(stored_session.location)
    assert (len(again), again.problems) == (1201, [])
    for ids in written.values():
        assert again.path_ids(ids[-1]) == [root, *ids]


def test_refresh_shows_what_another_session_object_wrote(stored_session: sessiontree.Session) -> None:
    other = sessiontree.open(stored_session.location)
    received: list[str] = []
    stop = stored_session.on_entry(lambda entry: received.append(entry.id))
    added = other.append("user", "from the other window")
    assert stored_session.refresh() == [added.id]
    assert received == [added.id]
    stop()
    other.append("user", "not received")
    stored_session.refresh()
    assert received == [added.id]


def test_an_append_reads_the_lines_of_others_first_and_refresh_still_reports_them(
    stored_session: sessiontree.Session,
) -> None:
    other = sessiontree.open(stored_session.location)
    theirs = other.append("user", "theirs")
    mine = stored_session.append("user", "mine")
    assert theirs.id in stored_session
    assert stored_session.refresh() == [theirs.id]
    assert sessiontree.open(stored_session.location).parent(mine.id) == sessiontree.open(
        stored_session.location
    ).parent(theirs.id)


def test_two_windows_that_continue_from_one_entry_become_two_branches(stored_session: sessiontree.Session) -> None:
    other = sessiontree.open(stored_session.location)
    mine = [stored_session.append("user", f"mine {number}").id for number in range(3)]
    theirs = [other.append("user", f"theirs {number}").id for number in range(3)]
    again = sessiontree.open(stored_session.location)
    assert again.path_ids(mine[-1])[1:] == mine
    assert again.path_ids(theirs[-1])[1:] == theirs
    assert sorted(again.leaves()) == sorted([mine[-1], theirs[-1]])


@pytest.mark.slow
def test_reading_a_file_that_is_being_written_gives_a_correct_prefix(stored_session: sessiontree.Session) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.durability.children", "append_forever", stored_session.location, "w"],
        stdout=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )
    try:
        seen: list[str] = []
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            reader = sessiontree.open(stored_session.location)
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


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if time had passed since the last append."""
    monkeypatch.setattr("sessiontree.stores.file._TRUSTED_SECONDS", -1.0)


def rewrite_in_place(path: str, old: bytes, new: bytes, more: bytes = b"") -> None:
    data = Path(path).read_bytes()
    assert old in data
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(data.replace(old, new) + more)


@pytest.mark.parametrize(
    "more", [b"", b'{"type":"label","id":"ffffffff","parentId":null}\n' * 3], ids=["same", "longer"]
)
@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_file_rewritten_in_place_is_noticed_and_not_written(
    session: sessiontree.Session, more: bytes, is_fresh: bool
) -> None:
    """Same inode, and a size that appends of other programs could have given it."""
    session.append("user", "the second message")
    inode = os.stat(session.location).st_ino
    writer = sessiontree.open(session.location) if is_fresh else session
    time.sleep(0.01)  # within a millisecond of its own append a store trusts the size
    rewrite_in_place(session.location, b"the second message", b"another message!!!", more)
    after = Path(session.location).read_bytes()
    assert os.stat(session.location).st_ino == inode
    with pytest.raises(ReplacedError, match="was rewritten"):
        writer.append("user", "to a history that was not read")
    with pytest.raises(ReplacedError, match="was rewritten"):
        writer.append("user", "nor later")
    assert Path(session.location).read_bytes() == after
    reopened = sessiontree.open(session.location)
    reopened.append("user", "to the history that is there now")
    assert len(sessiontree.open(session.location)) == len(reopened)


def test_a_new_session_notices_a_rewrite_before_its_second_message(tmp_path: Path) -> None:
    session = sessiontree.create(cwd="/", path=tmp_path / "s.jsonl", home=tmp_path)
    session.append("user", "the first message")
    rewrite_in_place(session.location, b"the first message", b"something else than that")
    with pytest.raises(ReplacedError, match="was rewritten"):
        session.append("user", "second")


def test_a_refresh_does_not_read_on_in_a_file_that_was_rewritten(session: sessiontree.Session) -> None:
    session.append("user", "the second message")
    known = len(session)
    rewrite_in_place(session.location, b"the second message", b"longer than the second message was")
    with pytest.raises(ReplacedError, match="was rewritten"):
        session.refresh()
    assert len(session) == known


def test_a_title_that_is_overwritten_in_place_is_not_a_rewrite(tmp_path: Path) -> None:
    """oh-my-pi overwrites the title at the start of a file while it is open."""
    slot = b'{"type":"title","v":1,"title":"old!","updatedAt":"x","pad":"    "}\n'
    line = b'{"type":"session","version":3,"id":"a","timestamp":"2026-02-16T10:00:00.000Z","cwd":"/"}\n'
    path = tmp_path / "s.jsonl"
    path.write_bytes(slot + line)
    session = sessiontree.open(path, dialect="omp")
    with path.open("r+b") as file:
        file.write(slot.replace(b"old!", b"new!"))
    session.append("user", "hello")
    assert path.read_bytes().startswith(slot.replace(b"old!", b"new!") + line)
