"""A session whose messages are in separate files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from sessiontree.dialects.storage import Gathered
from sessiontree.errors import SessionTreeError
from sessiontree.sources.lines_store import closed_line, iter_file, with_damage


class _Files:
    """Reads other files of a session."""

    def names(self, folder: str) -> Sequence[str]:
        try:
            return sorted(os.listdir(folder))
        except OSError:
            return ()

    def read(self, path: str) -> bytes | None:
        try:
            return b"".join(iter_file(path))
        except SessionTreeError:
            return None


def iter_gathered(path: str, storage: Gathered) -> Iterator[bytes]:
    """The lines of a session; a file that cannot be decoded becomes a line that reports the damage."""
    content = b"".join(iter_file(path))
    return with_damage(map(closed_line, storage.lines(path, content, _Files())))
