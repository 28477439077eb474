"""Detect that another process deleted or replaced the file of an open session."""

from __future__ import annotations

import os

from sessiontree.session.session import Session


def file_identity(session: Session) -> tuple[int, int] | None:
    """Device and inode of a session's file; None if it is gone, and (0, 0) if the session is not a file.

    An open file can still be read after it was deleted. Other repositories report that with the next read.
    """
    if not session.ref.is_file:
        return 0, 0
    try:
        found = os.stat(session.ref.path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
