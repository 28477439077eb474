"""The output of `git status` for a worktree."""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from sessiontree.git import command

# Of a submodule only the commit is compared: to look for changes in it, git would run with the settings in it.
_OPTIONS = ("--porcelain=v2", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty")
_SUBMODULE = b"160000 "


class StatusEntry(Struct, frozen=True):
    """One path of a worktree that differs from its commit."""

    path: bytes
    is_staged: bool = False
    """Whether the index differs from the commit."""
    staged_mode: str = ""
    """The mode in the index; empty if the path was removed from it."""
    staged_object: str = ""
    is_untracked: bool = False
    is_submodule: bool = False
    is_conflict: bool = False
    """Whether the path is part of an unfinished merge."""


def iter_status(root: str) -> Iterator[StatusEntry]:
    """The paths of a worktree that differ from its commit, without ignored ones."""
    for line in filter(None, command.output(root, "status", *_OPTIONS).split(b"\0")):
        match line[:1]:
            case b"1":
                _, states, submodule, _, mode, _, _, object, path = line.split(b" ", 8)
                yield StatusEntry(
                    path,
                    is_staged=states[:1] != b".",
                    staged_mode=mode.decode() if mode.strip(b"0") else "",
                    staged_object=object.decode(),
                    is_submodule=submodule[:1] == b"S",
                )
            case b"u":
                fields = line.split(b" ", 10)
                yield StatusEntry(fields[10], is_submodule=fields[2][:1] == b"S", is_conflict=True)
            case b"?":
                yield StatusEntry(line[2:], is_untracked=True)
            case _:  # headers and, if ever asked for, ignored files
                continue


def iter_submodules(root: str) -> Iterator[bytes]:
    """The paths of the submodules of a worktree."""
    if not os.path.exists(os.path.join(root, ".gitmodules")):  # most have none, and an index can be large
        return
    for line in command.output(root, "ls-files", "--stage", "-z").split(b"\0"):
        if line.startswith(_SUBMODULE):
            yield line.partition(b"\t")[2]
