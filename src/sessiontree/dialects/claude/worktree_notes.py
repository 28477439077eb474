"""Claude Code's own records of worktrees and files.

A `worktree-state` line records which worktree a session entered, or that it left it. `file-history-snapshot` and
`file-history-delta` lines name copies of files from *before* an edit: not the last state, but often the only copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from sessiontree.core.jsonio import parse_json

WORKTREE_STATE = "worktree-state"
FILE_HISTORY = frozenset({"file-history-snapshot", "file-history-delta"})
_backup_name = re.compile(r"[A-Za-z0-9_-]+@v[0-9]+\Z")


class WorktreeNote(Struct, frozen=True):
    """The worktree that a session entered."""

    path: str
    branch: str | None
    head: str | None
    repository: str | None


def parse_worktree_state(fields: dict[str, Any]) -> WorktreeNote | None:
    """Parse a `worktree-state` line; None if the session left its worktree."""
    state = fields.get("worktreeSession")
    if not isinstance(state, dict):
        return None

    def text(name: str) -> str | None:
        value = state.get(name)
        return value if isinstance(value, str) and value else None

    path = text("worktreePath")
    if path is None or not os.path.isabs(path):
        return None
    return WorktreeNote(path, text("worktreeBranch"), text("originalHeadCommit"), text("originalCwd"))


def find_last_worktree(data: bytes) -> WorktreeNote | None:
    """The last worktree note in some lines of a transcript, which may be cut at both ends."""
    for line in reversed(data.split(b"\n")):
        if f'"{WORKTREE_STATE}"'.encode() not in line:
            continue
        try:
            fields = parse_json(line)
        except ValueError:
            continue  # a line that was cut
        if isinstance(fields, dict) and fields.get("type") == WORKTREE_STATE:
            return parse_worktree_state(fields)
    return None


def find_backups(records: Iterable[dict[str, Any]]) -> dict[str, str]:
    """File -> the name of its newest backup, from file-history lines in file order.

    A file that did not exist before an edit has no backup.
    """
    newest: dict[str, dict[str, Any]] = {}
    for fields in records:
        snapshot = fields.get("snapshot")
        backups = snapshot.get("trackedFileBackups") if isinstance(snapshot, dict) else None
        tracked = fields.get("trackingPath")
        if isinstance(tracked, str):
            backups = {tracked: fields.get("backup")}
        if isinstance(backups, dict):
            newest |= {path: backup for path, backup in backups.items() if isinstance(backup, dict)}
    names = {path: backup.get("backupFileName") for path, backup in newest.items()}
    # The name becomes part of a path, so it must be exactly what the client generates.
    return {path: name for path, name in names.items() if isinstance(name, str) and _backup_name.match(name)}
