"""The git worktree of a session: remembered with it, and made again when it is gone.

Native sessions say it themselves, in a `worktree` entry; for all others it is in the marks. Git is asked, never guessed
at, and runs without the hooks of the repository.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from sessiontree.entries import Worktree
from sessiontree.errors import NotFoundError, StoreError, UsageError
from sessiontree.ids import timestamp
from sessiontree.session import Session
from sessiontree.tidying.marks import Marks, WorktreeMark

_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
_SECONDS = 120
_MISLEADING = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"})


class Rebuilding(Struct, frozen=True):
    """How a worktree would be made again: the command, or what is missing for it."""

    worktree: WorktreeMark
    command: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    is_there: bool = False


def save(session: Session, marks: Marks, folder: str | None = None) -> WorktreeMark:
    """Remember the worktree that a session works in, as it is now."""
    where = os.path.realpath(folder or session.cwd or os.getcwd())
    found = look(where)
    if session.dialect.name == "native" and session.read_only is None and _last_entry(session) != _as_entry(found):
        session.append({"type": "worktree", **_as_entry(found)})
        session.flush()
    path = os.path.realpath(session.location)
    marks.change(session.id, path, lambda mark: msgspec.structs.replace(mark, worktree=found))
    return found


def _as_entry(found: WorktreeMark) -> dict[str, str | None]:
    return {"path": found.path, "branch": found.branch, "base": found.head}


def _last_entry(session: Session) -> dict[str, str | None] | None:
    entry = _find_entry(session)
    return None if entry is None else {"path": entry.path, "branch": entry.branch, "base": entry.base}


def _find_entry(session: Session) -> Worktree | None:
    """The last word of the session itself about its worktree."""
    for id in reversed(session.ids):
        if session.type_of(id) == "worktree":
            entry = session.entry(id)
            return entry if isinstance(entry, Worktree) and entry.path else None
    return None


def look(folder: str) -> WorktreeMark:
    """The worktree that a folder lies in."""
    if not os.path.isdir(folder):
        raise NotFoundError(f"{folder}: there is no such folder")
    top = _git(folder, "rev-parse", "--show-toplevel")
    if not top:
        raise UsageError(f"{folder}: is in no git repository")
    common = _git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir") or ""
    branch = _git(folder, "symbolic-ref", "--quiet", "--short", "HEAD") or None
    head = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD") or None
    main = os.path.dirname(common) if os.path.basename(common) == ".git" else common
    return WorktreeMark(os.path.realpath(top), branch, head, main or None, timestamp())


def find(session: Session, marks: Marks) -> WorktreeMark | None:
    """The worktree that was saved for a session; None when none was."""
    marked = marks.find(session.id, os.path.realpath(session.location)).worktree
    entry = _find_entry(session)
    if entry is None or (marked is not None and marked.path == entry.path and marked.head == entry.base):
        return marked
    repository = marked.repository if marked is not None else None
    return WorktreeMark(entry.path, entry.branch, entry.base, repository, entry.timestamp)


def plan_restoring(saved: WorktreeMark, repository: str | None = None) -> Rebuilding:
    """What it takes to make a worktree again. Changes nothing."""
    main = repository or saved.repository
    if os.path.isdir(saved.path) and _git(saved.path, "rev-parse", "--show-toplevel") == saved.path:
        return Rebuilding(saved, is_there=True)
    missing: list[str] = []
    if os.path.lexists(saved.path):
        missing.append(f"{saved.path} is taken by something else")
    if not main or not os.path.isdir(main) or not _git(main, "rev-parse", "--git-dir"):
        return Rebuilding(saved, missing=(*missing, f"the repository {main or '(not recorded)'} is not there"))
    has_branch = _has_branch(main, saved.branch)
    has_head = bool(saved.head) and _git(main, "rev-parse", "--verify", "--quiet", f"{saved.head}^{{commit}}") != ""
    if not has_branch and not has_head:
        missing.append(f"neither the branch {saved.branch} nor the commit {saved.head} is in {main}")
    elsewhere = _where_checked_out(main, saved.branch) if has_branch else None
    if elsewhere and elsewhere != saved.path:
        missing.append(f"the branch {saved.branch} is checked out in {elsewhere}")
    if missing:
        return Rebuilding(saved, missing=tuple(missing))
    command = ["git", "-C", main, *_QUIET, "worktree", "add"]
    command += ["--force"] if elsewhere == saved.path or _is_registered(main, saved.path) else []
    if has_branch:
        command += [saved.path, str(saved.branch)]
    elif saved.branch and _is_branch_name(main, saved.branch):
        command += ["-b", saved.branch, saved.path, str(saved.head)]
    else:
        command += ["--detach", saved.path, str(saved.head)]
    return Rebuilding(saved, tuple(command))


def restore(plan: Rebuilding) -> None:
    """Make the worktree again."""
    if plan.is_there:
        return
    if plan.missing:
        raise NotFoundError(f"{plan.worktree.path}: cannot be made again: {'; '.join(plan.missing)}")
    done = _run(plan.command)
    if done.returncode:
        raise StoreError(f"{plan.worktree.path}: git did not make the worktree: {os.fsdecode(done.stderr).strip()}")


def _has_branch(main: str, branch: str | None) -> bool:
    return bool(branch) and _git(main, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}") != ""


def _is_branch_name(main: str, branch: str) -> bool:
    return not branch.startswith("-") and _git(main, "check-ref-format", "--branch", branch) != ""


def _worktrees(main: str) -> list[dict[str, str]]:
    """What git knows of the repository's worktrees."""
    found: list[dict[str, str]] = []
    for block in _git(main, "worktree", "list", "--porcelain").split("\n\n"):
        lines = (line.partition(" ") for line in block.splitlines())
        found.append({name: value for name, _, value in lines})
    return found


def _where_checked_out(main: str, branch: str | None) -> str | None:
    ref = f"refs/heads/{branch}"
    return next((one.get("worktree") for one in _worktrees(main) if one.get("branch") == ref), None)


def _is_registered(main: str, path: str) -> bool:
    return any(one.get("worktree") == path for one in _worktrees(main))


def _git(folder: str, *arguments: str) -> str:
    """What git says; empty when it refuses, or is not installed."""
    try:
        done = _run(("git", "-C", folder, *_QUIET, *arguments))
    except FileNotFoundError:
        return ""
    return os.fsdecode(done.stdout).strip("\n") if done.returncode == 0 else ""


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Run git on the folder that is meant, also from within a hook, where variables name another one."""
    around = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    return subprocess.run(command, capture_output=True, env=around, timeout=_SECONDS, check=False)  # noqa: S603
