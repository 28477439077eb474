"""Backups and sync: the union of two sides, line by line, nothing overwritten."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree.archive.archive_home import Home
from sessiontree.archive.prune_branch import plan_prune, prune
from sessiontree.archive.restore import restore
from sessiontree.archive.sync import FolderSync, SyncResult
from sessiontree.errors import UsageError
from sessiontree.testing.faults import FailingOsCalls
from tests.archive.conftest import Command
from tests.archive.machine import (
    claude_message,
    contents,
    home_of,
    kill_at_each_step,
    native_lines,
    write_claude,
    write_native,
)
from tests.builders import header, message_line


def synced(home: Home, folder: Path, both_ways: bool = True) -> list[SyncResult]:
    return list(FolderSync(home, str(folder)).run(both_ways=both_ways))


def append(path: Path, line: bytes) -> None:
    with path.open("ab") as file:
        file.write(line)


def copy_of(path: Path, folder: Path, agent: str = "native") -> Path:
    return folder / agent / path.parent.name / path.name


def test_a_backup_has_every_file_and_blob_of_every_session_unchanged(tmp_path: Path) -> None:
    home, folder = home_of(tmp_path), tmp_path / "backup"
    native, claude = write_native(tmp_path), write_claude(tmp_path)
    session = sessiontree.open(native)
    session.append("user", "x" * 600_000)
    session.close()
    results = synced(home, folder, both_ways=False)
    assert {result.what for result in results} == {"copied"}
    assert copy_of(native, folder).read_bytes() == native.read_bytes()
    for path, data in contents(tmp_path / "user" / ".claude" / "projects").items():
        assert Path(path.replace(str(claude.parent.parent), str(folder / "claude"))).read_bytes() == data
    blobs = {path.name for path in (tmp_path / "home" / "blobs").rglob("*") if path.is_file()}
    assert blobs == {path.name for path in (folder / "native.blobs").rglob("*") if path.is_file()} != set()
    assert synced(home, folder, both_ways=False) == []


def test_a_backup_gets_new_lines_and_changes_nothing_here(tmp_path: Path) -> None:
    home, folder, path = home_of(tmp_path), tmp_path / "backup", write_native(tmp_path)
    synced(home, folder, both_ways=False)
    append(path, message_line("x1", "n3", "later"))
    assert [result.what for result in synced(home, folder, both_ways=False)] == ["grown"]
    assert copy_of(path, folder).read_bytes() == path.read_bytes()
    before = path.read_bytes()
    append(copy_of(path, folder), message_line("y1", "n3", "only in the backup"))
    assert synced(home, folder, both_ways=False) == []
    assert path.read_bytes() == before


def test_sync_brings_new_sessions_both_ways(tmp_path: Path) -> None:
    one, other, folder = home_of(tmp_path / "one"), home_of(tmp_path / "other"), tmp_path / "shared"
    first, second = write_native(tmp_path / "one"), write_claude(tmp_path / "other")
    os.utime(second, (1_000_000_000, 1_000_000_000))
    synced(one, folder)
    synced(other, folder)
    synced(one, folder)
    assert Path(str(first).replace("/one/", "/other/")).read_bytes() == first.read_bytes()
    arrived = Path(str(second).replace("/other/", "/one/"))
    assert arrived.read_bytes() == second.read_bytes()
    assert arrived.stat().st_mtime > 1_700_000_000, "Claude Code deletes files by an old date"
    assert (arrived.with_suffix("") / "subagents" / "agent-x.jsonl").exists()
    assert synced(one, folder) == synced(other, folder) == []


def test_a_session_continued_on_two_machines_gets_both_branches_and_the_newer_is_current(tmp_path: Path) -> None:
    home, folder, path = home_of(tmp_path), tmp_path / "shared", write_native(tmp_path)
    synced(home, folder)
    there = copy_of(path, folder)
    mine = message_line("x1", "n3", "mine").replace(b"2026-02-16T10:00:01", b"2026-02-18T10:00:01")
    append(path, mine)
    append(there, message_line("y1", "n3", "theirs"))
    before = path.read_bytes(), there.read_bytes()
    results = synced(home, folder)
    assert [result.what for result in results] == ["merged", "merged"]
    assert set(results[0].branches) == {"x1", "y1"}
    assert path.read_bytes().startswith(before[0])
    assert there.read_bytes().startswith(before[1])
    for _ in range(2):
        synced(home, folder)
    assert synced(home, folder) == []
    for file in (path, there):
        session = sessiontree.open(file)
        assert (set(session.leaves()), session.leaf) == ({"m3", "x1", "y1"}, "x1")
        assert session.problems == []
    assert sorted(path.read_bytes().split(b"\n")) == sorted(there.read_bytes().split(b"\n"))


def test_a_claude_session_continued_on_two_machines_gets_both_branches(tmp_path: Path) -> None:
    home, folder, path = home_of(tmp_path), tmp_path / "shared", write_claude(tmp_path)
    synced(home, folder)
    there = copy_of(path, folder, "claude")
    append(path, claude_message("x1", "u2", "mine"))
    append(there, claude_message("y1", "u2", "theirs"))
    synced(home, folder)
    for file in (path, there):
        assert {"x1", "y1"} <= set(sessiontree.open(file).ids)


def test_two_sessions_under_one_name_are_a_conflict_and_both_stay(tmp_path: Path) -> None:
    home, folder, path = home_of(tmp_path), tmp_path / "shared", write_native(tmp_path)
    synced(home, folder)
    there = copy_of(path, folder)
    there.write_bytes(header(id="another", sessiontree=1) + message_line("z1"))
    before = contents(tmp_path)
    results = synced(home, folder)
    assert {result.what for result in results} == {"conflict"}
    assert contents(tmp_path) == before


def test_a_different_line_under_the_same_id_is_reported_and_each_file_keeps_its_own(tmp_path: Path) -> None:
    home, folder, path = home_of(tmp_path), tmp_path / "shared", write_native(tmp_path)
    synced(home, folder)
    there = copy_of(path, folder)
    append(path, message_line("x1", "n3", "mine"))
    append(there, message_line("x1", "n3", "theirs, by chance under the same id"))
    before = contents(tmp_path)
    results = synced(home, folder)
    assert {(result.what, result.why[:7]) for result in results} == {("conflict", "1 line ")}
    assert contents(tmp_path) == before


def test_files_that_are_not_jsonl_and_differ_are_kept_on_both_sides(tmp_path: Path) -> None:
    home, folder, path = home_of(tmp_path), tmp_path / "shared", write_claude(tmp_path)
    synced(home, folder)
    here = path.with_suffix("") / "tool-results" / "out.txt"
    there = copy_of(path, folder, "claude").with_suffix("") / "tool-results" / "out.txt"
    old = here.read_bytes()
    here.write_bytes(b"changed here")
    synced(home, folder)
    assert here.read_bytes() == b"changed here"
    assert there.read_bytes() == old
    assert {file.read_bytes() for file in here.parent.iterdir()} == {b"changed here", old}
    assert {file.read_bytes() for file in there.parent.iterdir()} == {b"changed here", old}
    synced(home, folder)
    assert synced(home, folder) == []


def test_sync_does_not_bring_a_pruned_branch_back_and_restore_brings_it_back_once(tmp_path: Path) -> None:
    home, folder, path = home_of(tmp_path), tmp_path / "shared", write_native(tmp_path)
    before = path.read_bytes()
    synced(home, folder)
    session = sessiontree.open(path)
    prune(home.archive, session, plan_prune(session, "m2"))
    append(copy_of(path, folder), message_line("y1", "n3", "theirs"))
    synced(home, folder)
    assert set(sessiontree.open(path).leaves()) == {"y1"}
    restore(home.archive, home.archive.items()[-1])
    assert path.read_bytes() == before + message_line("y1", "n3", "theirs")
    assert sessiontree.open(path).problems == []


def test_a_pruned_branch_returns_if_it_was_continued_on_the_other_side(tmp_path: Path) -> None:
    home, folder, path = home_of(tmp_path), tmp_path / "shared", write_native(tmp_path)
    before = path.read_bytes()
    synced(home, folder)
    session = sessiontree.open(path)
    prune(home.archive, session, plan_prune(session, "m2"))
    append(copy_of(path, folder), message_line("y1", "m3", "theirs"))
    synced(home, folder)
    after = sessiontree.open(path)
    assert (after.path_ids("y1"), after.problems) == (["m0", "m1", "m2", "m3", "y1"], [])
    restore(home.archive, home.archive.items()[-1])
    assert path.read_bytes().startswith(before + message_line("y1", "m3", "theirs"))
    assert sessiontree.open(path).problems == []


def test_links_and_overlapping_folders_are_rejected(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    for folder in (path.parent, tmp_path / "home", tmp_path):
        with pytest.raises(UsageError, match="overlaps"):
            synced(home, folder)
    shared, outside = tmp_path / "shared", tmp_path / "outside"
    outside.mkdir()
    (shared / "native").mkdir(parents=True)
    (shared / "native" / path.parent.name).symlink_to(outside)
    results = synced(home, shared)
    assert [result.what for result in results] == ["failed"]
    assert contents(outside) == {}
    target = outside / "real.jsonl"
    target.write_bytes(b"not yours\n")
    (shared / "native" / path.parent.name).unlink()
    (shared / "native" / path.parent.name).mkdir()
    copy_of(path, shared).symlink_to(target)
    assert [result.what for result in synced(home, shared)] == ["failed"]
    assert target.read_bytes() == b"not yours\n"


def test_a_process_killed_while_syncing_leaves_every_line_and_the_next_run_completes_it(
    tmp_path: Path, stride: int
) -> None:
    mine, theirs = message_line("x1", "n3", "mine" * 100), message_line("y1", "n3", "theirs" * 100)

    def prepare(here: Path) -> None:
        path = write_native(here)
        synced(home_of(here), here / "shared")
        append(path, mine)
        append(copy_of(path, here / "shared"), theirs)
        write_claude(here)

    def act(home: Home) -> None:
        synced(home, Path(home.folder).parent / "shared")

    def check(here: Path) -> None:
        home = home_of(here)
        path = next((here / "home").glob("sessions/*/*.jsonl"))
        for _ in range(3):
            synced(home, here / "shared")
        assert synced(home, here / "shared") == []
        expected = b"".join([*native_lines(), mine, theirs]).split(b"\n")
        for file in (path, copy_of(path, here / "shared")):
            session = sessiontree.open(file)
            assert set(expected) <= set(file.read_bytes().split(b"\n"))
            assert (set(session.leaves()), session.problems) == ({"m3", "x1", "y1"}, [])

    assert kill_at_each_step(tmp_path, prepare, act, check, stride) > 20


def test_the_commands_report_what_they_did(tmp_path: Path, command: Command) -> None:
    path = write_native(tmp_path)
    folder = tmp_path / "shared"
    assert command("backup", str(folder), "--dry-run", "--json").json["counts"] == {"copied": 1}
    assert not folder.exists()
    assert "1 copied" in command("backup", str(folder)).err
    assert "already up to date" in command("sync", str(folder)).err
    append(path, message_line("x1", "n3", "mine"))
    append(copy_of(path, folder), message_line("y1", "n3", "theirs"))
    ran = command("sync", str(folder))
    assert "merged" in ran.out
    assert "two branches" in ran.out
    assert ran.code == 0


def test_a_full_disk_is_the_reason_for_each_file(tmp_path: Path) -> None:
    write_native(tmp_path)
    full = FailingOsCalls()
    full.fail_always("write", errno.ENOSPC)
    results = synced(home_of(tmp_path, full), tmp_path / "backup", both_ways=False)
    assert [(result.what, result.why) for result in results] == [("failed", os.strerror(errno.ENOSPC))]
