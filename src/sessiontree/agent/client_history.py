"""File copies that the session's own client made, as states to which a rewind restores files.

The names of files and copies come from a transcript that anyone may have written. Only regular files in the client's
own folder are read, without following links. Only files in the session's folder and in the workspace are restored.
"""

from __future__ import annotations

import hashlib
import os
import stat

from msgspec import Struct

from sessiontree.agent.workspace import Workspace, is_within
from sessiontree.errors import PathError
from sessiontree.git.snapshot import ABSENT, FileState, file_mode, read_state
from sessiontree.session.session import Session
from sessiontree.stores.safe_files import read_path


class ClientChange(Struct, frozen=True):
    """Files as they were at a place in the session, before the client changed them."""

    position: float
    """Between the nodes before and after it."""
    files: dict[str, FileState]
    """By path, relative to the workspace."""
    lost: dict[str, str]
    """Files that cannot be restored, each with the reason."""


class ClientHistory:
    """The copies that the client of a session made of files, and their contents by hash."""

    def __init__(self, session: Session, workspace: Workspace) -> None:
        self._session, self._workspace = session, workspace
        self.contents: dict[str, bytes] = {}

    def changes(self, after: int) -> list[ClientChange]:
        """The changes after a node, in the order of the session. A snapshot at a prompt is after the prompt."""
        found = []
        for backups in self._session.dialect.client.file_history(self._session.journal):
            position = backups.node + (0.5 if backups.is_at_prompt else 0)
            if position > after:
                found.append(self._change(position, backups.files))
        return sorted(found, key=lambda change: change.position)

    def _change(self, position: float, copies: dict[str, str | None]) -> ClientChange:
        files: dict[str, FileState] = {}
        lost: dict[str, str] = {}
        for named, copy in copies.items():
            path = os.path.normpath(os.path.join(self._session.cwd or self._workspace.root, named))
            try:
                self._check_inside(path)
                files[os.path.relpath(path, self._workspace.root)] = self._state(path, copy)
            except (PathError, OSError, ValueError) as error:
                lost[named] = str(error)
        return ClientChange(position, files, lost)

    def _check_inside(self, path: str) -> None:
        folders = (self._workspace.root, os.path.normpath(self._session.cwd or self._workspace.root))
        if not all(is_within(path, folder) for folder in folders):
            raise PathError("it is outside the session's folder")

    def _state(self, path: str, copy: str | None) -> FileState:
        """The state that a copy holds, with the permissions that the file has now."""
        if copy is None:
            return ABSENT
        found = read_path(copy)
        if found is None or not stat.S_ISREG(found.stat.st_mode):
            raise PathError(f"its copy {os.path.basename(copy)} is missing")
        now = read_state(path)
        mode = now.mode if now is not None and now.mode and not now.is_link else file_mode(found.stat)
        name = hashlib.sha256(found.data).hexdigest()
        self.contents[name] = found.data
        return FileState(mode, name, len(found.data))
