"""Scan the roots for files that may contain sessions. Nothing is opened.

Links below a root are not followed: only files inside the agents' folders are listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from sessiontree.library.roots import Root

_MAX_DEPTH = 12
_LOG = "-wal"
"""Ending of the write-ahead log of an SQLite database, which contains its latest changes."""


class Found(Struct, frozen=True, gc=False):
    """A file below a root. Its dialect decides whether it contains sessions."""

    path: str
    root: Root
    size: int
    modified: int
    """Modification time in nanoseconds since 1970."""
    inode: int

    @property
    def stamp(self) -> tuple[int, int, int]:
        return self.size, self.modified, self.inode

    @property
    def relative(self) -> str:
        return self.path[len(self.root.folder.rstrip("/")) + 1 :]


def find_files(roots: Sequence[Root], skipped: list[str] | None = None) -> list[Found]:
    """Every file with a name that matters to a root's dialects, each once, even if one root is inside another.

    Folders that cannot be read are added to `skipped`.
    """
    found: dict[str, Found] = {}
    logs: list[os.DirEntry[str]] = []
    skipped = [] if skipped is None else skipped
    for root in roots:
        for entry in _walk(root, skipped):
            path = entry.path
            if path in found:
                continue
            if path.endswith(_LOG):
                logs.append(entry)
                continue
            try:
                stat = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # deleted meanwhile
            found[path] = Found(path, root, stat.st_size, stat.st_mtime_ns, stat.st_ino)
    for log in logs:
        _add_log(found, log)
    return list(found.values())


def _walk(root: Root, skipped: list[str]) -> Iterator[os.DirEntry[str]]:
    """Files with such names, and logs of databases."""
    waiting = [(root.folder, 0)]
    while waiting:
        here, depth = waiting.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    if entry.name.endswith(root.names):
                        if entry.is_file(follow_symlinks=False):
                            yield entry
                    elif entry.name.endswith(_LOG):
                        yield entry
                    elif depth < _MAX_DEPTH and entry.is_dir(follow_symlinks=False) and entry.name not in root.barren:
                        waiting.append((entry.path, depth + 1))
        except (FileNotFoundError, NotADirectoryError):
            continue  # an agent that was never used, or deleted meanwhile
        except OSError:
            skipped.append(here)


def _add_log(found: dict[str, Found], log: os.DirEntry[str]) -> None:
    """Count a log as a part of its database, which itself changes only when the log is written back to it."""
    file = found.get(log.path.removesuffix(_LOG))
    if file is None:
        return
    try:
        stat = log.stat(follow_symlinks=False)
    except OSError:
        return  # written back meanwhile
    found[file.path] = msgspec.structs.replace(
        file, size=file.size + stat.st_size, modified=max(file.modified, stat.st_mtime_ns)
    )
