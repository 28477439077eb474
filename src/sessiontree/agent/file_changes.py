"""Detect what a command changed, by comparing the uncommitted files that git lists before and after it.

A command may change any file. In a git worktree, uncommitted files are stored before the command runs; files that were
unmodified can be read from git afterwards. Ignored files are not covered, nor are folders outside repositories; the log
records the latter, once.
"""

from __future__ import annotations

import os
import stat
import time

from msgspec import Struct

from sessiontree.agent.workspace import Workspace
from sessiontree.errors import PathError, StoreError
from sessiontree.git import command
from sessiontree.git.snapshot import (
    ABSENT,
    CachedBlobs,
    FileState,
    Snapshot,
    SnapshotLimits,
    is_same_state,
    read_state,
    take_snapshot,
)
from sessiontree.git.worktree import find_head, find_root

LIMITS = SnapshotLimits(file_bytes=10_000_000, total_bytes=50_000_000, files=2_000)
_MAX_COMMITTED = 500
"""Changed files whose committed content is read from git after one command."""
_LINK = "120000"


class WorktreeStates(Struct, frozen=True):
    """The uncommitted files of the worktrees at one time."""

    at: int
    """Nanoseconds, comparable to the times of files."""
    worktrees: tuple[Snapshot, ...] = ()
    uncovered: dict[str, str] = {}
    """Folders without a snapshot, each with the reason."""


class DetectedChanges(Struct, frozen=True):
    """What a command changed: states before and after, by absolute path."""

    files: dict[str, FileState] = {}
    after: dict[str, FileState] = {}
    left_out: dict[str, str] = {}


class ChangeDetector:
    """Compares the folders of a workspace before and after commands."""

    def __init__(self, workspace: Workspace, blobs: CachedBlobs, limits: SnapshotLimits = LIMITS) -> None:
        self._workspace, self._blobs, self._limits = workspace, blobs, limits
        self._reported: set[str] = set()

    def read(self) -> WorktreeStates:
        """Read the uncommitted files. Contents are durable when this returns."""
        worktrees: dict[str, Snapshot] = {}
        uncovered: dict[str, str] = {}
        for folder in self._workspace.folders:
            top = find_root(folder)
            if not top:
                uncovered[folder] = "not a git worktree: changes by commands are not recorded"
                continue
            if command.has_filters(top):
                uncovered[folder] = "its git settings run programs: changes by commands are not recorded"
                continue
            head = find_head(top)
            try:
                taken = take_snapshot(os.path.realpath(top), head, self._blobs.put, limits=self._limits)
            except StoreError as error:
                uncovered[folder] = f"changes by commands are not recorded: {error}"
                continue
            worktrees[taken.path] = taken
        return WorktreeStates(time.time_ns(), tuple(worktrees.values()), uncovered)

    def changed_since(self, before: WorktreeStates) -> DetectedChanges:
        """Compare with an earlier state."""
        current = {snapshot.path: snapshot for snapshot in self.read().worktrees}
        found = DetectedChanges({}, {}, {})
        for old in before.worktrees:
            new = current.get(old.path)
            if new is None:
                found.left_out[old.path] = "no longer a git worktree"
            else:
                self._compare(old, new, before.at, found)
        for folder, why in before.uncovered.items():
            if folder not in self._reported:
                self._reported.add(folder)
                found.left_out[folder] = why
        return found

    def _compare(self, old: Snapshot, new: Snapshot, since: int, found: DetectedChanges) -> None:
        # A commit or checkout in between changes files that git lists neither before nor after.
        committed = _changed_between(old.path, old.head, new.head)
        paths = sorted({*old.files, *new.files, *committed})
        rules_changed = any(os.path.basename(path) == ".gitignore" for path in paths)
        for path in paths:
            full = os.path.join(old.path, path)
            if not self._workspace.classify(full).is_inside:
                continue
            try:
                after = read_state(full, self._blobs.put)
            except (PathError, OSError) as error:
                found.left_out[full] = str(error)
                continue
            if after is None:
                continue
            before = old.files.get(path)
            if before is None:
                # git lists a file it did not list before. Unless the file itself is older than the command, it was
                # unmodified, so its old content is that of the commit.
                if path in old.left_out or (path not in committed and _is_older(full, since)):
                    continue
                before = self._read_committed(old, path, after, found)
                if before is None:
                    continue
                if before is ABSENT and rules_changed:
                    # A file that git ignored before looks like a new one. Deleting it on a rewind would lose it.
                    found.left_out[full] = "it may have existed before, ignored by git; its content is not known"
                    continue
            before = FileState(before.mode, before.sha256, before.size)
            if not is_same_state(before, after):
                found.files[full], found.after[full] = before, after
        found.left_out.update(
            {os.path.join(old.path, path): why for path, why in new.left_out.items() if path not in old.left_out}
        )

    def _read_committed(self, old: Snapshot, path: str, after: FileState, found: DetectedChanges) -> FileState | None:
        """The committed state of a file; `ABSENT` if the commit does not contain it, None if it cannot be read."""
        full = os.path.join(old.path, path)
        listed = command.query(old.path, "ls-tree", "-z", old.head, "--", f":(literal){path}") if old.head else ""
        if not listed:
            return ABSENT
        mode = listed.split(" ", 1)[0]
        if len(found.files) >= _MAX_COMMITTED or mode not in ("100644", "100755", _LINK):
            found.left_out[full] = (
                f"more than {_MAX_COMMITTED} files changed" if mode.startswith("100") else "a separate repository"
            )
            return None
        try:
            # With the line endings and filters that git applies on a checkout, as the file was in the worktree.
            kind = ("--filters",) if mode != _LINK else ("blob",)
            data = command.output(old.path, "cat-file", *kind, f"{old.head}:{path}")
        except StoreError as error:
            found.left_out[full] = str(error)
            return None
        return FileState(_mode(mode, after), self._blobs.put(data), len(data))


def _changed_between(top: str, old: str | None, new: str | None) -> set[str]:
    """The files that differ between two commits."""
    if old is None or new is None or old == new:
        return set()
    try:
        listed = command.output(top, "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", old, new)
    except StoreError:
        return set()
    return {os.fsdecode(path) for path in listed.split(b"\0") if path}


def _is_older(full: str, since: int) -> bool:
    # git may list a file that was not touched, for example after a change of `.gitignore`. Programs cannot set the
    # inode's change time (ctime), unlike the modification time.
    try:
        return os.lstat(full).st_ctime_ns < since
    except OSError:
        return False


def _mode(committed: str, after: FileState) -> str:
    """The mode of a committed file. git records only whether it is executable; the rest is taken from the file now."""
    if committed == _LINK:
        return _LINK
    if after.mode and not after.is_link:
        bits = after.permissions
        runs = committed == "100755"
        wanted = bits | ((bits & 0o444) >> 2) if runs else bits & ~0o111
        return f"{stat.S_IFREG | wanted:o}"
    return f"{stat.S_IFREG | (0o755 if committed == '100755' else 0o644):o}"
