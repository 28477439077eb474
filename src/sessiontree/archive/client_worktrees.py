"""Find worktrees and file backups that Claude Code recorded. Its files are only read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from sessiontree.archive.candidates import iter_session_files
from sessiontree.dialects.claude.worktree_notes import (
    FILE_HISTORY,
    WORKTREE_STATE,
    WorktreeNote,
    find_backups,
    find_last_worktree,
    parse_worktree_state,
)
from sessiontree.git.snapshot import FileState, PutBlob, Snapshot, file_mode
from sessiontree.git.worktree import WorktreeState
from sessiontree.session.reader import Reader

_WINDOW = 64 * 1024
"""The client looks for such lines in this many bytes at each end of a transcript."""


def find_noted_worktree(session: Reader) -> WorktreeState | None:
    """The worktree of a session as Claude Code recorded it; None for other clients, and after the session left it."""
    if session.dialect.name != "claude":
        return None
    types = session.journal.types
    last = next((node for node in range(len(types) - 1, -1, -1) if types[node] == WORKTREE_STATE), None)
    return None if last is None else _to_state(parse_worktree_state(session.journal.fields([last])[0]))


def iter_noted_worktrees(roots: Iterable[str]) -> Iterator[tuple[str, WorktreeState]]:
    """Transcript -> worktree, for Claude Code transcripts below some folders. Reads only both ends of each file."""
    for path in iter_session_files(roots):
        try:
            found = _to_state(find_last_worktree(_read_ends(path)))
        except OSError:
            continue
        if found is not None:
            yield path, found


def _to_state(note: WorktreeNote | None) -> WorktreeState | None:
    return None if note is None else WorktreeState(note.path, note.branch, note.head, note.repository)


def _read_ends(path: str) -> bytes:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_WINDOW)
        file.seek(max(len(head), size - _WINDOW))
        # Without the LF, the cut ends of both windows could join to a line that is not in the file.
        return head + (b"" if size - _WINDOW <= len(head) else b"\n") + file.read()


def count_backups(session: Reader) -> int:
    """How many files Claude Code has backups of."""
    return len(_find_backup_files(session)) if session.dialect.name == "claude" else 0


def build_backup_snapshot(session: Reader, worktree: WorktreeState, put: PutBlob) -> Snapshot:
    """A snapshot of the newest backups of a worktree's files, without a commit."""
    files: dict[str, FileState] = {}
    left_out: dict[str, str] = {}
    for tracked, backup in _find_backup_files(session).items():
        path = os.path.relpath(tracked, worktree.path) if os.path.isabs(tracked) else os.path.normpath(tracked)
        if path.startswith(".."):
            left_out[tracked] = "outside the worktree"
            continue
        try:
            with open(backup, "rb") as file:
                data = file.read()
                mode = file_mode(os.fstat(file.fileno()))
        except OSError as error:
            left_out[path] = f"its backup {backup} cannot be read: {error.strerror}"
            continue
        files[path] = FileState(mode, put(data), len(data))
    return Snapshot(worktree.path, None, files, left_out)


def _find_backup_files(session: Reader) -> dict[str, str]:
    """File -> the path of its newest backup."""
    journal = session.journal
    nodes = [node for node, kind in enumerate(journal.types) if kind in FILE_HISTORY]
    backups = find_backups(journal.fields([node])[0] for node in nodes)
    # <config>/projects/<project>/<session>.jsonl and <config>/file-history/<session>/<backup>
    config = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(session.location))))
    return {path: os.path.join(config, "file-history", session.id, name) for path, name in backups.items()}
