"""Which files may be moved, rewritten or deleted: those below the folders where sessions are kept, and no others."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from sessiontree.errors import NotFoundError, UsageError


class Bounds:
    """The known roots. A path is inside when its folder is, with every link in it followed."""

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = tuple(os.path.realpath(os.path.expanduser(root)) for root in roots)

    def check(self, path: str) -> str:
        """The real path of a file that is, or shall be, below a root; `UsageError` for any other."""
        folder, name = os.path.split(path)
        if "\x00" in path or name in ("", ".", ".."):
            raise UsageError(f"{path!r} cannot be a session file")
        real = os.path.join(os.path.realpath(folder or "."), name)
        if self.root_of(real) is None:
            known = ", ".join(self.roots) or "none"
            raise UsageError(f"{real}: lies outside the folders where sessions are kept ({known}); it was not touched")
        if os.path.islink(real):
            raise UsageError(f"{real}: is a symbolic link; only real files are tidied")
        return real

    def root_of(self, real: str) -> str | None:
        """The innermost root that a real path lies below."""
        found = [root for root in self.roots if real.startswith(root.rstrip(os.sep) + os.sep)]
        return max(found, key=len, default=None)

    def check_file(self, path: str) -> str:
        """The real path of a regular file that is there, below a root."""
        real = self.check(path)
        try:
            mode = os.lstat(real).st_mode
        except OSError as error:
            raise NotFoundError(f"{real}: {error.strerror}") from None
        if not stat.S_ISREG(mode):
            raise UsageError(f"{real}: is no regular file; only those are tidied")
        return real


def folder_of(path: str) -> str:
    """The folder of sub-agents and spilled output that belongs to a session file: it has the file's name."""
    return os.path.splitext(path)[0]


def iter_beside(path: str) -> Iterator[str]:
    """The regular files in the folder that belongs to a session file; links are neither followed nor given."""
    for folder, folders, names in os.walk(folder_of(path), followlinks=False):
        folders.sort()
        for name in sorted(names):
            found = os.path.join(folder, name)
            if stat.S_ISREG(os.lstat(found).st_mode):
                yield found
