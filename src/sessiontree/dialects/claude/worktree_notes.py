"""Claude Code's own records of worktrees and files.

A `worktree-state` line records which worktree a session entered, or that it left it. `file-history-snapshot` and
`file-history-delta` lines name copies of files from *before* an edit: not the last state, but often the only copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sessiontree.dialects.client import FileBackups, WorktreeNote

if TYPE_CHECKING:
    from sessiontree.dialects.contract import IndexedLines

WORKTREE_STATE = "worktree-state"
_FILE_HISTORY = frozenset({"file-history-snapshot", "file-history-delta"})
_SESSION_NAME = r"[A-Za-z0-9_-]+\Z"
_BACKUP_NAME = r"[A-Za-z0-9_-]+@v[0-9]+\Z"


def parse_worktree_state(fields: Mapping[str, Any]) -> WorktreeNote | None:
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


def find_backups(lines: IndexedLines) -> dict[str, str]:
    """File -> the path of its newest backup. A file that did not exist before an edit has none."""
    newest: dict[str, str | None] = {}
    for backups in find_file_history(lines):
        newest |= backups.files
    return {path: backup for path, backup in newest.items() if backup is not None}


def find_file_history(lines: IndexedLines) -> list[FileBackups]:
    """The backups that the lines name, in file order. Names that are not the client's own are ignored."""
    folder = _history_folder(lines)
    found: list[FileBackups] = []
    if folder is None:
        return found
    nodes = [node for node, kind in enumerate(lines.types) if kind in _FILE_HISTORY]
    for node, fields in ((node, lines.fields([node])[0]) for node in nodes):
        snapshot, tracked = fields.get("snapshot"), fields.get("trackingPath")
        backups = snapshot.get("trackedFileBackups") if isinstance(snapshot, dict) else None
        if isinstance(tracked, str):
            backups = {tracked: fields.get("backup")}
        files = {
            path: None if backup["backupFileName"] is None else os.path.join(folder, backup["backupFileName"])
            for path, backup in (backups.items() if isinstance(backups, dict) else ())
            if _is_backup(backup)
        }
        # A snapshot names the prompt that follows it: files are as they were there. Others follow an edit.
        prompt = fields.get("messageId") if tracked is None and fields.get("isSnapshotUpdate") is not True else None
        at = lines.tree.node_of.get(prompt) if isinstance(prompt, str) else None
        if files:
            found.append(FileBackups(node if at is None else at, files, at is not None))
    return found


def _is_backup(backup: object) -> bool:
    # The name becomes part of a path, so it must be exactly what the client generates.
    if not isinstance(backup, dict) or "backupFileName" not in backup:
        return False
    name = backup["backupFileName"]
    return name is None or (isinstance(name, str) and re.match(_BACKUP_NAME, name) is not None)


def _history_folder(lines: IndexedLines) -> str | None:
    # <config>/projects/<project>/<session>.jsonl and <config>/file-history/<session>/<backup>
    session = lines.header.id if lines.header is not None else ""
    projects = os.path.dirname(os.path.dirname(os.path.realpath(lines.location)))
    if os.path.basename(projects) != "projects" or not re.match(_SESSION_NAME, session):
        return None
    return os.path.join(os.path.dirname(projects), "file-history", session)
