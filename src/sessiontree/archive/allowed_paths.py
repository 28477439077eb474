"""Path safety: only files below the folders where sessions are kept may be moved, rewritten or deleted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from sessiontree.errors import NotFoundError, UsageError


class AllowedPaths:
    """Checks paths against the session roots.

    The paths come from the archive's catalog, from a sync folder and from the command line, so none is trusted. Links
    in the folder part are resolved before the check; the last component must not be a link itself.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = tuple(os.path.realpath(os.path.expanduser(root)) for root in roots)

    def check(self, path: str) -> str:
        """Return the real path of a file below a root, which need not exist; `UsageError` for any other path."""
        folder, name = os.path.split(path)
        if "\x00" in path or name in ("", ".", ".."):
            raise UsageError(f"{path!r} cannot be a session file")
        real = os.path.join(os.path.realpath(folder or "."), name)
        if self.find_root(real) is None:
            roots = ", ".join(self.roots) or "none"
            raise UsageError(f"{real}: outside the session folders, so it was not touched (folders: {roots})")
        if os.path.islink(real):
            raise UsageError(f"{real}: a symbolic link; only regular files are changed")
        return real

    def find_root(self, real: str) -> str | None:
        """The innermost root that contains a real path."""
        found = [root for root in self.roots if real.startswith(root.rstrip(os.sep) + os.sep)]
        return max(found, key=len, default=None)

    def check_file(self, path: str) -> str:
        """Like `check`, for a regular file that exists."""
        real = self.check(path)
        try:
            mode = os.lstat(real).st_mode
        except OSError as error:
            raise NotFoundError(f"{real}: {error.strerror}") from None
        if not stat.S_ISREG(mode):
            raise UsageError(f"{real}: not a regular file")
        return real


def session_folder(path: str) -> str:
    """The folder with sub-agents and spilled output of a session file: its path without the extension."""
    return os.path.splitext(path)[0]


def iter_related_files(path: str) -> Iterator[str]:
    """The regular files in the folder of a session file; links are neither followed nor listed."""
    top = session_folder(path)
    if os.path.islink(top):  # `os.walk` would follow it: the files elsewhere would be archived or deleted
        return
    for folder, folders, names in os.walk(top, followlinks=False):
        folders.sort()
        for name in sorted(names):
            found = os.path.join(folder, name)
            if stat.S_ISREG(os.lstat(found).st_mode):
                yield found
