"""Files as trees of git: a folder as it is now, how two trees differ, three of them merged, one put into a folder.

Nobody's index is touched. A folder is looked at with an index of our own, which begins as a copy of the folder's, so
that files that did not change are not read. Merging makes objects and nothing else; a folder is written when all is
known.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypeAlias

from sessiontree.core.jsonio import Value
from sessiontree.errors import StoreError, UsageError
from sessiontree.git import command

Kind: TypeAlias = Literal["added", "changed", "removed", "mode", "renamed"]

_PROGRAM = "100755"
_FILES = frozenset({"100644", _PROGRAM})
_REFUSED = 128
"""What git exits with, at least, when it did not try to merge; below that it is the number of conflicts."""
_SUBMODULE = "160000"
_UNTRACKED = ("ls-files", "--others", "--exclude-standard", "-z")
_WHO = "sessiontree <sessiontree@localhost>"


class _Look(Protocol):
    def __call__(self, *arguments: str, data: bytes = b"") -> bytes: ...


class FileChange(Value, frozen=True, omit_defaults=False):
    """What became of a file."""

    path: str
    added: int | None
    """Lines; None for a file that has no lines."""
    removed: int | None
    kind: Kind
    is_repository: bool = False
    """Only which commit it stands at is told; its files are not."""
    was: str | None = None
    """Its path before, if it was renamed."""


class FileClash(Value, frozen=True, omit_defaults=False):
    """A file that cannot be brought together."""

    path: str
    why: str


def in_repository(repository: str, *arguments: str, data: bytes = b"", index: str | None = None) -> bytes:
    """What git says of the objects and refs of a repository, named by its own folder."""
    return command.do(repository, f"--git-dir={repository}", *arguments, data=data, index=index)


def find_object(repository: str, name: str) -> str | None:
    """The id of what a name stands for; None when there is no such thing."""
    return (
        command.ask(repository, f"--git-dir={repository}", "rev-parse", "--verify", "--quiet", "--end-of-options", name)
        or None
    )


@contextlib.contextmanager
def own_index() -> Iterator[str]:
    """The path of an index that is nobody's."""
    with tempfile.TemporaryDirectory(prefix="sessiontree-") as folder:
        yield os.path.join(folder, "index")


# A folder as a tree


def tree_of(top: str, like: str, repository: str | None = None, *, most: int | None = None) -> str:
    """All files of a worktree but those that are ignored, as a tree. `like` is a tree or commit that is near to it.

    `repository` is for a folder that git has forgotten is one of its worktrees. `most` is how many bytes may be new.
    """
    with _looking(top, like, repository) as look:
        told = look("diff-files", "--name-only", "-z", "--ignore-submodules=all") + look(*_UNTRACKED)
        paths = [path for path in dict.fromkeys(told.split(b"\0")) if path and not path.endswith(b"/")]
        if most is not None:
            _check_size(top, paths, most)
        look("update-index", "--add", "--remove", "--replace", "-z", "--stdin", data=_listed(paths))
        return look("write-tree").decode().strip()


def _check_size(top: str, paths: Sequence[bytes], most: int) -> None:
    """Git would take in whatever is there, and every copy would have it."""
    sizes: dict[bytes, int] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            sizes[path] = os.lstat(os.path.join(os.fsencode(top), path)).st_size
    if sum(sizes.values()) > most:
        largest = max(sizes, key=sizes.__getitem__)
        raise UsageError(
            f"{top}: {sum(sizes.values()):,} bytes are not committed, and each working copy would have them (at most "
            f"{most:,}); commit or ignore the large ones, as {_name(largest)} ({sizes[largest]:,} bytes)"
        )


def inner_repositories(top: str, like: str, repository: str | None = None) -> list[str]:
    """Folders of a worktree that are repositories of their own, with something in them: no tree of it can hold that."""
    with _looking(top, like, repository) as look:
        untracked = look(*_UNTRACKED).split(b"\0")
        staged = look("ls-files", "--stage", "-z").split(b"\0")
        begun = look("ls-tree", "-r", "-z", like).split(b"\0")
    found = {path.rstrip(b"/") for path in untracked if path.endswith(b"/")}
    tracked: set[bytes] = set()
    for line in (*staged, *begun):
        about, _, path = line.partition(b"\t")
        if about.startswith(_SUBMODULE.encode()):
            found.add(path)
        else:
            tracked.update(_above(path))
    found.update(path for path in tracked if os.path.lexists(os.path.join(os.fsencode(top), path, b".git")))
    return sorted(os.fsdecode(path) for path in found if _has_content(os.path.join(os.fsencode(top), path)))


def _has_content(folder: bytes) -> bool:
    try:
        with os.scandir(folder) as inside:
            return next(inside, None) is not None
    except OSError:
        return False


@contextlib.contextmanager
def _looking(top: str, like: str, repository: str | None) -> Iterator[_Look]:
    """Git in a worktree, with an index of our own."""
    where = () if repository is None else (f"--git-dir={repository}", f"--work-tree={top}")
    with own_index() as index:
        theirs = "" if where else command.ask(top, "rev-parse", "--path-format=absolute", "--git-path", "index")
        if theirs and os.path.exists(theirs):
            shutil.copy2(theirs, index)  # with its time, by which git knows what may have changed since
        else:
            command.do(top, *where, "read-tree", like, index=index)

        def look(*arguments: str, data: bytes = b"") -> bytes:
            return command.do(top, *where, *arguments, data=data, index=index)

        _unhide(top, look)
        yield look


def _unhide(top: str, look: _Look) -> None:
    """Let git look at files again that the user told it not to look at; they may have changed like any other.

    Those that are not there at all are meant to be absent, as in a sparse checkout.
    """
    hidden = [line[2:] for line in look("ls-files", "-v", "-z").split(b"\0") if line[:1].islower() or line[:1] == b"S"]
    there = [path for path in hidden if os.path.lexists(os.path.join(os.fsencode(top), path))]
    for flag in ("--no-assume-unchanged", "--no-skip-worktree") if there else ():
        look("update-index", flag, "-z", "--stdin", data=_listed(there))


def commit(repository: str, tree: str, parents: Sequence[str], message: str) -> str:
    """A commit of ours. It needs no name to be configured, and runs nothing."""
    who = f"{_WHO} {int(time.time())} +0000"
    lines = [
        f"tree {tree}",
        *(f"parent {one}" for one in parents),
        f"author {who}",
        f"committer {who}",
        "",
        message,
        "",
    ]
    return (
        in_repository(repository, "hash-object", "-t", "commit", "-w", "--stdin", data="\n".join(lines).encode())
        .decode()
        .strip()
    )


# Differences


def diff_text(repository: str, old: str, new: str, *, only_counts: bool = False) -> str:
    """What git says differs, with the lines that were added and removed."""
    told = in_repository(
        repository,
        "diff-tree",
        "-r",
        "-M",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--stat=100" if only_counts else "--patch",
        old,
        new,
    )
    return told.decode("utf-8", "replace")


def changed_files(repository: str, old: str, new: str) -> list[FileChange]:
    """The files that differ, by path. One that was renamed is one file, with the lines that differ in it."""
    counts, renamed = _counted(repository, old, new)
    gone = set(renamed.values())
    found = []
    for one in iter_differing(repository, old, new):
        if one.path in gone and one.kind == "removed":
            continue
        was = renamed.get(one.path)
        kind: Kind = one.kind if was is None else "renamed"
        lines = counts.get(one.path, (0, 0))
        found.append(FileChange(_name(one.path), *lines, kind, one.is_submodule, None if was is None else _name(was)))
    return found


def _counted(
    repository: str, old: str, new: str
) -> tuple[dict[bytes, tuple[int | None, int | None]], dict[bytes, bytes]]:
    """The lines that were added to and removed from each file, and the former paths of those that were renamed."""
    options = ("--numstat", "-r", "-z", "-M", "--no-ext-diff", "--no-textconv")
    counts: dict[bytes, tuple[int | None, int | None]] = {}
    renamed: dict[bytes, bytes] = {}
    parts = iter(in_repository(repository, "diff-tree", *options, old, new).split(b"\0"))
    for part in parts:
        if part:
            added, removed, path = part.split(b"\t", 2)
            if not path:
                was, path = next(parts), next(parts)
                renamed[path] = was
            counts[path] = (None, None) if added == b"-" else (int(added), int(removed))
    return counts, renamed


class Differing:
    """A path at which two trees differ; a mode of zeros is that of nothing."""

    __slots__ = ("new_mode", "new_object", "old_mode", "old_object", "path")

    def __init__(self, path: bytes, old_mode: str, new_mode: str, old_object: str, new_object: str) -> None:
        self.path = path
        self.old_mode, self.new_mode = old_mode, new_mode
        self.old_object, self.new_object = old_object, new_object

    @property
    def kind(self) -> Kind:
        if not self.old_mode.strip("0"):
            return "added"
        if not self.new_mode.strip("0"):
            return "removed"
        return "mode" if self.old_object == self.new_object else "changed"

    @property
    def is_submodule(self) -> bool:
        return _SUBMODULE in (self.old_mode, self.new_mode)


def iter_differing(repository: str, old: str, new: str) -> Iterator[Differing]:
    told = in_repository(repository, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new)
    parts = iter(told.split(b"\0"))
    for about, path in zip(parts, parts, strict=False):
        old_mode, new_mode, old_object, new_object, _ = about.decode().lstrip(":").split(" ")
        yield Differing(path, old_mode, new_mode, old_object, new_object)


# Three trees


def merge_trees(repository: str, base: str, ours: str, theirs: str) -> tuple[str, list[FileClash]]:
    """What both sides made of a tree; or our side as it was, and the files in which they are at odds."""
    of_us = {one.path: one for one in iter_differing(repository, base, ours)}
    removed: list[bytes] = []
    written: list[bytes] = []
    clashes: list[FileClash] = []
    folders = {above for path, one in of_us.items() if one.kind == "added" for above in _above(path)}
    for one in iter_differing(repository, base, theirs):
        mine = of_us.get(one.path)
        if mine is not None and (mine.new_mode, mine.new_object) == (one.new_mode, one.new_object):
            continue
        if mine is None and one.kind == "removed":
            removed.append(f"0 {one.new_object}\t".encode() + one.path + b"\0")
            continue
        if mine is not None:
            merged = _merge_file(repository, mine, one)
        elif one.path in folders or any(above in of_us and of_us[above].kind == "added" for above in _above(one.path)):
            merged = "is a file on one side, and a folder on the other"
        else:
            merged = (one.new_mode, one.new_object)
        if isinstance(merged, str):
            clashes.append(FileClash(_name(one.path), merged))
        else:
            written.append(f"{merged[0]} {merged[1]}\t".encode() + one.path + b"\0")
    if clashes:
        return ours, clashes
    with own_index() as index:
        in_repository(repository, "read-tree", ours, index=index)
        lines = b"".join([*removed, *written])
        in_repository(repository, "update-index", "-z", "--index-info", data=lines, index=index)
        return in_repository(repository, "write-tree", index=index).decode().strip(), []


def _above(path: bytes) -> Iterator[bytes]:
    """The folders that a path lies in."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def _name(path: bytes) -> str:
    """A path as a text, whatever bytes it has."""
    return path.decode("utf-8", "replace")


def _merge_file(repository: str, ours: Differing, theirs: Differing) -> tuple[str, str] | str:
    """Mode and object of a file that both sides changed, or why there is none."""
    if "added" in (ours.kind, theirs.kind):
        return "was added on both sides, each with its own content"
    if "removed" in (ours.kind, theirs.kind):
        return "was changed on one side, and removed on the other"
    if not {ours.old_mode, ours.new_mode, theirs.new_mode} <= _FILES:
        return "is a link or a repository of its own, and was changed on both sides"
    mode = theirs.new_mode if ours.new_mode == ours.old_mode else ours.new_mode
    with tempfile.TemporaryDirectory(prefix="sessiontree-") as folder:
        names: list[str] = []
        for name in (ours.new_object, ours.old_object, theirs.new_object):
            names.append(os.path.join(folder, str(len(names))))
            with open(names[-1], "wb") as file:
                file.write(in_repository(repository, "cat-file", "blob", name))
        done = command.run(("git", "-C", folder, *command.QUIET, "merge-file", "-p", "-q", *names))
    if done.returncode >= _REFUSED:
        return "is binary, and was changed on both sides"
    if done.returncode:
        return "was changed on both sides, in the same place"
    return mode, in_repository(repository, "hash-object", "-w", "--stdin", data=done.stdout).decode().strip()


# A tree into a folder


def find_obstacles(top: str, repository: str, old: str, new: str) -> list[FileClash]:
    """What stands in a folder, unknown to its tree `old`, where `new` has a file: what git ignores, above all."""
    differing = [one for one in iter_differing(repository, old, new) if not one.is_submodule]
    going = {os.fsdecode(one.path) for one in differing if one.kind == "removed"}
    found: list[FileClash] = []
    for one in differing:
        if one.kind != "added":
            continue
        path = os.fsdecode(one.path)
        why = _obstacle(top, path, going)
        if why is not None:
            found.append(FileClash(_name(one.path), why))
    return found


def _obstacle(top: str, path: str, going: set[str]) -> str | None:
    *folders, _ = path.split("/")
    for depth in range(1, len(folders) + 1):
        above = "/".join(folders[:depth])
        full = os.path.join(top, above)
        if os.path.lexists(full) and (os.path.islink(full) or not os.path.isdir(full)) and above not in going:
            return f"{above} is no folder in the project, and git ignores it"
    full = os.path.join(top, path)
    if not os.path.lexists(full):
        return None
    if os.path.isdir(full) and not os.path.islink(full):
        inside = (os.path.join(at, name) for at, _, names in os.walk(full) for name in names)
        if all(os.path.relpath(one, top) in going for one in inside):
            return None
        return "a folder with ignored files is in its place"
    return "is there already, and git ignores it"


def put_tree(top: str, repository: str, old: str, new: str) -> None:
    """Make a folder that is as `old` be as `new`. When that fails in the midst, it is made as it was."""
    try:
        _write(top, repository, old, new)
    except (OSError, StoreError) as error:
        _write(top, repository, new, old)
        raise StoreError(f"{top}: the files could not be written, and are as they were: {error}") from error


def _write(top: str, repository: str, old: str, new: str) -> None:
    """Whoever is killed in the midst leaves each file as it was or as it is to be, so that it can be done again."""
    differing = [one for one in iter_differing(repository, old, new) if not one.is_submodule]
    written = [one for one in differing if one.kind != "removed"]
    with _beside(top) as folder:
        with own_index() as index:
            in_repository(repository, "read-tree", new, index=index)
            names = _listed(one.path for one in written)
            prefix = f"--prefix={folder}{os.sep}"
            command.do(top, "checkout-index", "-f", "-q", prefix, "-z", "--stdin", data=names, index=index)
        for one in written:
            _finish(os.path.join(os.fsencode(folder), one.path), one, _permissions(top, one.path))
        for one in differing:
            if one.kind == "removed":
                _remove(top, os.fsdecode(one.path))
        for one in written:
            _put(os.path.join(os.fsencode(folder), one.path), os.path.join(os.fsencode(top), one.path))


@contextlib.contextmanager
def _beside(top: str) -> Iterator[str]:
    """A folder from which files can be moved into another one: among what git keeps of it, if that is on one disk."""
    kept = command.ask(top, "rev-parse", "--path-format=absolute", "--git-dir")
    is_near = bool(kept) and os.stat(kept).st_dev == os.stat(top).st_dev
    with tempfile.TemporaryDirectory(prefix=".sessiontree-", dir=kept if is_near else top) as folder:
        yield folder


def _finish(path: bytes, one: Differing, had: int | None) -> None:
    """Give a new file the permissions of the one it replaces, and see that it is on the disk."""
    if one.new_mode not in _FILES:
        return
    if had is not None:  # git makes a file anew, readable for all
        may_run = (had & 0o444) >> 2 if one.new_mode == _PROGRAM else 0
        os.chmod(path, (had & 0o666) | may_run)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _put(path: bytes, at: bytes) -> None:
    """Move a file to its place. What stands in its way has nothing in it that anyone wants."""
    os.makedirs(os.path.dirname(at), exist_ok=True)
    if os.path.isdir(at) and not os.path.islink(at):
        shutil.rmtree(at)
    os.replace(path, at)


def _permissions(top: str, path: bytes) -> int | None:
    """Of an ordinary file; None where there is none."""
    try:
        about = os.lstat(os.path.join(os.fsencode(top), path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.S_IMODE(about.st_mode) if stat.S_ISREG(about.st_mode) else None


def _listed(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _remove(top: str, path: str) -> None:
    """Take a file away, and the folders that are empty then."""
    full = os.path.join(top, path)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(full)
    above = os.path.dirname(full)
    while above != top:
        try:
            os.rmdir(above)
        except OSError:  # something is in it
            return
        above = os.path.dirname(above)
