"""Find worktrees and file backups that clients recorded. Their files are only read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from sessiontree.archive.candidates import iter_session_files
from sessiontree.clients import client_of
from sessiontree.core.jsonio import parse_json
from sessiontree.dialects.client import Client, WorktreeNote
from sessiontree.errors import PathError
from sessiontree.git.snapshot import FileState, PutBlob, Snapshot, file_mode
from sessiontree.git.worktree import WorktreeState
from sessiontree.session.reader import Reader
from sessiontree.stores.safe_files import read_file

_WINDOW = 64 * 1024
"""Lines that record a worktree are looked for in this many bytes at each end of a file."""


def find_noted_worktree(session: Reader) -> WorktreeState | None:
    """The worktree of a session as its client recorded it; None without a record, and after the session left it."""
    client, types = session.dialect.client, session.journal.types
    if not client.worktree_type:
        return None
    last = next((node for node in range(len(types) - 1, -1, -1) if types[node] == client.worktree_type), None)
    return None if last is None else _to_state(client.parse_worktree(session.journal.fields([last])[0]))


def iter_noted_worktrees(roots: Mapping[str, Sequence[str]]) -> Iterator[tuple[Client, str, WorktreeState]]:
    """The worktrees that clients recorded in session files below their roots. Reads only both ends of each file."""
    for name, folders in roots.items():
        client = client_of(name)
        for path in iter_session_files(folders) if client.worktree_type else ():
            try:
                found = _to_state(_find_last_note(client, _read_ends(path)))
            except OSError:
                continue
            if found is not None:
                yield client, path, found


def _find_last_note(client: Client, data: bytes) -> WorktreeNote | None:
    """The last note in some lines, which may be cut at both ends."""
    for line in reversed(data.split(b"\n")):
        if f'"{client.worktree_type}"'.encode() not in line:
            continue
        try:
            fields = parse_json(line)
        except ValueError:
            continue  # a line that was cut
        if isinstance(fields, dict) and fields.get("type") == client.worktree_type:
            return client.parse_worktree(fields)
    return None


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
    """How many files the client has backups of."""
    return len(session.dialect.client.find_backups(session.journal))


def build_backup_snapshot(session: Reader, worktree: WorktreeState, put: PutBlob) -> Snapshot:
    """A snapshot of the newest backups of a worktree's files, without a commit."""
    files: dict[str, FileState] = {}
    left_out: dict[str, str] = {}
    for tracked, backup in session.dialect.client.find_backups(session.journal).items():
        path = os.path.relpath(tracked, worktree.path) if os.path.isabs(tracked) else os.path.normpath(tracked)
        if path.startswith(".."):
            left_out[tracked] = "outside the worktree"
            continue
        try:
            found = read_file(backup)  # no link: it could lead to any file of the user
        except (OSError, PathError) as error:
            left_out[path] = f"its backup {backup} cannot be read: {getattr(error, 'strerror', None) or error}"
            continue
        files[path] = FileState(file_mode(found.stat), put(found.data), len(found.data))
    return Snapshot(worktree.path, None, files, left_out)
