"""The worktree of a session is saved, and recreated by the real git, or the missing parts are reported."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import sessiontree
from sessiontree.archive.saved_worktree import save_worktree
from sessiontree.archive.tags import WorktreeState
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.git.worktree import SavedWorktree, plan_restore
from sessiontree.paths import blobs_folder
from sessiontree.stores.blobs import FileBlobs
from tests.archive.conftest import Command
from tests.archive.machine import CLAUDE_ID, NATIVE_ID, contents, home_of, native_lines, write_claude, write_native
from tests.builders import header


def git(folder: Path, *arguments: str) -> str:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    around = {**os.environ, **who, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, env=around, check=True)
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A worktree `side` of a repository, on its own branch with its own commit."""
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet", "--initial-branch", "main")
    (repository / "a.txt").write_text("a")
    git(repository, "add", "a.txt")
    git(repository, "commit", "--quiet", "-m", "first")
    side = tmp_path / "side"
    git(repository, "worktree", "add", "--quiet", "-b", "feature", str(side))
    (side / "b.txt").write_text("b")
    git(side, "add", "b.txt")
    git(side, "commit", "--quiet", "-m", "second")
    return side


def put_session(tmp_path: Path, cwd: Path) -> Path:
    return write_native(tmp_path, [header(cwd=str(cwd), sessiontree=1), *native_lines()[1:]])


def test_a_deleted_worktree_is_recreated_with_its_branch(tmp_path: Path, tree: Path, command: Command) -> None:
    path = put_session(tmp_path, tree)
    saved = command("worktree", "save", NATIVE_ID, "--json").json
    assert (saved["path"], saved["branch"], saved["repository"]) == (str(tree), "feature", str(tmp_path / "repository"))
    assert saved["head"] == git(tree, "rev-parse", "HEAD")
    assert "already exists" in command("worktree", "restore", NATIVE_ID).err
    shutil.rmtree(tree)
    assert "(gone)" in command("worktree", "list").out
    command("worktree", "restore", NATIVE_ID, "--dry-run")
    assert not tree.exists()
    assert command("worktree", "restore", NATIVE_ID).out.startswith(f"cd {tree} && sessiontree resume")
    assert (tree / "b.txt").read_text() == "b"
    assert git(tree, "symbolic-ref", "--short", "HEAD") == "feature"
    session = sessiontree.open(path)
    assert session.git_branch == "feature"
    assert session.problems == []


def test_saving_twice_adds_one_entry_and_does_not_change_the_conversation(tmp_path: Path, tree: Path) -> None:
    home, path = home_of(tmp_path), put_session(tmp_path, tree)
    messages = sessiontree.open(path).context().messages
    for _ in range(2):
        save_worktree(sessiontree.open(path), home.tags, FileBlobs(blobs_folder(home.folder)))
    session = sessiontree.open(path)
    assert session.count("worktree") == 1
    assert session.context().messages == messages


def test_a_session_of_another_agent_is_not_written_to(tmp_path: Path, tree: Path, command: Command) -> None:
    write_claude(tmp_path)
    before = contents(tmp_path / "user")
    command("worktree", "save", CLAUDE_ID, "--path", str(tree))
    assert contents(tmp_path / "user") == before
    shutil.rmtree(tree)
    command("worktree", "restore", CLAUDE_ID)
    assert (tree / "b.txt").exists()


def test_a_deleted_branch_is_recreated_at_its_commit(tmp_path: Path, tree: Path, command: Command) -> None:
    put_session(tmp_path, tree)
    head = command("worktree", "save", NATIVE_ID, "--json").json["head"]
    git(tmp_path / "repository", "worktree", "remove", str(tree))
    git(tmp_path / "repository", "branch", "-D", "feature")
    command("worktree", "restore", NATIVE_ID)
    assert git(tree, "rev-parse", "HEAD") == head
    assert git(tree, "symbolic-ref", "--short", "HEAD") == "feature"


def test_missing_parts_are_reported_and_nothing_is_created(tmp_path: Path, tree: Path, command: Command) -> None:
    put_session(tmp_path, tree)
    command("worktree", "save", NATIVE_ID)
    git(tmp_path / "repository", "worktree", "remove", str(tree))
    elsewhere = tmp_path / "elsewhere"
    git(tmp_path / "repository", "worktree", "add", "--quiet", str(elsewhere), "feature")
    with pytest.raises(NotFoundError, match=f"checked out in {elsewhere}"):
        command("worktree", "restore", NATIVE_ID)
    git(tmp_path / "repository", "worktree", "remove", str(elsewhere))
    tree.mkdir()
    (tree / "mine").write_text("do not touch")
    with pytest.raises(NotFoundError, match="exists and is not this worktree"):
        command("worktree", "restore", NATIVE_ID)
    assert (tree / "mine").read_text() == "do not touch"
    shutil.rmtree(tree)
    (tmp_path / "repository").rename(tmp_path / "moved")
    assert "does not exist" in command("worktree", "restore", NATIVE_ID, "--dry-run").err
    command("worktree", "restore", NATIVE_ID, "--repository", str(tmp_path / "moved"))
    assert (tree / "b.txt").exists()


def test_hooks_of_the_repository_do_not_run(tmp_path: Path, tree: Path, command: Command) -> None:
    put_session(tmp_path, tree)
    command("worktree", "save", NATIVE_ID)
    git(tmp_path / "repository", "worktree", "remove", str(tree))
    hook = tmp_path / "repository" / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    command("worktree", "restore", NATIVE_ID)
    assert not (tmp_path / "ran").exists()


def test_a_name_that_looks_like_an_option_is_not_used_as_one(tmp_path: Path, tree: Path) -> None:
    head = git(tree, "rev-parse", "HEAD")
    saved = WorktreeState(str(tmp_path / "new"), "--upload-pack=x", head, str(tmp_path / "repository"))
    assert plan_restore(SavedWorktree(saved)).command[-3:] == ("--detach", saved.path, head)
    bad = WorktreeState(str(tmp_path / "new"), None, "--all", str(tmp_path / "repository"))
    assert plan_restore(SavedWorktree(bad)).missing


def test_a_missing_worktree_or_repository_is_reported(tmp_path: Path, command: Command) -> None:
    write_native(tmp_path)
    (tmp_path / "plain").mkdir()
    with pytest.raises(NotFoundError, match="no saved worktree"):
        command("worktree", "restore", NATIVE_ID)
    with pytest.raises(UsageError, match="not in a git repository"):
        command("worktree", "save", NATIVE_ID, "--path", str(tmp_path / "plain"))
    with pytest.raises(UsageError, match="SESSION is missing"):
        command("worktree", "save")
    assert "no saved worktrees" in command("worktree", "list").err
