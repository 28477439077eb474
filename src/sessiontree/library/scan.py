"""The files below the roots that may be sessions, with what tells whether they changed. Nothing is opened.

Below a root no link is followed: what is listed lies in the folders of the agents, and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from msgspec import Struct

from sessiontree.library.roots import Root

_DEEPEST = 12


class Found(Struct, frozen=True, gc=False):
    """A file as it lies there. Whether it is a session is for the dialect of its root to say."""

    path: str
    root: Root
    size: int
    modified: int
    """When its bytes last changed, in nanoseconds since 1970."""
    inode: int

    @property
    def relative(self) -> str:
        return self.path[len(self.root.folder.rstrip("/")) + 1 :]


def find_files(roots: Sequence[Root]) -> list[Found]:
    """Every file with lines, each once, also where one root lies inside another."""
    found: dict[str, Found] = {}
    for root in roots:
        for entry in _walk(root.folder, root.barren):
            path = entry.path
            if path in found:
                continue
            try:
                stat = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it was deleted while we looked
            found[path] = Found(path, root, stat.st_size, stat.st_mtime_ns, stat.st_ino)
    return list(found.values())


def _walk(folder: str, barren: frozenset[str]) -> Iterator[os.DirEntry[str]]:
    """The files with lines below a folder; folders that cannot be read are passed over."""
    waiting = [(folder, 0)]
    while waiting:
        here, depth = waiting.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    if entry.name.endswith(".jsonl"):
                        if entry.is_file(follow_symlinks=False):
                            yield entry
                    elif depth < _DEEPEST and entry.is_dir(follow_symlinks=False) and entry.name not in barren:
                        waiting.append((entry.path, depth + 1))
        except OSError:
            continue
