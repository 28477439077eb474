"""The git worktree of a session: remembered with its uncommitted files, and made again when it is gone.

Native sessions say it themselves, in a `worktree` and a `file_snapshot` entry; for all others it is in the marks, and
contents are among the blobs of the home folder. A Claude Code session that nobody saved still tells what its client
noted. Contents are durable before anything names them, so a process that dies leaves what was saved before.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from sessiontree.archive.tags import Marks, WorktreeMark
from sessiontree.archive.worktree_notes import find_noted
from sessiontree.core.entries import Worktree
from sessiontree.core.ids import timestamp
from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.errors import DamagedError, NotFoundError, StoreError, UsageError
from sessiontree.git import command
from sessiontree.git.restore_files import Laid, find_in_the_way, lay
from sessiontree.git.snapshot import LIMITS, Limits, Snapshot, parse_snapshot, take_snapshot
from sessiontree.session.session import Session
from sessiontree.stores.contract import BlobStore
from sessiontree.stores.os_calls import OS_CALLS, OsCalls


class Saved(Struct, frozen=True):
    """A worktree as it was saved, with its uncommitted files if those were."""

    worktree: WorktreeMark
    files: Snapshot | None = None


class Rebuilding(Struct, frozen=True):
    """How a worktree would be made again: the command, or what is missing for it."""

    worktree: WorktreeMark
    command: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    is_there: bool = False
    files: Snapshot | None = None
    in_the_way: tuple[str, ...] = ()
    """Files in a worktree that is there which are neither as saved nor as committed."""
    notes: tuple[str, ...] = ()


# Saving


def save(
    session: Session,
    marks: Marks,
    blobs: BlobStore,
    folder: str | None = None,
    *,
    files: bool = True,
    secrets: bool = False,
    limits: Limits = LIMITS,
) -> Saved:
    """Remember the worktree that a session works in, as it is now."""
    where = os.path.realpath(folder or session.cwd or os.getcwd())
    found = look(where)
    is_native = session.dialect.name == "native" and session.read_only is None
    place = blobs_of(session, blobs)
    taken = take_snapshot(found.path, found.head, place.put, secrets=secrets, limits=limits) if files else None
    if taken is not None:
        found = msgspec.structs.replace(found, files=place.put(render_json(taken)))
    if is_native:
        if _last_entry(session) != _as_entry(found):
            session.append({"type": "worktree", **_as_entry(found)})
        last = _last_files(session, found)
        if taken is not None and taken != last and not (last is None and taken.is_empty):
            session.append({"type": "file_snapshot", **msgspec.to_builtins(taken)})
        session.flush()
    path = os.path.realpath(session.location)
    marks.change(session.id, path, lambda mark: msgspec.structs.replace(mark, worktree=found))
    return Saved(found, taken)


def blobs_of(session: Session, blobs: BlobStore) -> BlobStore:
    """Where the files of a session's worktree are kept: with a native session, else in the home folder."""
    own = session.journal.blobs if session.dialect.name == "native" else None
    return own if own is not None else blobs


def look(folder: str) -> WorktreeMark:
    """The worktree that a folder lies in."""
    if not os.path.isdir(folder):
        raise NotFoundError(f"{folder}: there is no such folder")
    top = command.ask(folder, "rev-parse", "--show-toplevel")
    if not top:
        raise UsageError(f"{folder}: is in no git repository")
    common = command.ask(folder, "rev-parse", "--path-format=absolute", "--git-common-dir") or ""
    branch = command.ask(folder, "symbolic-ref", "--quiet", "--short", "HEAD") or None
    head = command.ask(folder, "rev-parse", "--verify", "--quiet", "HEAD") or None
    main = os.path.dirname(common) if os.path.basename(common) == ".git" else common
    return WorktreeMark(os.path.realpath(top), branch, head, main or None, timestamp())


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


def _last_files(session: Session, worktree: WorktreeMark) -> Snapshot | None:
    """The last word of the session itself about the files of a worktree at the commit it has."""
    for id in reversed(session.ids):
        if session.type_of(id) == "file_snapshot":
            found = parse_snapshot(next(session.journal.resolved_fields([session.node_of(id) or 0])))
            if found is not None and (found.path, found.head) == (worktree.path, worktree.head):
                return found
    return None


# Finding


def find(session: Session, marks: Marks, blobs: BlobStore) -> Saved | None:
    """The worktree that was saved for a session, else the one its owner noted; None when there is none."""
    marked = marks.find(session.id, os.path.realpath(session.location)).worktree
    entry = _find_entry(session) if session.dialect.name == "native" and session.read_only is None else None
    if entry is not None:
        repository = marked.repository if marked is not None else None
        found = WorktreeMark(entry.path, entry.branch, entry.base, repository, entry.timestamp)
        files = _last_files(session, found)
        if files is None and marked is not None and (marked.path, marked.head) == (found.path, found.head):
            files = _marked_files(marked, blobs_of(session, blobs))  # its own list has left the file, by tidying
        return Saved(found, files)
    if marked is not None:
        return Saved(marked, _marked_files(marked, blobs_of(session, blobs)))
    noted = find_noted(session)
    return None if noted is None else Saved(noted)


def _marked_files(marked: WorktreeMark, blobs: BlobStore) -> Snapshot | None:
    if marked.files is None:
        return None
    data = blobs.get(marked.files)
    found = None if data is None else parse_snapshot(parse_json(data))
    if found is None:
        raise DamagedError(
            f"{marked.path}: the list of its saved files, blob {marked.files[:12]}…, is not there or cannot be read; "
            "--no-files makes the worktree without them"
        )
    return found


# Making it again


def plan_restoring(saved: Saved, repository: str | None = None, *, detach: bool = False) -> Rebuilding:
    """What it takes to make a worktree again. Changes nothing."""
    worktree, files = saved.worktree, saved.files
    if files is not None and not files.files:
        files = None
    main = repository or worktree.repository
    if os.path.isdir(worktree.path) and command.ask(worktree.path, "rev-parse", "--show-toplevel") == worktree.path:
        return _plan_there(worktree, files)
    missing: list[str] = []
    if os.path.lexists(worktree.path):
        missing.append(f"{worktree.path} is taken by something else")
    if not main or not os.path.isdir(main) or not command.ask(main, "rev-parse", "--git-dir"):
        where = f"the repository {main or '(not recorded)'} is not there; --repository DIR names another place"
        return Rebuilding(worktree, missing=(*missing, where), files=files)
    tip = (
        command.ask(main, "rev-parse", "--verify", "--quiet", f"refs/heads/{worktree.branch}")
        if worktree.branch
        else ""
    )
    has_head = bool(worktree.head) and _has_commit(main, str(worktree.head))
    notes: list[str] = []
    if not tip and not has_head:
        missing.append(
            f"neither the branch {worktree.branch} nor the commit {worktree.head} is in {main}; "
            "`git fetch` may bring it from where it was pushed to"
        )
    elif files is not None and not has_head:
        missing.append(
            f"the commit {worktree.head} that the saved files stand on is not in {main}; `git fetch` may bring it, "
            f"and --no-files makes the worktree at the branch {worktree.branch} as it is now"
        )
    elsewhere = _where_checked_out(main, worktree.branch) if tip and not detach else None
    if elsewhere and elsewhere != worktree.path:
        missing.append(
            f"the branch {worktree.branch} is checked out in {elsewhere}; --detach makes the worktree without it"
        )
    if missing:
        return Rebuilding(worktree, missing=tuple(missing), files=files)
    if files is not None and tip and tip != worktree.head:
        detach = True
        notes.append(
            f"the branch {worktree.branch} has moved on to {tip[:12]}: the worktree stands at "
            f"{str(worktree.head)[:12]}, where the files were saved, without the branch"
        )
    words = ["git", "-C", main, *command.QUIET, "worktree", "add"]
    words += ["--force"] if elsewhere == worktree.path or _is_registered(main, worktree.path) else []
    if detach and has_head:
        words += ["--detach", worktree.path, str(worktree.head)]
    elif detach:
        words += ["--detach", worktree.path, tip]
    elif tip:
        words += [worktree.path, str(worktree.branch)]
    elif worktree.branch and _is_branch_name(main, worktree.branch):
        words += ["-b", worktree.branch, worktree.path, str(worktree.head)]
    else:
        words += ["--detach", worktree.path, str(worktree.head)]
    return Rebuilding(worktree, tuple(words), files=files, notes=tuple(notes))


def _plan_there(worktree: WorktreeMark, files: Snapshot | None) -> Rebuilding:
    """The worktree is there: its files may still have to be put back."""
    if _is_half_made(worktree.path):
        again = f"git -C {worktree.path} worktree remove --force --force {worktree.path}"
        missing = f"git was stopped while it made {worktree.path}; `{again}` takes that away, then run this again"
        return Rebuilding(worktree, missing=(missing,), is_there=True, files=files)
    if files is None:
        return Rebuilding(worktree, is_there=True)
    stands = command.ask(worktree.path, "rev-parse", "--verify", "--quiet", "HEAD")
    if files.head is not None and stands != files.head:
        missing = (
            f"{worktree.path} stands at {stands[:12]}, and its files were saved at {files.head[:12]}; "
            f"`git switch --detach {files.head[:12]}` takes it there, --no-files leaves the files alone"
        )
        return Rebuilding(worktree, missing=(missing,), is_there=True, files=files)
    return Rebuilding(worktree, is_there=True, files=files, in_the_way=tuple(find_in_the_way(worktree.path, files)))


def restore(plan: Rebuilding, blobs: BlobStore, *, overwrite: bool = False, os_calls: OsCalls = OS_CALLS) -> Laid:
    """Make the worktree again, and put its files back."""
    if plan.missing:
        raise NotFoundError(f"{plan.worktree.path}: cannot be made again: {'; '.join(plan.missing)}")
    if not plan.is_there:
        done = command.run(plan.command)
        if done.returncode:
            raise StoreError(f"{plan.worktree.path}: git did not make the worktree: {os.fsdecode(done.stderr).strip()}")
    if plan.files is None:
        return Laid()
    return lay(plan.worktree.path, plan.files, blobs, overwrite=overwrite, os_calls=os_calls)


def _has_commit(main: str, commit: str) -> bool:
    return command.ask(main, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") != ""


def _is_branch_name(main: str, branch: str) -> bool:
    return not branch.startswith("-") and command.ask(main, "check-ref-format", "--branch", branch) != ""


def _worktrees(main: str) -> list[dict[str, str]]:
    """What git knows of the repository's worktrees."""
    found: list[dict[str, str]] = []
    for block in command.ask(main, "worktree", "list", "--porcelain").split("\n\n"):
        lines = (line.partition(" ") for line in block.splitlines())
        found.append({name: value for name, _, value in lines})
    return found


def _where_checked_out(main: str, branch: str | None) -> str | None:
    ref = f"refs/heads/{branch}"
    return next((one.get("worktree") for one in _worktrees(main) if one.get("branch") == ref), None)


def _is_registered(main: str, path: str) -> bool:
    return any(one.get("worktree") == path for one in _worktrees(main))


def _is_half_made(path: str) -> bool:
    """Whether git died while it made a worktree: it holds its own lock on it until all files are there."""
    return any(one.get("worktree") == path and one.get("locked") == "initializing" for one in _worktrees(path))
