"""Where tools may go: the project and the folders added to it, and files that are opened without being led astray.

A path from a model is text that nobody checked. `Workspace.place` resolves `..`, `~` and every symbolic
link are resolved first, and only then it is asked whether that is inside. What is opened afterwards is opened component
by component from the root of the file system, following no link: whoever puts a link into the way between the question
and the deed gets an error, not a file. Paths are never handed to a program as arguments, so `-rf` is only a name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct

from sessiontree.errors import PathError
from sessiontree.secrets.names import has_secret_name

_GUARDED = frozenset({".git", "git~1", ".hg", ".svn", ".ssh", ".gnupg"})
"""Folders in which a changed file can make programs run, or open doors."""


class ResolvedPath(Struct, frozen=True):
    """Where a path leads."""

    path: str
    """Absolute, with every link resolved."""
    shown: str
    """For people and models: from the project, where it is inside."""
    is_inside: bool
    """Whether it is in the project or an added folder."""
    is_readable: bool = False
    """Whether it is inside, or in a folder that may be read without asking."""
    is_guarded: bool = False
    """Whether a change there could make programs run later: git's own files, keys, our own home folder."""
    is_secret: bool = False
    """Whether its name says that it holds secrets."""


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
        """`guarded` names more folders in which nothing is changed without asking, as the home folder of sessions.

        `readable` names folders outside that may be read without asking, as the one with the outputs of commands.
        `unguarded` names folders inside guarded ones that are as free as any other, as working copies in our home.
        """
        self.root = _real(os.fspath(root))
        self.added = tuple(_real(os.fspath(folder)) for folder in added)
        self._readable = tuple(_real(folder) for folder in readable)
        self._guarded = tuple(_real(folder) for folder in guarded)
        self._unguarded = tuple(_real(folder) for folder in unguarded)

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.root, *self.added)

    def place(self, text: str) -> ResolvedPath:
        """Where a path leads, whether or not something is there."""
        if not text:
            raise PathError("the path is empty")
        if "\0" in text:
            raise PathError("the path has a NUL character in it, which no path can have")
        expanded = os.path.expanduser(text) if text == "~" or text.startswith("~/") else text
        try:
            path = os.path.realpath(os.path.join(self.root, expanded))
            os.fsencode(path)
        except (OSError, ValueError) as error:  # ValueError: a character that no file name can have
            raise PathError(f"{text!r} is no path that can be used: {error}") from None
        return self.place_of(path)

    def place_of(self, path: str) -> ResolvedPath:
        """What is to be said of a path whose links are resolved."""
        is_inside = any(is_within(path, folder) for folder in self.folders)
        shown = os.path.relpath(path, self.root) if is_within(path, self.root) else path
        is_guarded = any(part.lower() in _GUARDED for part in path.split(os.sep)) or (
            any(is_within(path, folder) for folder in self._guarded)
            and not any(is_within(path, folder) for folder in self._unguarded)
        )
        is_readable = is_inside or any(is_within(path, folder) for folder in self._readable)
        return ResolvedPath(path, shown, is_inside, is_readable, is_guarded, has_secret_name(path))


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it; both absolute and resolved."""
    return path == folder or path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _real(folder: str) -> str:
    return os.path.realpath(os.path.expanduser(folder))
