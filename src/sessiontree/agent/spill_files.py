"""Folders for output that is too long for a result: each belongs to the file of its session.

The folder is named like the file without its suffix, and is moved, archived, synchronized and deleted with it. So no
output outlives its session.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile

from sessiontree.archive.allowed_paths import session_folder
from sessiontree.session.session import Session

FOLDER = "tool-results"


class SpillFolders:
    """Spill folders of the sessions of one app. Sessions in memory share a temporary one."""

    def __init__(self) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def folder(self, session: Session) -> str:
        """The folder of a session, whether or not it exists yet."""
        if os.path.isabs(session.location):
            return os.path.join(session_folder(session.location), FOLDER)
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="sessiontree-outputs-")
        return self._temporary.name

    def leave(self, session: Session) -> None:
        """Clean up when a session is closed: one that never got a file must not leave a folder."""
        if session.is_pending and os.path.isabs(session.location):
            shutil.rmtree(self.folder(session), ignore_errors=True)
            with contextlib.suppress(OSError):  # does not exist, or is not empty
                os.rmdir(session_folder(session.location))

    def close(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
