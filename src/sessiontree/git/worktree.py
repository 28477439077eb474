"""Git worktrees: query one, list those of a repository, and recreate one that is gone, with its uncommitted files."""

from __future__ import annotations

import os
import shlex

from msgspec import Struct

from sessiontree.core.ids import timestamp
from sessiontree.errors import NotFoundError, StoreError, UsageError
from sessiontree.git import command
from sessiontree.git.restore_files import RestoredFiles, find_changes, find_conflicts, restore_files
from sessiontree.git.snapshot import Snapshot
from sessiontree.stores.contract import BlobStore
from sessiontree.stores.os_calls import OS_CALLS, OsCalls


class WorktreeState(Struct, frozen=True, omit_defaults=True):
    """What was checked out in a worktree when it was saved."""

    path: str
    branch: str | None = None
    head: str | None = None
    repository: str | None = None
    """The main worktree of the repository, or the folder of a bare one: `git worktree add` runs there."""
    saved: str = ""
    """Time of saving."""
    files: str | None = None
    """The blob with the snapshot of its uncommitted files."""


class SavedWorktree(Struct, frozen=True):
    """A saved worktree with the snapshot of its uncommitted files, if there is one."""

    worktree: WorktreeState
    files: Snapshot | None = None


class WorktreePlan(Struct, frozen=True):
    """How to recreate a worktree: the git command, or what prevents it."""

    worktree: WorktreeState
    command: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    exists: bool = False
    files: Snapshot | None = None
    conflicts: tuple[str, ...] = ()
    """Files of an existing worktree with changes that are neither saved nor committed."""
    changes: tuple[str, ...] = ()
    """Files of an existing worktree that would be written or removed, including those that are committed."""
    notes: tuple[str, ...] = ()


class ListedWorktree(Struct, frozen=True):
    """One worktree of `git worktree list`."""

    path: str
    branch: str | None = None
    """The full name of its ref."""
    lock_reason: str | None = None


# Queries


def find_root(folder: str) -> str:
    """The root of the worktree that contains a folder; empty if there is none."""
    return command.query(folder, "rev-parse", "--show-toplevel")


def find_head(folder: str) -> str | None:
    """The commit that is checked out; None before the first commit."""
    return command.query(folder, "rev-parse", "--verify", "--quiet", "HEAD") or None


def find_common_folder(folder: str) -> str:
    """The git folder that all worktrees of a repository share; empty outside of a repository."""
    found = command.query(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
    return os.path.realpath(found) if found else ""


def read_worktree(folder: str) -> WorktreeState:
    """The current state of the worktree that contains a folder."""
    if not os.path.isdir(folder):
        raise NotFoundError(f"{folder}: no such folder")
    root = find_root(folder)
    if not root:
        raise UsageError(f"{folder}: not in a git repository")
    common = find_common_folder(folder)
    branch = command.query(folder, "symbolic-ref", "--quiet", "--short", "HEAD") or None
    repository = os.path.dirname(common) if os.path.basename(common) == ".git" else common
    return WorktreeState(os.path.realpath(root), branch, find_head(folder), repository or None, timestamp())


def list_worktrees(folder: str) -> list[ListedWorktree]:
    """All worktrees of the repository that contains a folder, as far as git knows them."""
    found: list[ListedWorktree] = []
    for block in command.query(folder, *_bare(folder), "worktree", "list", "--porcelain").split("\n\n"):
        lines = (line.partition(" ") for line in block.splitlines())
        fields = {name: value for name, _, value in lines}
        if "worktree" in fields:
            found.append(ListedWorktree(fields["worktree"], fields.get("branch"), fields.get("locked")))
    return found


# Recreating


def plan_restore(saved: SavedWorktree, repository: str | None = None, *, detach: bool = False) -> WorktreePlan:
    """Plan how to recreate a worktree. Changes nothing."""
    worktree = saved.worktree
    files = saved.files if saved.files is not None and saved.files.files else None
    if os.path.isdir(worktree.path) and find_root(worktree.path) == worktree.path:
        return _plan_existing(worktree, files)
    missing: list[str] = []
    if os.path.lexists(worktree.path):
        missing.append(f"{worktree.path} exists and is not this worktree")
    main = repository or worktree.repository
    if not main or not os.path.isdir(main) or not command.query(main, *_bare(main), "rev-parse", "--git-dir"):
        where = f"the repository {main or '(not recorded)'} does not exist; --repository DIR names another folder"
        return WorktreePlan(worktree, missing=(*missing, where), files=files)
    tip = _find_branch(main, worktree.branch)
    has_head = bool(worktree.head) and _has_commit(main, str(worktree.head))
    if not tip and not has_head:
        missing.append(
            f"neither branch {worktree.branch} nor commit {worktree.head} is in {main}; try `git fetch` there"
        )
    elif files is not None and not has_head:
        missing.append(
            f"the saved files need commit {worktree.head}, which is not in {main}; try `git fetch` there, "
            f"or --no-files to use branch {worktree.branch} as it is now"
        )
    checked_out = _find_checkout(main, worktree.branch) if tip and not detach else None
    if checked_out and checked_out != worktree.path:
        missing.append(f"branch {worktree.branch} is checked out in {checked_out}; use --detach")
    if missing:
        return WorktreePlan(worktree, missing=tuple(missing), files=files)
    notes: tuple[str, ...] = ()
    if files is not None and tip and tip != worktree.head:
        # The snapshot is a difference to the saved commit; on a newer one it could silently undo what was committed.
        detach = True
        notes = (
            f"branch {worktree.branch} has moved to {tip[:12]}; "
            f"checking out {str(worktree.head)[:12]}, where the files were saved, without the branch",
        )
    # --force: git refuses a path that it still lists as a worktree, although its folder is gone.
    is_listed = any(listed.path == worktree.path for listed in list_worktrees(main))
    force = ("--force",) if is_listed or checked_out == worktree.path else ()
    commit = str(worktree.head) if has_head else tip
    if not detach and tip:
        target: tuple[str, ...] = (worktree.path, str(worktree.branch))
    elif not detach and worktree.branch and _is_branch_name(main, worktree.branch):
        target = ("-b", worktree.branch, worktree.path, commit)
    else:
        target = ("--detach", worktree.path, commit)
    arguments = ("git", "-C", main, *_bare(main), "worktree", "add", *force, *target)
    return WorktreePlan(worktree, arguments, files=files, notes=notes)


def _plan_existing(worktree: WorktreeState, files: Snapshot | None) -> WorktreePlan:
    """Plan for a worktree whose folder exists: only its files may have to be restored."""
    # Git keeps a worktree locked with this reason until its checkout is complete, so a killed git leaves it there.
    if any(
        listed.path == worktree.path and listed.lock_reason == "initializing"
        for listed in list_worktrees(worktree.path)
    ):
        path = shlex.quote(worktree.path)
        remove = f"git -C {path} worktree remove --force --force {path}"
        missing = f"git was stopped while creating {worktree.path}; run `{remove}`, then try again"
        return WorktreePlan(worktree, missing=(missing,), exists=True, files=files)
    if files is None:
        return WorktreePlan(worktree, exists=True)
    head = find_head(worktree.path) or ""
    if files.head is not None and head != files.head:
        missing = (
            f"{worktree.path} is at {head[:12]}, and its files were saved at {files.head[:12]}; "
            f"run `git switch --detach {files.head[:12]}` there, or use --no-files"
        )
        return WorktreePlan(worktree, missing=(missing,), exists=True, files=files)
    conflicts, changes = find_conflicts(worktree.path, files), find_changes(worktree.path, files)
    return WorktreePlan(worktree, exists=True, files=files, conflicts=tuple(conflicts), changes=tuple(changes))


def restore_worktree(
    plan: WorktreePlan, blobs: BlobStore, *, overwrite: bool = False, os_calls: OsCalls = OS_CALLS
) -> RestoredFiles:
    """Recreate a worktree and restore its files."""
    if plan.missing:
        raise NotFoundError(f"{plan.worktree.path}: cannot be recreated: {'; '.join(plan.missing)}")
    if not plan.exists:
        _, _, main, *arguments = plan.command
        done = command.run(main, *arguments)
        if done.returncode:
            raise StoreError(f"{plan.worktree.path}: git worktree add failed: {os.fsdecode(done.stderr).strip()}")
    if plan.files is None:
        return RestoredFiles()
    return restore_files(plan.worktree.path, plan.files, blobs, overwrite=overwrite, os_calls=os_calls)


def _bare(folder: str) -> tuple[str, ...]:
    """The option that names a bare repository: git uses one only if it is named."""
    is_bare = not os.path.lexists(os.path.join(folder, ".git")) and os.path.isfile(os.path.join(folder, "HEAD"))
    return (f"--git-dir={folder}",) if is_bare and os.path.isdir(os.path.join(folder, "objects")) else ()


def _find_branch(main: str, branch: str | None) -> str:
    """The commit of a branch; empty if it does not exist."""
    found = ("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
    return command.query(main, *_bare(main), *found) if branch else ""


def _has_commit(main: str, commit: str) -> bool:
    return command.query(main, *_bare(main), "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") != ""


def _is_branch_name(main: str, branch: str) -> bool:
    # The name comes from a session file: one that begins with a dash would be an option.
    return not branch.startswith("-") and command.query(main, "check-ref-format", "--branch", branch) != ""


def _find_checkout(main: str, branch: str | None) -> str | None:
    """The worktree where a branch is checked out."""
    ref = f"refs/heads/{branch}"
    return next((listed.path for listed in list_worktrees(main) if listed.branch == ref), None)
