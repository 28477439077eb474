"""The workspace: the project and added folders, where tools may read and write.

A path from a model is unchecked text. `Workspace.resolve` resolves `..`, `~` and every symbolic link first, and then
decides whether the result is inside. `stores.safe_files` opens the resolved path without following links: one that is
created between the check and the access causes an error. Paths are never passed to programs as arguments.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from sessiontree.errors import PathError
from sessiontree.git import command as git
from sessiontree.secrets.names import has_secret_name

_GUARDED = frozenset({".git", "git~1", ".hg", ".svn", ".ssh", ".gnupg"})
"""Folders in which a changed file can run programs or grant access. `git~1` is the short name of `.git` on Windows."""


class ResolvedPath(Struct, frozen=True):
    """A path with its links resolved, and what tools may do there."""

    path: str
    """Absolute, with every link resolved."""
    shown: str
    """For display: relative to the project where it is inside."""
    is_inside: bool
    """Whether it is in the project or an added folder."""
    is_readable: bool = False
    """Whether it is inside, or in a folder that may be read without approval."""
    is_guarded: bool = False
    """Whether a change could run programs later: git's own files and settings, keys, our home folder."""
    is_secret: bool = False
    """Whether its name, or that of a link to it, indicates secrets."""


class Workspace:
    """The project and the folders added to it."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        added: Sequence[str | os.PathLike[str]] = (),
        guarded: Sequence[str] = (),
        readable: Sequence[str] = (),
        unguarded: Sequence[str] = (),
    ) -> None:
        """`guarded`: more folders where changes always need approval, such as the home folder of sessions.

        `readable`: folders outside that may be read without approval, such as the one with command outputs.
        `unguarded`: exceptions inside guarded folders, such as worktrees in our home folder.
        """
        self.root = _real(os.fspath(root))
        self.added = tuple(_real(os.fspath(folder)) for folder in added)
        self._readable = tuple(_real(folder) for folder in readable)
        self._guarded = tuple(_real(folder) for folder in guarded)
        self._unguarded = tuple(_real(folder) for folder in unguarded)

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.root, *self.added)

    @functools.cached_property
    def _git_settings(self) -> tuple[str, ...]:
        """The user's own settings of git, which may start programs: they are inside if the project is a home folder."""
        return tuple(_real(file) for file in git.user_files(os.sep))

    def resolve(self, text: str) -> ResolvedPath:
        """Resolve a path, whether or not it exists; `PathError` if it is not a valid path."""
        if not text:
            raise PathError("the path is empty")
        if "\0" in text:
            raise PathError("the path contains a NUL character, which is not allowed in paths")
        expanded = os.path.expanduser(text) if text == "~" or text.startswith("~/") else text
        try:
            path = os.path.realpath(os.path.join(self.root, expanded))
            os.fsencode(path)
        except (OSError, ValueError) as error:  # ValueError: a character that is not allowed in file names
            raise PathError(f"{text!r} is not a usable path: {error}") from None
        resolved = self.classify(path)
        # The name of a link counts as well: `.env` may lead to a file of another name.
        named = os.path.normpath(os.path.join(self.root, expanded))
        return msgspec.structs.replace(resolved, is_secret=resolved.is_secret or has_secret_name(named))

    def classify(self, path: str) -> ResolvedPath:
        """Classify a path whose links are resolved."""
        is_inside = any(is_within(path, folder) for folder in self.folders)
        shown = os.path.relpath(path, self.root) if is_within(path, self.root) else path
        is_guarded = any(part.lower() in _GUARDED for part in path.split(os.sep)) or (
            any(is_within(path, folder) for folder in self._guarded)
            and not any(is_within(path, folder) for folder in self._unguarded)
        )
        is_guarded = is_guarded or (is_inside and any(is_within(path, file) for file in self._git_settings))
        is_of_git = is_inside and self._is_in_git_folder(path)
        is_secret = has_secret_name(path) or (is_of_git and os.path.basename(path) == "config")
        is_readable = is_inside or any(is_within(path, folder) for folder in self._readable)
        return ResolvedPath(path, shown, is_inside, is_readable, is_guarded or is_of_git, is_secret)

    def _is_in_git_folder(self, path: str) -> bool:
        """Whether a path is in a folder with git's own files that is not called `.git`, such as `.bare`."""
        folder = path
        while folder not in self.folders and folder != os.sep:
            folder = os.path.dirname(folder)
            if os.path.lexists(os.path.join(folder, ".git")):
                return False  # a worktree, which may be inside the folder with git's files
            if all(os.path.exists(os.path.join(folder, name)) for name in ("HEAD", "objects", "refs")):
                return True
        return False


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder or is in it; both must be absolute and resolved."""
    return path == folder or path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _real(folder: str) -> str:
    return os.path.realpath(os.path.expanduser(folder))
