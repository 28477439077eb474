"""Uncommitted work is saved with a session and restored exactly, never outside the worktree."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

import sessiontree
from sessiontree.archive.archive_home import Home
from sessiontree.archive.saved_worktree import find_worktree, save_worktree
from sessiontree.core.entries import FileSnapshot
from sessiontree.errors import ExistsError, NotFoundError, WriteError
from sessiontree.git.restore_files import is_safe_path, restore_files
from sessiontree.git.snapshot import FileState, Snapshot, SnapshotLimits
from sessiontree.git.worktree import plan_restore, restore_worktree
from sessiontree.paths import blobs_folder
from sessiontree.secrets.names import has_secret_name
from sessiontree.stores.blobs import FileBlobs
from tests.archive.conftest import Command
from tests.archive.machine import (
    CLAUDE_ID,
    NATIVE_ID,
    claude_message,
    contents,
    home_of,
    kill_at_each_step,
    write_claude,
)
from tests.archive.test_worktrees import git, put_session, tree
from tests.builders import json_line

__all__ = ["tree"]


def blobs_in(home: Home) -> FileBlobs:
    return FileBlobs(blobs_folder(home.folder))


def work(tree: Path) -> None:
    """Every kind of uncommitted work."""
    (tree / "a.txt").write_text("changed, not staged")
    (tree / "b.txt").unlink()
    (tree / "staged.txt").write_text("as staged")
    (tree / "exe").write_text("#!/bin/sh\n")
    (tree / "exe").chmod(0o755)
    (tree / "gone").write_text("in the index only")
    git(tree, "add", "staged.txt", "exe", "gone")
    (tree / "staged.txt").write_text("changed since")
    (tree / "gone").unlink()
    (tree / "new" / "deep").mkdir(parents=True)
    (tree / "new" / "deep" / "日本 \n語.bin").write_bytes(bytes(range(256)))
    (tree / "private").write_text("mine")
    (tree / "private").chmod(0o600)
    (tree / "link").symlink_to("new/deep")
    (tree / "broken").symlink_to("/nowhere/at/all")
    (tree / "empty").write_bytes(b"")


def state(tree: Path) -> object:
    """Everything in a worktree, with the output of git status."""
    files = {}
    for path in sorted(tree.rglob("*")):
        if path.name == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        files[str(path.relative_to(tree))] = (oct(path.lstat().st_mode), content)
    outputs = [git(tree, *words) for words in (["status", "--porcelain=v2"], ["diff"], ["diff", "--cached"])]
    return files, outputs, git(tree, "rev-parse", "HEAD")


def remove(tmp_path: Path, tree: Path, *, with_objects: bool = False) -> None:
    git(tmp_path / "repository", "worktree", "remove", "--force", str(tree))
    if with_objects:  # git has dropped the staged content, so only our blobs have it
        git(tmp_path / "repository", "gc", "--quiet", "--prune=now")


@pytest.mark.parametrize("with_objects", [False, True])
def test_uncommitted_work_is_restored_exactly(tmp_path: Path, tree: Path, command: Command, with_objects: bool) -> None:
    put_session(tmp_path, tree)
    work(tree)
    before = state(tree)
    saved = command("worktree", "save", NATIVE_ID, "--json").json
    assert len(saved["files"]) == 10
    assert saved["leftOut"] == {}
    assert state(tree) == before, "saving changes nothing"
    remove(tmp_path, tree, with_objects=with_objects)
    restored = command("worktree", "restore", NATIVE_ID)
    assert restored.code == 0
    assert restored.out == f"cd {tree} && sessiontree resume {NATIVE_ID} --in AGENT\n"
    assert state(tree) == before
    again = command("worktree", "restore", NATIVE_ID, "--json").json
    assert (again["written"], again["removed"], again["missing"]) == ([], [], [])
    assert state(tree) == before


def test_a_native_session_stores_the_list_itself(tmp_path: Path, tree: Path) -> None:
    home, path = home_of(tmp_path), put_session(tmp_path, tree)
    messages = sessiontree.open(path).context().messages
    (tree / "new.txt").write_text("n")
    for _ in range(2):
        save_worktree(sessiontree.open(path), home.tags, blobs_in(home))
    session = sessiontree.open(path)
    (entry,) = (one for one in session if isinstance(one, FileSnapshot))
    assert set(entry.files) == {"new.txt"}
    assert (session.problems, session.context().messages) == ([], messages)
    Path(home.tags.path).unlink()  # as on another machine
    found = find_worktree(sessiontree.open(path), home.tags, blobs_in(home))
    assert found is not None
    assert found.files is not None
    assert set(found.files.files) == {"new.txt"}


def test_the_list_of_files_is_found_after_it_was_pruned_from_the_session(tmp_path: Path, tree: Path) -> None:
    home, path = home_of(tmp_path), put_session(tmp_path, tree)
    (tree / "new.txt").write_text("n")
    save_worktree(sessiontree.open(path), home.tags, blobs_in(home))
    path.write_bytes(b"".join(line for line in path.read_bytes().splitlines(True) if b"file_snapshot" not in line))
    found = find_worktree(sessiontree.open(path), home.tags, blobs_in(home))
    assert found is not None
    assert found.files is not None
    assert set(found.files.files) == {"new.txt"}


def test_a_folder_that_cannot_be_written_is_reported_and_nothing_is_lost(tmp_path: Path, tree: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    files = {"x" * 300: FileState("100644", blobs.put(b"n"), 1)}
    with pytest.raises(WriteError, match="snapshot is unchanged"):
        restore_files(str(tree), Snapshot(str(tree), None, files), blobs)


def test_files_are_not_restored_over_work_that_was_committed_since(
    tmp_path: Path, tree: Path, command: Command
) -> None:
    put_session(tmp_path, tree)
    (tree / "new.txt").write_text("n")
    command("worktree", "save", NATIVE_ID)
    git(tree, "add", "new.txt")
    git(tree, "commit", "--quiet", "-m", "third")
    command("worktree", "save", NATIVE_ID)
    remove(tmp_path, tree)
    command("worktree", "restore", NATIVE_ID)
    assert git(tree, "status", "--porcelain") == ""
    assert git(tree, "symbolic-ref", "--short", "HEAD") == "feature"


def test_files_of_another_agents_session_are_stored_in_the_tags(tmp_path: Path, tree: Path, command: Command) -> None:
    write_claude(tmp_path)
    before = contents(tmp_path / "user")
    work(tree)
    state_before = state(tree)
    command("worktree", "save", CLAUDE_ID, "--path", str(tree))
    assert contents(tmp_path / "user") == before
    remove(tmp_path, tree)
    out = command("worktree", "restore", CLAUDE_ID).out
    assert out == f"cd {tree} && sessiontree resume {CLAUDE_ID} --cwd {tree}\n"
    assert state(tree) == state_before
    assert contents(tmp_path / "user") == before


def test_files_that_are_left_out_are_listed_when_saving_and_when_restoring(
    tmp_path: Path, tree: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_session(tmp_path, tree)
    (tree / ".gitignore").write_text("ignored\n")
    for name in ("ignored", ".env", "server.key", ".env.example", "kept.txt"):
        (tree / name).write_text(name)
    (tree / "big.bin").write_bytes(b"x" * 10_000_001)
    shutil.copytree(tmp_path / "repository", tree / "inner")
    (tree / os.fsdecode(b"not-utf8-\xff")).write_text("n")
    saved = command("worktree", "save", NATIVE_ID)
    for words in (
        ".env: named like a secret",
        "server.key: ",
        "big.bin: 10,000,001 bytes",
        "inner/: a nested repository",
        "UTF-8",
    ):
        assert words in saved.err
    assert "ignored" not in saved.err
    assert command("worktree", "save", NATIVE_ID, "--json").json["files"] == [".env.example", ".gitignore", "kept.txt"]
    remove(tmp_path, tree)
    assert "not saved: big.bin" in command("worktree", "restore", NATIVE_ID).err
    assert sorted(os.listdir(tree)) == [".env.example", ".git", ".gitignore", "a.txt", "b.txt", "kept.txt"]
    (tree / ".env").write_text("KEY=1")
    assert ".env" in command("worktree", "save", NATIVE_ID, "--secrets", "--json").json["files"]


def test_the_total_size_and_the_number_of_files_are_limited(tmp_path: Path, tree: Path) -> None:
    home, path = home_of(tmp_path), put_session(tmp_path, tree)
    for at in range(10):
        (tree / f"f{at}").write_bytes(b"x" * 100)
    by_size = save_worktree(sessiontree.open(path), home.tags, blobs_in(home), limits=SnapshotLimits(total_bytes=450))
    by_count = save_worktree(sessiontree.open(path), home.tags, blobs_in(home), limits=SnapshotLimits(files=3))
    assert by_size.files is not None
    assert by_count.files is not None
    assert (len(by_size.files.files), len(by_size.files.left_out)) == (4, 6)
    assert (len(by_count.files.files), len(by_count.files.left_out)) == (3, 7)


@pytest.mark.parametrize(("name", "secret"), [(".env", True), ("a/.ENV.local", True), ("id_rsa", True)])
def test_names_of_secret_files_are_recognized(name: str, secret: bool) -> None:
    assert has_secret_name(name) is secret
    assert not any(map(has_secret_name, (".env.example", "id_rsa.pub", "environment.py", "keys.md", "monkey.py")))


def test_a_file_that_differs_is_overwritten_only_on_request_and_its_content_is_kept(
    tmp_path: Path, tree: Path, command: Command
) -> None:
    put_session(tmp_path, tree)
    (tree / "a.txt").write_text("saved")
    (tree / "new.txt").write_text("saved")
    command("worktree", "save", NATIVE_ID)
    (tree / "a.txt").write_text("later work")
    (tree / "other.txt").write_text("not of the snapshot")
    planned = command("worktree", "restore", NATIVE_ID, "--dry-run").err
    assert "exists and differs (--yes overwrites it): a.txt" in planned
    with pytest.raises(ExistsError, match=r"a\.txt"):
        command("worktree", "restore", NATIVE_ID)
    assert (tree / "a.txt").read_text() == "later work"
    done = command("worktree", "restore", NATIVE_ID, "--yes", "--json").json
    assert (tree / "a.txt").read_text() == "saved"
    assert (tree / "other.txt").read_text() == "not of the snapshot"
    ((kept),) = done["overwritten"]
    assert kept["path"] == "a.txt"
    assert FileBlobs(tmp_path / "home" / "blobs").get(kept["blob"]) == b"later work"


def test_a_different_staged_version_is_a_conflict(tmp_path: Path, tree: Path, command: Command) -> None:
    put_session(tmp_path, tree)
    (tree / "a.txt").write_text("saved")
    git(tree, "add", "a.txt")
    command("worktree", "save", NATIVE_ID)
    (tree / "a.txt").write_text("staged later")
    git(tree, "add", "a.txt")
    (tree / "a.txt").write_text("saved")
    with pytest.raises(ExistsError, match=r"a\.txt"):
        command("worktree", "restore", NATIVE_ID)


def test_a_branch_that_moved_on_or_is_checked_out_leaves_the_worktree_at_the_commit(
    tmp_path: Path, tree: Path, command: Command
) -> None:
    put_session(tmp_path, tree)
    (tree / "new.txt").write_text("n")
    head = command("worktree", "save", NATIVE_ID, "--json").json["head"]
    git(tree, "commit", "--quiet", "--allow-empty", "-m", "later")
    with pytest.raises(NotFoundError, match="switch --detach"):
        command("worktree", "restore", NATIVE_ID)
    remove(tmp_path, tree)
    assert "has moved to" in command("worktree", "restore", NATIVE_ID).err
    assert (git(tree, "rev-parse", "HEAD"), (tree / "new.txt").read_text()) == (head, "n")
    remove(tmp_path, tree)
    git(tmp_path / "repository", "checkout", "--quiet", "feature")
    with pytest.raises(NotFoundError, match="--detach"):
        command("worktree", "restore", NATIVE_ID)
    command("worktree", "restore", NATIVE_ID, "--detach")
    assert (git(tree, "rev-parse", "HEAD"), (tree / "new.txt").read_text()) == (head, "n")


def test_a_missing_commit_is_reported_with_a_next_step(tmp_path: Path, tree: Path, command: Command) -> None:
    put_session(tmp_path, tree)
    (tree / "new.txt").write_text("n")
    head = command("worktree", "save", NATIVE_ID, "--json").json["head"]
    git(tree, "commit", "--quiet", "--amend", "-m", "otherwise")
    remove(tmp_path, tree)
    git(tmp_path / "repository", "reflog", "expire", "--expire=now", "--all")
    git(tmp_path / "repository", "gc", "--quiet", "--prune=now")
    with pytest.raises(NotFoundError, match=f"{head}.*git fetch.*--no-files"):
        command("worktree", "restore", NATIVE_ID)
    assert not tree.exists()
    command("worktree", "restore", NATIVE_ID, "--no-files")
    assert not (tree / "new.txt").exists()
    assert (tree / "b.txt").exists()


def test_missing_content_is_reported_and_the_rest_is_restored(tmp_path: Path, tree: Path, command: Command) -> None:
    put_session(tmp_path, tree)
    (tree / "one.txt").write_text("1")
    (tree / "two.txt").write_text("2")
    command("worktree", "save", NATIVE_ID)
    remove(tmp_path, tree)
    (blob,) = (
        path for path in (tmp_path / "home" / "blobs").rglob("*") if path.is_file() and path.read_bytes() == b"1"
    )
    blob.unlink()
    restored = command("worktree", "restore", NATIVE_ID)
    assert "one.txt: its content" in restored.err
    assert restored.code == 1
    assert (tree / "two.txt").read_text() == "2"


BAD = ["../out", "/etc/x", "a/../../out", ".git/hooks/x", "sub/.GIT/config", "", "a//b", "./a", "a\0b"]


@pytest.mark.parametrize("path", BAD)
def test_a_path_that_leaves_the_worktree_is_never_written(tmp_path: Path, tree: Path, path: str) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    bad = FileState("100644", blobs.put(b"bad"), 3)
    around = contents(tmp_path)
    restored = restore_files(str(tree), Snapshot(str(tree), None, {path: bad, "gone/../../a.txt": FileState()}), blobs)
    assert not is_safe_path(path)
    assert (restored.written, restored.removed, len(restored.missing)) == ((), (), 2)
    assert contents(tmp_path) == around


def test_nothing_is_written_through_a_link(tmp_path: Path, tree: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("untouched")
    (tree / "d").symlink_to(outside)
    blobs = FileBlobs(tmp_path / "blobs")
    files = {
        "d/x": FileState("100644", blobs.put(b"bad"), 3),
        "d/y": FileState("100644", blobs.put(b"bad"), 3),
        "e": FileState("120777", blobs.put(os.fsencode(outside)), 3),
        "e/x": FileState("100644", blobs.put(b"bad"), 3),
    }
    restored = restore_files(str(tree), Snapshot(str(tree), None, files), blobs, overwrite=True)
    assert restored.written == ("e",)
    assert all("a symbolic link, which is not followed" in reason for reason in restored.missing)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"x": "untouched"}


@pytest.mark.parametrize(
    "file",
    [
        5,
        {"mode": "rw"},
        {"mode": "104755", "sha256": "0" * 64},
        {"mode": "060644"},
        {"staged": {"mode": "100644", "object": "HEAD\nHEAD"}},
        {"staged": {"mode": "160000", "object": "0" * 40}},
    ],
)
def test_an_invalid_snapshot_is_ignored(tmp_path: Path, tree: Path, file: object) -> None:
    home, path = home_of(tmp_path), put_session(tmp_path, tree)
    save_worktree(sessiontree.open(path), home.tags, blobs_in(home), files=False)
    session = sessiontree.open(path)
    head = git(tree, "rev-parse", "HEAD")
    session.append({"type": "file_snapshot", "path": str(tree), "head": head, "files": {"a": file}})
    session.close()
    found = find_worktree(sessiontree.open(path), home.tags, blobs_in(home))
    assert found is not None
    assert found.files is None


def test_a_process_killed_while_saving_or_restoring_loses_nothing(tmp_path: Path, tree: Path, stride: int) -> None:
    work(tree)
    state_before = state(tree)
    backup = tmp_path / "backup"
    shutil.copytree(tree, backup, symlinks=True)

    def act(home: Home) -> None:
        path = next(Path(home.folder).glob("sessions/*/*.jsonl"))
        os_calls = home.archive.os_calls  # exceptions that end the process
        blobs = FileBlobs(blobs_folder(home.folder), os_calls=os_calls)
        session = sessiontree.open(path)
        save_worktree(session, home.tags, blobs_in(home))
        found = find_worktree(session, home.tags, blobs)
        assert found is not None
        for changed in ("a.txt", "private"):
            (tree / changed).unlink()
        restore_worktree(plan_restore(found), blobs, overwrite=True, os_calls=os_calls)

    def check(here: Path) -> None:
        home = home_of(here)
        path = next(Path(home.folder).glob("sessions/*/*.jsonl"))
        assert sessiontree.open(path).problems == []
        found = find_worktree(sessiontree.open(path), home.tags, blobs_in(home))
        assert found is not None
        restore_worktree(plan_restore(found), blobs_in(home), overwrite=True)
        for left in tree.rglob(".*.tmp"):
            left.unlink()
        assert state(tree) == state_before

    assert kill_at_each_step(tmp_path, lambda here: put_session(here, tree), act, check, stride) > 5
    shutil.rmtree(backup)


def test_a_process_killed_while_saving_to_the_tags_leaves_the_older_files_or_the_newer(
    tmp_path: Path,
    tree: Path,
    stride: int,
) -> None:
    (tree / "a.txt").write_text("older")

    def prepare(here: Path) -> None:
        write_claude(here)
        (tree / "a.txt").write_text("older")
        save_in(home_of(here))
        (tree / "a.txt").write_text("newer")

    def save_in(home: Home) -> None:
        path = next(Path(home.folder).parent.glob("user/.claude/projects/*/*.jsonl"))
        blobs = FileBlobs(blobs_folder(home.folder), os_calls=home.archive.os_calls)
        save_worktree(sessiontree.open(path), home.tags, blobs, str(tree))

    def check(here: Path) -> None:
        home = home_of(here)
        session = sessiontree.open(next(here.glob("user/.claude/projects/*/*.jsonl")))
        found = find_worktree(session, home.tags, blobs_in(home))
        assert found is not None
        assert found.files is not None
        assert blobs_in(home).get(found.files.files["a.txt"].sha256) in (b"older", b"newer")
        assert (tree / "a.txt").read_text() == "newer"

    assert kill_at_each_step(tmp_path, prepare, save_in, check, stride) > 10


def worktree_state(**state: object) -> bytes:
    return json_line({"type": "worktree-state", "worktreeSession": state or None, "sessionId": CLAUDE_ID})


def test_worktrees_recorded_by_claude_code_are_listed_and_restored(
    tmp_path: Path, tree: Path, command: Command
) -> None:
    head = git(tree, "rev-parse", "HEAD")
    noted = worktree_state(
        originalCwd=str(tmp_path / "repository"),
        worktreePath=str(tree),
        worktreeName="side",
        worktreeBranch="feature",
        originalHeadCommit=head,
    )
    kept = {"b.txt": {"backupFileName": "0123abcd@v2", "version": 2}, "n.txt": {"backupFileName": None}}
    evil = {"../x": {"backupFileName": "0123abcd@v2"}, "c": {"backupFileName": "../../../../etc/passwd"}}
    snapshot = {"messageId": "u1", "trackedFileBackups": {**kept, **evil}}
    lines = [
        json_line({"type": "file-history-snapshot", "messageId": "u1", "snapshot": snapshot}),
        claude_message("u1", None, "first"),
        noted,
        claude_message("u2", "u1", "answer", "assistant"),
    ]
    write_claude(tmp_path, lines)
    copies = tmp_path / "user" / ".claude" / "file-history" / CLAUDE_ID
    copies.mkdir(parents=True)
    (copies / "0123abcd@v2").write_text("an earlier b")
    before = contents(tmp_path / "user")
    assert "recorded by Claude Code" in command("worktree", "list").out
    (row,) = command("worktree", "list", "--json").json["worktrees"]
    assert (row["path"], row["branch"], row["isThere"]) == (str(tree), "feature", True)
    remove(tmp_path, tree)
    restored = command("worktree", "restore", CLAUDE_ID)
    assert "has copies of 2 files" in restored.err
    assert (tree / "b.txt").read_text() == "b"
    command("worktree", "restore", CLAUDE_ID, "--from-history", "--yes")
    assert (tree / "b.txt").read_text() == "an earlier b"
    assert not (tmp_path / "x").exists()
    assert contents(tmp_path / "user") == before
    write_claude(tmp_path, [*lines, worktree_state()])  # it left the worktree
    assert command("worktree", "list", "--json").json["worktrees"] == []


def test_the_list_of_files_survives_json(tmp_path: Path) -> None:
    one = FileState("100644", "0" * 64, 3)
    snapshot = Snapshot("/w", "h", {"a": one, "b": FileState()}, {"c": "too large"})
    assert msgspec.convert(json.loads(msgspec.json.encode(snapshot)), Snapshot) == snapshot
