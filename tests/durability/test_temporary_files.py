"""Temporary files of killed processes are removed; those of living ones never."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessiontree.cli import main
from sessiontree.stores import temporary_files
from sessiontree.stores.atomic_files import create_file, write_temporary
from sessiontree.stores.file import FileStore
from sessiontree.stores.safe_files import write_file
from sessiontree.stores.temporary_files import find_leftovers, temporary_path


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every file counts as old: the time of the last change of an inode cannot be set."""
    monkeypatch.setattr(temporary_files, "LEFTOVER_SECONDS", -1.0)
    monkeypatch.setattr(temporary_files, "_swept", set())
    monkeypatch.setattr(temporary_files, "_swept_open", set())
    return


def killed_writer(path: Path) -> Path:
    """Kill a process while it creates a file; returns the temporary file that it left."""
    code = f"""
import time
from sessiontree.stores.atomic_files import create_file
def chunks():
    yield b"begun"
    print("writing", flush=True)
    time.sleep(60)
create_file({str(path)!r}, chunks())
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    (left,) = path.parent.glob(".*.tmp")
    assert find_leftovers([str(path.parent)]) == [], "a living process is writing it"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    return left


@pytest.mark.usefixtures("aged")
def test_the_next_writer_in_the_folder_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    left = killed_writer(tmp_path / "a.jsonl")
    create_file(str(tmp_path / "b.jsonl"), [b"another session"])
    assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["b.jsonl"]


@pytest.mark.usefixtures("aged")
def test_a_rewrite_removes_it_too(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "s.jsonl")
    store.create([b"old\n"])
    left = killed_writer(tmp_path / "a.jsonl")
    temporary_files._swept.clear()
    store.replace([b"new\n"], expected_size=4)
    assert not left.exists()


@pytest.mark.usefixtures("aged")
def test_the_next_write_of_an_agent_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    code = f"""
import os, time
from sessiontree.stores import safe_files
def stall(fd):
    print("writing", flush=True)
    time.sleep(60)
os.fsync = stall
safe_files.write_file({str(folder / "a.py")!r}, b"new")
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    (left,) = folder.glob(".*.tmp")
    for name in (".a.py.0123456789ab.tmp", ".notes.tmp"):
        (folder / name).write_bytes(b"of the user")
    write_file(str(folder / "b.py"), b"while the other process lives")
    assert left.exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    temporary_files._swept_open.clear()
    write_file(str(folder / "b.py"), b"another file")
    assert sorted(path.name for path in folder.iterdir()) == [".a.py.0123456789ab.tmp", ".notes.tmp", "b.py"]


def test_a_recent_file_stays_although_no_process_has_locked_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the end of writing and the rename it has no lock. A copied modification time does not make it old."""
    monkeypatch.setattr(temporary_files, "_swept", set())
    temporary = write_temporary(str(tmp_path / "a"), [b"complete"])
    os.utime(temporary, (0, 0))
    create_file(str(tmp_path / "b"), [b"x"])
    assert os.path.exists(temporary)


@pytest.mark.usefixtures("aged")
def test_only_our_own_names_are_removed(tmp_path: Path) -> None:
    others = [".notes.tmp", "a.0123456789ab.tmp", ".a.0123456789AB.tmp", ".a.0123456789ab.tmp2", ".0123456789ab.tmp"]
    for name in others:
        (tmp_path / name).write_bytes(b"not ours")
    (tmp_path / ".link.0123456789ab.tmp").symlink_to(tmp_path / "elsewhere")
    create_file(str(tmp_path / "b"), [b"x"])
    assert {path.name for path in tmp_path.iterdir()} == {*others, ".link.0123456789ab.tmp", "b"}


@pytest.mark.usefixtures("aged")
def test_purge_removes_leftovers_everywhere_only_with_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, folder in {"HOME": "user", "SESSIONTREE_HOME": "home", "SESSIONTREE_CACHE": "cache"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    places = [tmp_path / "home/sessions/x", tmp_path / "home/terminal-sessions", tmp_path / "user/.pi/agent/sessions/y"]
    left = []
    for place in places:
        place.mkdir(parents=True)
        left.append(Path(temporary_path(str(place / "s"))))
        left[-1].write_bytes(b"begun")
    copied = Path(temporary_path(str(places[2] / "related")))
    copied.mkdir()
    (copied / "inner.jsonl").write_bytes(b"begun")
    busy = Path(temporary_path(str(places[0] / "busy")))
    busy.write_bytes(b"begun")
    with busy.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert main(["clean", "--purge"]) == 0
        assert "4 temporary files" in capfd.readouterr().err
        assert all(path.exists() for path in (*left, copied))
        assert main(["clean", "--purge", "--yes"]) == 0
    assert not any(path.exists() for path in (*left, copied))
    assert busy.exists()
