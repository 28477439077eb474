"""Save the git worktree of a session, with its uncommitted files, and find it again.

A native session stores its worktree in a `worktree` and a `file_snapshot` entry; for other clients it is stored in the
tags of the session. Contents are blobs, written before anything refers to them, so a process that dies leaves the
previous save intact. If nothing was saved, the worktree that the client recorded is used.
"""

from __future__ import annotations

import os

import msgspec

from sessiontree.archive.client_worktrees import find_noted_worktree
from sessiontree.archive.tags import TagFile, tagged_path
from sessiontree.core.entries import Worktree
from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.errors import DamagedError
from sessiontree.git.snapshot import LIMITS, Snapshot, SnapshotLimits, parse_snapshot, take_snapshot
from sessiontree.git.worktree import SavedWorktree, WorktreeState, read_worktree
from sessiontree.paths import real_folder
from sessiontree.session.session import Session
from sessiontree.stores.contract import BlobStore


def save_worktree(
    session: Session,
    tags: TagFile,
    blobs: BlobStore,
    folder: str | None = None,
    *,
    files: bool = True,
    secrets: bool = False,
    limits: SnapshotLimits = LIMITS,
) -> SavedWorktree:
    """Save the current state of the worktree of a session."""
    worktree = read_worktree(real_folder(folder or session.cwd or os.getcwd()))
    store = worktree_blobs(session, blobs)
    snapshot = None
    if files:
        snapshot = take_snapshot(worktree.path, worktree.head, store.put, secrets=secrets, limits=limits)
        worktree = msgspec.structs.replace(worktree, files=store.put(render_json(snapshot)))
    if _stores_worktree(session):
        _append_entries(session, worktree, snapshot)
    tags.change(session.id, tagged_path(session), lambda record: msgspec.structs.replace(record, worktree=worktree))
    return SavedWorktree(worktree, snapshot)


def worktree_blobs(session: Session, blobs: BlobStore) -> BlobStore:
    """The blob store for worktree files: a native session's own, or the given one of the home folder."""
    own = session.journal.blobs if session.dialect.traits.uses_home_blobs else None
    return own if own is not None else blobs


def find_worktree(session: Session, tags: TagFile, blobs: BlobStore) -> SavedWorktree | None:
    """The worktree that was saved for a session, or else the one that its client recorded."""
    tagged = tags.find(session.id, tagged_path(session)).worktree
    entry = _last_worktree(session) if _stores_worktree(session) else None
    if entry is not None:
        repository = tagged.repository if tagged is not None else None
        worktree = WorktreeState(entry.path, entry.branch, entry.base, repository, entry.timestamp)
        files = _last_snapshot(session, worktree)
        # Pruning or shrinking may have removed the session's own list of files; the tags still name its blob.
        if files is None and tagged is not None and (tagged.path, tagged.head) == (worktree.path, worktree.head):
            files = _load_snapshot(tagged, worktree_blobs(session, blobs))
        return SavedWorktree(worktree, files)
    if tagged is not None:
        return SavedWorktree(tagged, _load_snapshot(tagged, worktree_blobs(session, blobs)))
    recorded = find_noted_worktree(session)
    return None if recorded is None else SavedWorktree(recorded)


def _stores_worktree(session: Session) -> bool:
    return session.dialect.traits.uses_home_blobs and session.read_only is None


def _append_entries(session: Session, worktree: WorktreeState, snapshot: Snapshot | None) -> None:
    """Append a `worktree` and a `file_snapshot` entry, unless the last ones have the same content."""
    last = _last_worktree(session)
    if last is None or (last.path, last.branch, last.base) != (worktree.path, worktree.branch, worktree.head):
        fields = {"path": worktree.path, "branch": worktree.branch, "base": worktree.head}
        session.append({"type": "worktree", **fields})
    previous = _last_snapshot(session, worktree)
    if snapshot is not None and snapshot != previous and not (previous is None and snapshot.is_empty):
        session.append({"type": "file_snapshot", **msgspec.to_builtins(snapshot)})
    session.flush()


def _last_worktree(session: Session) -> Worktree | None:
    for id in reversed(session.ids):
        if session.type_of(id) == "worktree":
            entry = session.entry(id)
            return entry if isinstance(entry, Worktree) and entry.path else None
    return None


def _last_snapshot(session: Session, worktree: WorktreeState) -> Snapshot | None:
    """The session's last snapshot of a worktree at the commit that is checked out there."""
    for id in reversed(session.ids):
        if session.type_of(id) == "file_snapshot":
            found = parse_snapshot(next(session.journal.resolved_fields([session.node_of(id) or 0])))
            if found is not None and (found.path, found.head) == (worktree.path, worktree.head):
                return found
    return None


def _load_snapshot(worktree: WorktreeState, blobs: BlobStore) -> Snapshot | None:
    if worktree.files is None:
        return None
    data = blobs.get(worktree.files)
    found = None if data is None else parse_snapshot(parse_json(data))
    if found is None:
        raise DamagedError(
            f"{worktree.path}: the list of saved files, blob {worktree.files[:12]}…, is missing or damaged; "
            "--no-files recreates the worktree without them"
        )
    return found
