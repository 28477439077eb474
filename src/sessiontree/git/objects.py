"""Objects of a git repository: look up, read and write blobs and commits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from sessiontree.git import command

_COMMITTER = "sessiontree <sessiontree@localhost>"


def find_object(repository: str, name: str) -> str | None:
    """The id of the object that a revision names; None if it does not exist."""
    # --end-of-options: a name from a session file may begin with a dash.
    arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", name)
    return command.query(repository, f"--git-dir={repository}", *arguments) or None


def read_sizes(root: str, objects: Iterable[str]) -> dict[str, int]:
    """Blob id -> size in bytes; missing objects are left out."""
    wanted = list(dict.fromkeys(objects))
    if not wanted:
        return {}
    found: dict[str, int] = {}
    listing = command.output(root, "cat-file", "--batch-check", data=_lines(wanted)).decode()
    for name, line in zip(wanted, listing.splitlines(), strict=True):
        _, kind, *size = line.split(" ")
        if kind == "blob":
            found[name] = int(size[0])
    return found


def read_blobs(root: str, objects: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Blob id and content, of blobs that exist."""
    wanted = list(dict.fromkeys(objects))
    if not wanted:
        return
    data = command.output(root, "cat-file", "--batch", data=_lines(wanted))
    position = 0
    for name in wanted:
        end = data.index(b"\n", position)
        size = int(data[position:end].split(b" ")[2])
        yield name, data[end + 1 : end + 1 + size]
        position = end + 2 + size


def write_commit(repository: str, tree: str, parents: Sequence[str], message: str) -> str:
    """Write a commit object and return its id; no ref is changed."""
    # Not `git commit-tree`: it fails where no user name is configured, and may sign commits.
    who = f"{_COMMITTER} {int(time.time())} +0000"
    header = [f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}"]
    data = "\n".join([*header, "", message, ""]).encode()
    arguments = ("hash-object", "-t", "commit", "-w", "--stdin")
    return command.repository_output(repository, *arguments, data=data).decode().strip()


def _lines(names: Sequence[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
