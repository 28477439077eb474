"""The undo of actions that write new files: delete them, unless another program has changed them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from msgspec import Struct

from sessiontree.app.actions.contract import ActionPlan, Description, Done
from sessiontree.errors import ConflictError
from sessiontree.stores.atomic_files import sync_folder


class WrittenFile(Struct, frozen=True):
    """A file as it was when it had been written."""

    path: str
    identity: tuple[int, int, int, int]


class RemoveFilesPlan(ActionPlan[list[str]]):
    """Delete files that an action wrote."""

    action = "undo"

    def __init__(self, paths: Iterable[str], what: str, folder: str | None = None) -> None:
        """`what` is the reason, such as "undo export"; `folder` is also removed if that leaves it empty."""
        super().__init__(self._check)
        self._folder = folder
        self._files = [WrittenFile(path, _identity(path)) for path in paths]
        self._what = what

    def describe(self) -> Description:
        paths = [file.path for file in self._files]
        title = f"{self._what}: delete {paths[0]}"
        final = "the files can be written again by repeating the action"
        return Description(self.action, title, tuple(paths[1:]), final=final, data={"paths": paths})

    def _check(self) -> None:
        for file in self._files:
            with contextlib.suppress(FileNotFoundError):
                if _identity(file.path) == file.identity:
                    continue
            raise ConflictError(f"{file.path}: changed since it was written; nothing was deleted")

    def _carry_out(self) -> Done[list[str]]:
        folders: dict[str, None] = {}
        for file in self._files:
            os.unlink(file.path)
            folders[os.path.dirname(file.path)] = None
        if self._folder is not None:
            for parent, _, _ in os.walk(self._folder, topdown=False):
                with contextlib.suppress(OSError):  # another program has written to it
                    os.rmdir(parent)
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                sync_folder(folder)
        return Done([file.path for file in self._files])


def _identity(path: str) -> tuple[int, int, int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
