"""Asking git. It runs without the hooks of the repository and without the variables that would lead it elsewhere."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence

from sessiontree.errors import StoreError

QUIET: tuple[str, ...] = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
if os.name != "nt":  # else git passes over files whose names are harmless here, and says nothing
    QUIET += ("-c", "core.protectNTFS=false")
_SECONDS = 120
_MISLEADING = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"})


def ask(folder: str, *arguments: str) -> str:
    """What git says; empty when it refuses, or is not installed."""
    try:
        done = run(("git", "-C", folder, *QUIET, *arguments))
    except FileNotFoundError:
        return ""
    return os.fsdecode(done.stdout).strip("\n") if done.returncode == 0 else ""


def do(folder: str, *arguments: str, data: bytes = b"", index: str | None = None) -> bytes:
    """What git prints; `StoreError` when it refuses. With `index`, that file is the index."""
    try:
        done = run(("git", "-C", folder, *QUIET, "--no-optional-locks", *arguments), data, index)
    except FileNotFoundError:
        raise StoreError(f"{folder}: git is not installed, or not on the PATH") from None
    if done.returncode:
        verb = next(argument for argument in arguments if not argument.startswith("-"))
        raise StoreError(f"{folder}: git {verb} failed: {os.fsdecode(done.stderr).strip()}")
    return done.stdout


def run(command: Sequence[str], data: bytes = b"", index: str | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run git on the folder that is meant, also from within a hook, where variables name another one."""
    around = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    if index is not None:
        around["GIT_INDEX_FILE"] = index
    try:
        return subprocess.run(  # noqa: S603 - no shell, and always git
            command,
            input=data,
            capture_output=True,
            env=around,
            timeout=_SECONDS,
            check=False,
            process_group=0 if os.name == "posix" else None,  # Ctrl-C is for us: it must not end git in the midst
        )
    except subprocess.TimeoutExpired:
        raise StoreError(f"{command[2]}: git took longer than {_SECONDS} s; it was stopped") from None


class Changed:
    """A path that git lists as changed: what the commit, the index and the worktree have of it."""

    __slots__ = ("is_conflict", "is_submodule", "is_untracked", "path", "staged", "staged_mode", "staged_object")

    def __init__(self, path: bytes, index: str, mode: str, object: str, *, submodule: bool, conflict: bool) -> None:
        self.path = path
        self.staged = index not in (".", "?")
        self.is_untracked = index == "?"
        self.staged_mode = "" if mode.strip("0") == "" else mode
        self.staged_object = object
        self.is_submodule = submodule
        self.is_conflict = conflict


def iter_changed(top: str) -> Iterator[Changed]:
    """Everything in a worktree that is not as its commit has it, but for what is ignored."""
    told = do(
        top,
        "status",
        "--porcelain=v2",
        "-z",
        "--untracked-files=all",
        "--no-renames",
        "--ignore-submodules=none",
    )
    for line in filter(None, told.split(b"\0")):
        match line[:1]:
            case b"1":
                _, states, sub, _, mode, _, _, object, path = line.split(b" ", 8)
                yield Changed(
                    path, chr(states[0]), mode.decode(), object.decode(), submodule=sub[:1] == b"S", conflict=False
                )
            case b"u":
                sub, path = line.split(b" ", 10)[2], line.split(b" ", 10)[10]
                yield Changed(path, ".", "", "", submodule=sub[:1] == b"S", conflict=True)
            case b"?":
                yield Changed(line[2:], "?", "", "", submodule=False, conflict=False)
            case _:
                continue


def sizes(top: str, objects: Iterable[str]) -> dict[str, int]:
    """How many bytes each of some objects has; those that are not there are left out."""
    wanted = list(dict.fromkeys(objects))
    if not wanted:
        return {}
    told = do(top, "cat-file", "--batch-check", data="".join(f"{name}\n" for name in wanted).encode())
    found: dict[str, int] = {}
    for name, line in zip(wanted, told.decode().splitlines(), strict=True):
        _, kind, *size = line.split(" ")
        if kind == "blob":
            found[name] = int(size[0])
    return found


def contents(top: str, objects: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """The bytes of some objects that are there."""
    wanted = list(dict.fromkeys(objects))
    if not wanted:
        return
    told = do(top, "cat-file", "--batch", data="".join(f"{name}\n" for name in wanted).encode())
    at = 0
    for name in wanted:
        end = told.index(b"\n", at)
        size = int(told[at:end].split(b" ")[2])
        yield name, told[end + 1 : end + 1 + size]
        at = end + 2 + size
