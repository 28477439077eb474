"""File systems that lack hard links or locks, and sessions behind symbolic links."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sessiontree
from sessiontree.cli import main
from sessiontree.errors import ExistsError, StoreError
from sessiontree.library import sqlite_connection
from sessiontree.library.sqlite_connection import NoLocksError
from sessiontree.search import prompt_spool
from sessiontree.stores.atomic_files import StagedFile, create_file
from sessiontree.stores.file import FileStore
from sessiontree.stores.file_lock import file_lock
from sessiontree.stores.os_calls import OsCalls
from sessiontree.testing.faults import FailingOsCalls
from tests.builders import header, message_line

NO_LINK = [errno.EPERM, errno.ENOTSUP, errno.ENOSYS]
NO_FLOCK = [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK]

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    for name, folder in {"HOME": "user", "SESSIONTREE_HOME": "home", "SESSIONTREE_CACHE": "cache"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capfd.readouterr()
        return code, out.strip(), err.strip()

    return run


def without(monkeypatch: pytest.MonkeyPatch, call: str, error: int) -> None:
    """Make a call fail everywhere."""

    def fail(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    for name in ("link", "link_open_file") if call == "link" else (call,):
        monkeypatch.setattr(OsCalls, name, fail)


@pytest.mark.parametrize(
    ("call", "error"), [*(("link", error) for error in NO_LINK), *(("flock", error) for error in NO_FLOCK)]
)
def test_commands_work_without_hard_links_and_without_locks(
    call: str, error: int, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, call, error)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    lacks_locks_everywhere = call == "flock"
    if lacks_locks_everywhere:  # but not in the temporary folder
        monkeypatch.setattr(OsCalls, "flock", flock_only_below(tmp_path / "tmp", error))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
        (tmp_path / "tmp").mkdir()
    code, path, err = command("new", "--cwd", str(tmp_path))
    assert (code, err) == (0, "")
    assert command("append", path, "user", "hello")[0] == 0
    assert command("append", path, "assistant", "hi")[0] == 0
    code, fork, err = command("fork", path)
    assert (code, err.startswith("to continue here: ")) == (0, True)
    assert [entry.id for entry in sessiontree.open(fork)] == [entry.id for entry in sessiontree.open(path)]
    code, _, err = command("keep", path)
    assert (code, "Traceback" in err) == (0, False)
    code, _, err = command("sync", str(tmp_path / "shared"))
    assert (code, "failed" in err) == (0, False)
    assert list((tmp_path / "shared").rglob("*.jsonl"))
    assert command("export", path, "--out", str(tmp_path / "page.md"))[0] == 0
    assert "hello" in (tmp_path / "page.md").read_text()
    assert command("convert", path, "--to", "pi", "--install")[0] == 0
    assert command("rename", path, "named")[0] == 0
    assert sessiontree.open(path).name == "named"
    left = [found for found in tmp_path.rglob("*.tmp") if found.is_file()]
    assert left == []


def flock_only_below(folder: Path, error: int) -> Callable[..., None]:
    def flock(_: OsCalls, fd: int, operation: int) -> None:
        if not os.readlink(f"/proc/self/fd/{fd}").startswith(f"{folder}/"):
            raise OSError(error, os.strerror(error))
        fcntl.flock(fd, operation)

    return flock


@pytest.mark.parametrize("error", NO_FLOCK)
def test_without_locks_anywhere_a_write_fails_with_one_clear_line(
    error: int, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = command("new", "--cwd", str(tmp_path))[1]
    before = Path(path).read_bytes()
    without(monkeypatch, "flock", error)
    code, out, err = command("append", path, "user", "hello")
    assert (code, out) == (1, "")
    assert "\n" not in err
    assert "has no locks" in err
    assert Path(path).read_bytes() == before


def test_writers_exclude_each_other_without_locks_in_their_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(OsCalls, "flock", flock_only_below(tmp_path / "tmp", errno.ENOTSUP))
    with file_lock(str(tmp_path / "lock")), file_lock(str(tmp_path / "lock"), blocking=False) as is_ours:
        assert not is_ours
    with file_lock(str(tmp_path / "lock"), blocking=False) as is_ours:
        assert is_ours
    store = FileStore(tmp_path / "s")
    store.create([b"first\n"])

    def write(writer: int) -> None:
        own = FileStore(tmp_path / "s")
        for number in range(20):
            while own.append(b"%d %d\n" % (writer, number), expected_size=own.size()) is None:
                pass
        own.close()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len((tmp_path / "s").read_bytes().splitlines()) == 81


def test_the_prompt_spool_keeps_no_lock_without_locks_in_its_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(OsCalls, "flock", flock_only_below(tmp_path / "tmp", errno.ENOTSUP))
    home = tmp_path / "home"
    taken: list[str] = []
    for prompt in ("one", "two"):
        prompt_spool.remember(str(home), prompt)
    assert [found.name for found in home.iterdir()] == ["history-new.jsonl"]
    prompt_spool.take(str(home), lambda prompts: taken.extend(typed.prompt for typed in prompts))
    assert taken == ["one", "two"]
    assert not list(home.iterdir())


@pytest.fixture
def lacks_record_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Databases as on a file system without record locks, where SQLite finds each of them busy."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", fail)
    for module in ("library.cache", "search.index_db", "search.prompt_db"):
        monkeypatch.setattr(f"sessiontree.{module}._BUSY_SECONDS", 0.05)
    with contextlib.ExitStack() as stack:
        for name in ("cache/library.sqlite", "cache/search.sqlite", "home/history.sqlite"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            other = stack.enter_context(contextlib.closing(sqlite3.connect(tmp_path / name, isolation_level=None)))
            other.execute("BEGIN EXCLUSIVE")
        yield


@pytest.mark.usefixtures("lacks_record_locks")
def test_a_search_without_locks_scans_the_files_and_names_the_cause(command: Command, tmp_path: Path) -> None:
    _, path, _ = command("new", "--cwd", str(tmp_path))
    assert command("append", path, "user", "hello")[0] == 0
    code, out, err = command("search", "hello")
    assert (code, "«hello»" in out) == (0, True)
    cause = f"{tmp_path}/cache/search.sqlite: its file system has no locks"
    assert f"the index cannot be used ({cause}; set SESSIONTREE_CACHE to a folder on another file system)" in err


@pytest.mark.usefixtures("lacks_record_locks")
def test_a_prompt_history_without_locks_names_the_cause_and_the_next_step(command: Command, tmp_path: Path) -> None:
    code, out, err = command("history")
    cause = f"{tmp_path}/home/history.sqlite: its file system has no locks"
    assert (code, out) == (1, "")
    assert err == f"sessiontree: {cause}; set SESSIONTREE_HOME to a folder on another file system"


@pytest.mark.usefixtures("lacks_record_locks")
def test_a_database_without_locks_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(NoLocksError):
        sqlite_connection.connect(str(tmp_path / "cache" / "search.sqlite"), 3_600.0)


def test_a_lock_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    os.symlink(tmp_path, tmp_path / f"sessiontree-locks-{os.getuid()}")
    monkeypatch.setattr(OsCalls, "flock", flock_only_below(tmp_path / "tmp", errno.ENOTSUP))
    with pytest.raises(StoreError, match="cannot be used instead"), file_lock(str(tmp_path / "lock")):
        pass


@pytest.mark.parametrize("error", NO_LINK)
def test_without_hard_links_a_new_file_never_replaces_another(error: int, tmp_path: Path) -> None:
    os_calls = FailingOsCalls()
    os_calls.fail_always("link", error)
    create_file(str(tmp_path / "a"), [b"one"], os_calls)
    with pytest.raises(ExistsError):
        create_file(str(tmp_path / "a"), [b"two"], os_calls)
    staged = StagedFile(str(tmp_path / "b"), [b"three"], os_calls)
    staged.publish()
    with pytest.raises(ExistsError):
        StagedFile(str(tmp_path / "b"), [b"four"], os_calls).publish()
    assert {found.name: found.read_bytes() for found in tmp_path.iterdir()} == {"a": b"one", "b": b"three"}


@pytest.mark.parametrize("error", NO_LINK)
def test_without_hard_links_a_replaced_file_has_a_backup(error: int, tmp_path: Path) -> None:
    os_calls = FailingOsCalls()
    os_calls.fail_always("link", error)
    store = FileStore(tmp_path / "s", os_calls=os_calls)
    store.create([b"old\n"])
    backup = store.replace([b"new\n"], expected_size=4)
    assert (Path(backup).read_bytes(), (tmp_path / "s").read_bytes()) == (b"old\n", b"new\n")


# Symbolic links


def test_repair_through_a_link_repairs_the_target(command: Command, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "s.jsonl", tmp_path / "link.jsonl"
    damaged = header() + message_line("a0000001") + b'{"type":"mess\n'
    target.write_bytes(damaged)
    link.symlink_to(target)
    code, _, err = command("repair", str(link), "--in-place")
    assert code == 0, err
    assert link.is_symlink()
    assert target.read_bytes() != damaged
    assert sessiontree.open(target).problems == []
    (backup,) = (tmp_path / "real").glob("*.bak")
    assert backup.read_bytes() == damaged
    assert not backup.is_symlink()
    assert sorted(path.name for path in tmp_path.glob("link*")) == ["link.jsonl"]


def test_migrate_through_a_link_migrates_the_target(command: Command, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "s.jsonl", tmp_path / "link.jsonl"
    old = b'{"type":"session","version":2,"id":"x","timestamp":"2026-02-16T10:00:00.000Z","cwd":"/"}\n'
    old += message_line("a0000001")
    target.write_bytes(old)
    link.symlink_to(os.path.relpath(target, tmp_path))
    code, out, err = command("migrate", str(link))
    assert code == 0, err
    assert link.is_symlink()
    assert b'"version":3' in target.read_bytes()
    assert Path(out).parent == target.parent
    assert Path(out).read_bytes() == old
