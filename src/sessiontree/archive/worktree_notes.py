"""What Claude Code itself notes of worktrees and files: read, never written.

A `worktree-state` line says which worktree a session entered, or that it left it. `file-history-snapshot` and
`file-history-delta` lines name copies of files from *before* they were edited: not the last state, but often all there
is when a worktree is gone and nobody saved it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from sessiontree.core.jsonio import parse_json
from sessiontree.dialects.defaults import is_session_name
from sessiontree.git.snapshot import FileState, PutBlob, Snapshot, file_mode
from sessiontree.git.worktree import WorktreeState
from sessiontree.session.reader import Reader

_WINDOW = 64 * 1024
"""Bytes at each end of a transcript where the client looks for such lines."""
_MARK = b'"worktree-state"'
_COPY = re.compile(r"[A-Za-z0-9_-]+@v[0-9]+\Z")


def find_noted(session: Reader) -> WorktreeState | None:
    """The worktree that Claude Code says the session is in; None for other agents, and when it left it."""
    if session.dialect.name != "claude":
        return None
    types = session.journal.types
    last = next((node for node in range(len(types) - 1, -1, -1) if types[node] == "worktree-state"), None)
    return None if last is None else _mark_of(session.journal.fields([last])[0])


def _mark_of(fields: dict[str, Any]) -> WorktreeState | None:
    state = fields.get("worktreeSession")
    if not isinstance(state, dict):
        return None

    def told(name: str) -> str | None:
        found = state.get(name)
        return found if isinstance(found, str) and found else None

    path = told("worktreePath")
    if path is None or not os.path.isabs(path):
        return None
    return WorktreeState(path, told("worktreeBranch"), told("originalHeadCommit"), told("originalCwd"))


def iter_noted(roots: Iterable[str]) -> Iterator[tuple[str, WorktreeState]]:
    """The transcripts of Claude Code below some folders that say they are in a worktree. Only their ends are read."""
    for root in roots:
        for folder, folders, names in os.walk(os.path.realpath(os.path.expanduser(root))):
            folders.sort()
            for name in sorted(filter(is_session_name, names)):
                path = os.path.join(folder, name)
                found = None if os.path.islink(path) else _last_state(path)
                if found is not None:
                    yield path, found


def _last_state(path: str) -> WorktreeState | None:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_WINDOW)
            file.seek(max(len(head), size - _WINDOW))
            data = head + (b"" if size - _WINDOW <= len(head) else b"\n") + file.read()
    except OSError:
        return None
    for line in reversed(data.split(b"\n")):
        if _MARK not in line:
            continue
        try:
            fields = parse_json(line)
        except ValueError:
            continue  # cut by the window
        if isinstance(fields, dict) and fields.get("type") == "worktree-state":
            return _mark_of(fields)
    return None


def count_copies(session: Reader) -> int:
    """How many files Claude Code has earlier copies of."""
    return sum(1 for _ in _iter_copies(session)) if session.dialect.name == "claude" else 0


def history_snapshot(session: Reader, worktree: WorktreeState, put: PutBlob) -> Snapshot:
    """The newest copies that Claude Code has of the files of a worktree, as a snapshot on whatever commit it has."""
    files: dict[str, FileState] = {}
    left_out: dict[str, str] = {}
    for tracked, copy in _iter_copies(session):
        path = os.path.relpath(tracked, worktree.path) if os.path.isabs(tracked) else os.path.normpath(tracked)
        if path.startswith(".."):
            left_out[tracked] = "is outside of the worktree"
            continue
        try:
            with open(copy, "rb") as file:
                data = file.read()
                mode = file_mode(os.fstat(file.fileno()))
        except OSError as error:
            left_out[path] = f"its copy {copy} cannot be read: {error.strerror}"
            continue
        files[path] = FileState(mode, put(data), len(data))
    return Snapshot(worktree.path, None, files, left_out)


def _iter_copies(session: Reader) -> Iterator[tuple[str, str]]:
    """File -> its newest copy. A file that did not exist before has none."""
    journal = session.journal
    kinds = ("file-history-snapshot", "file-history-delta")
    nodes = [node for node, kind in enumerate(journal.types) if kind in kinds]
    newest: dict[str, dict[str, Any]] = {}
    for node in nodes:
        (fields,) = journal.fields([node])
        snapshot = fields.get("snapshot")
        backups = snapshot.get("trackedFileBackups") if isinstance(snapshot, dict) else None
        tracked = fields.get("trackingPath")
        if isinstance(tracked, str):
            backups = {tracked: fields.get("backup")}
        if isinstance(backups, dict):
            newest |= {path: backup for path, backup in backups.items() if isinstance(backup, dict)}
    # <config>/projects/<project>/<session>.jsonl and <config>/file-history/<session>/<copy>
    config = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(session.location))))
    for path, backup in newest.items():
        name = backup.get("backupFileName")
        if isinstance(name, str) and _COPY.match(name):
            yield path, os.path.join(config, "file-history", session.id, name)
