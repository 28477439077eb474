"""Claude Code's own records of worktrees and files.

A `worktree-state` line records which worktree a session entered, or that it left it. `file-history-snapshot` and
`file-history-delta` lines name copies of files from *before* an edit: not the last state, but often the only copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sessiontree.dialects.client import WorktreeNote

if TYPE_CHECKING:
    from sessiontree.dialects.contract import IndexedLines

WORKTREE_STATE = "worktree-state"
_FILE_HISTORY = frozenset({"file-history-snapshot", "file-history-delta"})
_backup_name = re.compile(r"[A-Za-z0-9_-]+@v[0-9]+\Z")


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
    newest: dict[str, dict[str, Any]] = {}
    nodes = [node for node, kind in enumerate(lines.types) if kind in _FILE_HISTORY]
    for fields in (lines.fields([node])[0] for node in nodes):
        snapshot = fields.get("snapshot")
        backups = snapshot.get("trackedFileBackups") if isinstance(snapshot, dict) else None
        tracked = fields.get("trackingPath")
        if isinstance(tracked, str):
            backups = {tracked: fields.get("backup")}
        if isinstance(backups, dict):
            newest |= {path: backup for path, backup in backups.items() if isinstance(backup, dict)}
    # The name becomes part of a path, so it must be exactly what the client generates.
    names = {
        path: name
        for path, backup in newest.items()
        if isinstance(name := backup.get("backupFileName"), str) and _backup_name.match(name)
    }
    # <config>/projects/<project>/<session>.jsonl and <config>/file-history/<session>/<backup>
    config = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(lines.location))))
    session = lines.header.id if lines.header is not None else ""
    return {path: os.path.join(config, "file-history", session, name) for path, name in names.items()}
