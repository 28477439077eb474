"""Complete `@file` in a prompt by fuzzy matching of the project's files."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sessiontree.app.session_list import match_word
from sessiontree.errors import SessionTreeError
from sessiontree.git.command import output

_MAX_FILES = 20_000
_SHOWN = 8
_HIDDEN = frozenset({".git", "node_modules", ".venv", "__pycache__", ".mypy_cache"})


class ProjectFiles:
    """The files of a folder: those that git knows or would add, else all except the usual caches."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files: Sequence[str] = ()

    def load(self) -> None:
        """Read the names of all files. May take long: call it in a thread."""
        try:
            listing = output(self._folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
            names = [os.fsdecode(name) for name in listing.split(b"\0") if name]
        except (SessionTreeError, OSError):
            names = list(self._walk())
        self._files = tuple(dict.fromkeys(names))[:_MAX_FILES]

    def _walk(self) -> Sequence[str]:
        found: list[str] = []
        for folder, folders, files in os.walk(self._folder):
            folders[:] = sorted(name for name in folders if name not in _HIDDEN)
            relative = os.path.relpath(folder, self._folder)
            found += [name if relative == "." else os.path.join(relative, name) for name in sorted(files)]
            if len(found) > _MAX_FILES:
                break
        return found

    def complete(self, typed: str) -> list[str]:
        """The files that match best."""
        word = typed.lower()
        if not word:
            return list(self._files[:_SHOWN])
        ranked = [(match_word(word, name.lower()), name) for name in self._files]
        found = sorted((pair for pair in ranked if pair[0] > 0), key=lambda pair: (-pair[0], len(pair[1]), pair[1]))
        return [name for _, name in found[:_SHOWN]]
