"""Scan the roots for files that may be sessions. Nothing is opened.

Links below a root are not followed: only files inside the agents' folders are listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from msgspec import Struct

from sessiontree.library.roots import Root

_MAX_DEPTH = 12


class Found(Struct, frozen=True, gc=False):
    """A file below a root. Its dialect decides whether it is a session."""

    path: str
    root: Root
    size: int
    modified: int
    """Modification time in nanoseconds since 1970."""
    inode: int

    @property
    def relative(self) -> str:
        return self.path[len(self.root.folder.rstrip("/")) + 1 :]


def find_files(roots: Sequence[Root]) -> list[Found]:
    """Every JSONL file, each once, even if one root is inside another."""
    found: dict[str, Found] = {}
    for root in roots:
        for entry in _walk(root.folder, root.barren):
            path = entry.path
            if path in found:
                continue
            try:
                stat = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # deleted meanwhile
            found[path] = Found(path, root, stat.st_size, stat.st_mtime_ns, stat.st_ino)
    return list(found.values())


def _walk(folder: str, barren: frozenset[str]) -> Iterator[os.DirEntry[str]]:
    """The JSONL files below a folder; unreadable folders are skipped."""
    waiting = [(folder, 0)]
    while waiting:
        here, depth = waiting.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    if entry.name.endswith(".jsonl"):
                        if entry.is_file(follow_symlinks=False):
                            yield entry
                    elif depth < _MAX_DEPTH and entry.is_dir(follow_symlinks=False) and entry.name not in barren:
                        waiting.append((entry.path, depth + 1))
        except OSError:
            continue
