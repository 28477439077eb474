"""Where outputs go that are too long to be told: into the folder that belongs to the session's file.

That folder has the file's name without its ending, and goes where the file goes: into the archive and back, to another
machine, away for good. So no output outlives its session, and nobody has to look for those that do.
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
    """The folders of one app's sessions. A session that is kept in memory gets one that ends with the app."""

    def __init__(self) -> None:
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def folder(self, session: Session) -> str:
        """The folder of a session, whether or not it is there yet."""
        if os.path.isabs(session.location):
            return os.path.join(session_folder(session.location), FOLDER)
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="sessiontree-outputs-")
        return self._scratch.name

    def leave(self, session: Session) -> None:
        """A session is left. One that never got a file leaves no outputs behind, either."""
        if session.is_pending and os.path.isabs(session.location):
            shutil.rmtree(self.folder(session), ignore_errors=True)
            with contextlib.suppress(OSError):  # there never was one, or something else is in it
                os.rmdir(session_folder(session.location))

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None
