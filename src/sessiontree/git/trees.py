"""Worktree contents as git trees: write a folder as a tree, diff two trees, merge three, check one out.

The user's index is never changed: each operation works on a copy of it. A merge only writes objects; a folder is
written once the whole outcome is known.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from sessiontree.core.jsonio import Value
from sessiontree.errors import StoreError, UsageError
from sessiontree.git import command
from sessiontree.git.restore_files import remove_empty_parents

ChangeKind: TypeAlias = Literal["added", "changed", "removed", "mode", "renamed"]

_EXECUTABLE = "100755"
_REGULAR_FILES = frozenset({"100644", _EXECUTABLE})
_SUBMODULE = "160000"
_MERGE_FAILED = 128
"""From this exit status on `git merge-file` did not try; below it is the number of conflicts."""
_UNTRACKED = ("ls-files", "--others", "--exclude-standard", "-z")
_EXACT_DIFF = ("--no-color", "--no-ext-diff", "--no-textconv")
"""Options of every diff: the user's settings and programs must not change its format."""


class FileChange(Value, frozen=True, omit_defaults=False):
    """One file of a diff, with line counts."""

    path: str
    added: int | None
    """Added lines; None for a binary file."""
    removed: int | None
    kind: ChangeKind
    is_repository: bool = False
    """A submodule: only its commit is compared, not its files."""
    was: str | None = None
    """The former path of a renamed file."""


class FileConflict(Value, frozen=True, omit_defaults=False):
    """A file that could not be merged."""

    path: str
    why: str


class DiffEntry(Struct, frozen=True):
    """One path that differs between two trees; a mode of zeros means that it is absent."""

    path: bytes
    old_mode: str
    new_mode: str
    old_object: str
    new_object: str

    @property
    def kind(self) -> ChangeKind:
        if not self.old_mode.strip("0"):
            return "added"
        if not self.new_mode.strip("0"):
            return "removed"
        return "mode" if self.old_object == self.new_object else "changed"

    @property
    def is_submodule(self) -> bool:
        return _SUBMODULE in (self.old_mode, self.new_mode)


class _IndexedGit(Protocol):
    def __call__(self, *arguments: str, data: bytes = b"") -> bytes: ...


@contextlib.contextmanager
def temporary_index() -> Iterator[str]:
    """The path of a new index file."""
    with tempfile.TemporaryDirectory(prefix="sessiontree-") as folder:
        yield os.path.join(folder, "index")


# A folder as a tree


def write_tree(root: str, base: str, repository: str | None = None, *, max_bytes: int | None = None) -> str:
    """Write all files of a worktree except ignored ones as a tree, and return its id.

    `base` is a tree or commit close to it. `repository` is given for a folder that git no longer knows as a worktree.
    `max_bytes` limits the size of changed and untracked files.
    """
    with _private_index(root, base, repository) as git:
        listing = git("diff-files", "--name-only", "-z", "--ignore-submodules=all") + git(*_UNTRACKED)
        # A path with a slash at its end is an untracked repository, whose files a tree cannot hold.
        paths = [path for path in dict.fromkeys(listing.split(b"\0")) if path and not path.endswith(b"/")]
        if max_bytes is not None:
            _check_size(root, paths, max_bytes)
        # --replace: a file can be in the place of a folder that the index still has, or the other way round.
        git("update-index", "--add", "--remove", "--replace", "-z", "--stdin", data=_join(paths))
        return git("write-tree").decode().strip()


def _check_size(root: str, paths: Sequence[bytes], max_bytes: int) -> None:
    sizes: dict[bytes, int] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            sizes[path] = os.lstat(os.path.join(os.fsencode(root), path)).st_size
    total = sum(sizes.values())
    if total > max_bytes:
        largest = max(sizes, key=sizes.__getitem__)
        raise UsageError(
            f"{root}: {total:,} bytes are not committed, and every worktree would copy them (limit {max_bytes:,}); "
            f"commit or ignore large files such as {_text(largest)} ({sizes[largest]:,} bytes)"
        )


def find_nested_repositories(root: str, base: str, repository: str | None = None) -> list[str]:
    """Folders of a worktree that are non-empty repositories themselves: a tree cannot hold their files."""
    with _private_index(root, base, repository) as git:
        untracked = git(*_UNTRACKED).split(b"\0")
        staged = git("ls-files", "--stage", "-z").split(b"\0")
        committed = git("ls-tree", "-r", "-z", base).split(b"\0")
    found = {path.rstrip(b"/") for path in untracked if path.endswith(b"/")}
    folders: set[bytes] = set()
    for line in (*staged, *committed):
        description, _, path = line.partition(b"\t")
        if description.startswith(_SUBMODULE.encode()):
            found.add(path)
        else:
            folders.update(_parents(path))
    # `git init` in a folder with tracked files makes a repository that git does not list as untracked.
    found.update(path for path in folders if os.path.lexists(os.path.join(os.fsencode(root), path, b".git")))
    return sorted(os.fsdecode(path) for path in found if _has_files(os.path.join(os.fsencode(root), path)))


def _has_files(folder: bytes) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


@contextlib.contextmanager
def _private_index(root: str, base: str, repository: str | None) -> Iterator[_IndexedGit]:
    """Git in a worktree, with a copy of its index."""
    location = () if repository is None else (f"--git-dir={repository}", f"--work-tree={root}")
    with temporary_index() as index:
        original = "" if location else command.query(root, "rev-parse", "--path-format=absolute", "--git-path", "index")
        if original and os.path.exists(original):
            # With its mtime: git compares it with those of files to decide which ones it has to read again.
            shutil.copy2(original, index)
        else:
            command.output(root, *location, "read-tree", base, index=index)

        def git(*arguments: str, data: bytes = b"") -> bytes:
            return command.output(root, *location, *arguments, data=data, index=index)

        _clear_hidden_flags(root, git)
        yield git


def _clear_hidden_flags(root: str, git: _IndexedGit) -> None:
    """Drop assume-unchanged and skip-worktree in the private index: those files may have changed like any other."""
    listing = git("ls-files", "-v", "-z").split(b"\0")
    hidden = [line[2:] for line in listing if line[:1].islower() or line[:1] == b"S"]
    # Hidden files that do not exist are absent on purpose, as in a sparse checkout: they keep their flags.
    existing = [path for path in hidden if os.path.lexists(os.path.join(os.fsencode(root), path))]
    for flag in ("--no-assume-unchanged", "--no-skip-worktree") if existing else ():
        git("update-index", flag, "-z", "--stdin", data=_join(existing))


# Two trees


def diff_text(repository: str, old: str, new: str, *, stat_only: bool = False) -> str:
    """The diff of two trees as text: a patch, or only the table of line counts."""
    form = "--stat=100" if stat_only else "--patch"
    diff = command.repository_output(repository, "diff-tree", "-r", "-M", *_EXACT_DIFF, form, old, new)
    return diff.decode("utf-8", "replace")


def binary_patch(repository: str, old: str, new: str) -> bytes:
    """The diff of two trees as bytes that `git apply` accepts, whatever the files contain."""
    options = ("-r", "-M", "--patch", "--binary", "--full-index", *_EXACT_DIFF)
    return command.repository_output(repository, "diff-tree", *options, old, new)


def list_changes(repository: str, old: str, new: str) -> list[FileChange]:
    """The files that differ, sorted by path; a rename is one change."""
    counts, renames = _count_lines(repository, old, new)
    renamed_from = set(renames.values())
    changes = []
    for entry in iter_diff(repository, old, new):
        if entry.path in renamed_from and entry.kind == "removed":
            continue
        was = renames.get(entry.path)
        kind: ChangeKind = entry.kind if was is None else "renamed"
        added, removed = counts.get(entry.path, (0, 0))
        changes.append(
            FileChange(_text(entry.path), added, removed, kind, entry.is_submodule, None if was is None else _text(was))
        )
    return changes


def _count_lines(
    repository: str, old: str, new: str
) -> tuple[dict[bytes, tuple[int | None, int | None]], dict[bytes, bytes]]:
    """Path -> added and removed lines, and new path -> old path of renames."""
    counts: dict[bytes, tuple[int | None, int | None]] = {}
    renames: dict[bytes, bytes] = {}
    options = ("--numstat", "-r", "-z", "-M", *_EXACT_DIFF)
    parts = iter(command.repository_output(repository, "diff-tree", *options, old, new).split(b"\0"))
    for part in parts:
        if part:
            added, removed, path = part.split(b"\t", 2)
            if not path:  # a rename: both paths follow, as parts of their own
                was, path = next(parts), next(parts)
                renames[path] = was
            counts[path] = (None, None) if added == b"-" else (int(added), int(removed))
    return counts, renames


def iter_diff(repository: str, old: str, new: str) -> Iterator[DiffEntry]:
    options = ("-r", "-z", "--raw", "--no-renames", "--no-abbrev")
    parts = iter(command.repository_output(repository, "diff-tree", *options, old, new).split(b"\0"))
    for description, path in zip(parts, parts, strict=False):
        old_mode, new_mode, old_object, new_object, _ = description.decode().lstrip(":").split(" ")
        yield DiffEntry(path, old_mode, new_mode, old_object, new_object)


# Three trees


def merge_trees(repository: str, base: str, ours: str, theirs: str) -> tuple[str, list[FileConflict]]:
    """Merge two trees with a common base. With conflicts, the tree is `ours`, unchanged."""
    our_changes = {entry.path: entry for entry in iter_diff(repository, base, ours)}
    our_folders = {parent for path, entry in our_changes.items() if entry.kind == "added" for parent in _parents(path)}
    removed: list[bytes] = []
    written: list[bytes] = []
    conflicts: list[FileConflict] = []
    for entry in iter_diff(repository, base, theirs):
        our = our_changes.get(entry.path)
        if our is not None and (our.new_mode, our.new_object) == (entry.new_mode, entry.new_object):
            continue
        if our is None and entry.kind == "removed":
            removed.append(f"0 {entry.new_object}\t".encode() + entry.path + b"\0")
            continue
        if our is not None:
            merged = _merge_file(repository, our, entry)
        elif entry.path in our_folders or any(
            parent in our_changes and our_changes[parent].kind == "added" for parent in _parents(entry.path)
        ):
            merged = "is a file on one side and a folder on the other"
        else:
            merged = (entry.new_mode, entry.new_object)
        if isinstance(merged, str):
            conflicts.append(FileConflict(_text(entry.path), merged))
        else:
            written.append(f"{merged[0]} {merged[1]}\t".encode() + entry.path + b"\0")
    if conflicts:
        return ours, conflicts
    with temporary_index() as index:
        command.repository_output(repository, "read-tree", ours, index=index)
        # Removals first: a removed file may have the name of a folder that is added.
        lines = b"".join([*removed, *written])
        command.repository_output(repository, "update-index", "-z", "--index-info", data=lines, index=index)
        return command.repository_output(repository, "write-tree", index=index).decode().strip(), []


def _merge_file(repository: str, ours: DiffEntry, theirs: DiffEntry) -> tuple[str, str] | str:
    """Mode and object of a file that both sides changed, or why it cannot be merged."""
    if "added" in (ours.kind, theirs.kind):
        return "was added on both sides with different content"
    if "removed" in (ours.kind, theirs.kind):
        return "was changed on one side and removed on the other"
    if not {ours.old_mode, ours.new_mode, theirs.new_mode} <= _REGULAR_FILES:
        return "is a link or a submodule that both sides changed"
    mode = theirs.new_mode if ours.new_mode == ours.old_mode else ours.new_mode
    with tempfile.TemporaryDirectory(prefix="sessiontree-") as folder:
        names: list[str] = []
        for object in (ours.new_object, ours.old_object, theirs.new_object):
            names.append(os.path.join(folder, str(len(names))))
            with open(names[-1], "wb") as file:
                file.write(command.repository_output(repository, "cat-file", "blob", object))
        done = command.run(folder, "merge-file", "-p", "-q", *names)
    if done.returncode >= _MERGE_FAILED:
        return "is binary and was changed on both sides"
    if done.returncode:
        return "was changed on both sides in the same lines"
    merged = command.repository_output(repository, "hash-object", "-w", "--stdin", data=done.stdout)
    return mode, merged.decode().strip()


def _parents(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def _text(path: bytes) -> str:
    return path.decode("utf-8", "replace")


# A tree into a folder


def find_obstacles(root: str, repository: str, old: str, new: str) -> list[FileConflict]:
    """Files of `new` whose place is taken by something that is not in `old`, such as an ignored file."""
    entries = [entry for entry in iter_diff(repository, old, new) if not entry.is_submodule]
    removed = {os.fsdecode(entry.path) for entry in entries if entry.kind == "removed"}
    found: list[FileConflict] = []
    for entry in entries:
        if entry.kind == "added":
            why = _obstacle(root, os.fsdecode(entry.path), removed)
            if why is not None:
                found.append(FileConflict(_text(entry.path), why))
    return found


def _obstacle(root: str, path: str, removed: set[str]) -> str | None:
    *folders, _ = path.split("/")
    for depth in range(1, len(folders) + 1):
        parent = "/".join(folders[:depth])
        full = os.path.join(root, parent)
        if os.path.lexists(full) and (os.path.islink(full) or not os.path.isdir(full)) and parent not in removed:
            return f"{parent} is not a folder in the project, and git ignores it"
    full = os.path.join(root, path)
    if not os.path.lexists(full):
        return None
    if os.path.isdir(full) and not os.path.islink(full):
        files = (os.path.join(folder, name) for folder, _, names in os.walk(full) for name in names)
        if all(os.path.relpath(file, root) in removed for file in files):
            return None
        return "a folder with ignored files is in its place"
    return "exists already, and git ignores it"


def checkout_tree(root: str, repository: str, old: str, new: str) -> None:
    """Change a folder from tree `old` to tree `new`; if that fails, change it back."""
    try:
        _write_files(root, repository, old, new)
    except (OSError, StoreError) as error:
        _write_files(root, repository, new, old)
        raise StoreError(f"{root}: writing failed, and the files are as they were: {error}") from error


def _write_files(root: str, repository: str, old: str, new: str) -> None:
    entries = [entry for entry in iter_diff(repository, old, new) if not entry.is_submodule]
    written = [entry for entry in entries if entry.kind != "removed"]
    # All new files are complete and synced in a staging folder before the first one is moved. So a process that dies
    # leaves each file old or new, never partial, and the operation can be repeated.
    with _staging_folder(root) as folder:
        with temporary_index() as index:
            command.repository_output(repository, "read-tree", new, index=index)
            names = _join(entry.path for entry in written)
            prefix = f"--prefix={folder}{os.sep}"
            command.output(root, "checkout-index", "-f", "-q", prefix, "-z", "--stdin", data=names, index=index)
        for entry in written:
            _finish(os.path.join(os.fsencode(folder), entry.path), entry, _permissions(root, entry.path))
        for entry in entries:
            if entry.kind == "removed":
                _remove(root, os.fsdecode(entry.path))
        for entry in written:
            _move(os.path.join(os.fsencode(folder), entry.path), os.path.join(os.fsencode(root), entry.path))


@contextlib.contextmanager
def _staging_folder(root: str) -> Iterator[str]:
    """A temporary folder on the same disk, so that files can be moved by rename: in `.git` if possible."""
    git_folder = command.query(root, "rev-parse", "--path-format=absolute", "--git-dir")
    is_same_disk = bool(git_folder) and os.stat(git_folder).st_dev == os.stat(root).st_dev
    with tempfile.TemporaryDirectory(prefix=".sessiontree-", dir=git_folder if is_same_disk else root) as folder:
        yield folder


def _finish(path: bytes, entry: DiffEntry, permissions: int | None) -> None:
    """Give a new file the permissions of the one it replaces, and sync it."""
    if entry.new_mode not in _REGULAR_FILES:
        return
    if permissions is not None:  # git creates files readable for everyone; the old one may have been private
        executable = (permissions & 0o444) >> 2 if entry.new_mode == _EXECUTABLE else 0
        os.chmod(path, (permissions & 0o666) | executable)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _move(source: bytes, target: bytes) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)  # `find_obstacles` has made sure that it holds no file worth keeping
    os.replace(source, target)


def _permissions(root: str, path: bytes) -> int | None:
    """The permissions of a regular file; None if there is none."""
    try:
        found = os.lstat(os.path.join(os.fsencode(root), path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else None


def _join(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _remove(root: str, path: str) -> None:
    full = os.path.join(root, path)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(full)
    remove_empty_parents(full, root)
