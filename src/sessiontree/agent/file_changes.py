"""What a command did to files, found out by git: what it lists as changed before, and what after.

A command can change anything, and nobody knows beforehand what. In a git worktree the uncommitted files are kept before
the command runs, and those that were as committed can be had from git afterwards. What git ignores, and folders that
are in no repository, are not covered; the latter is said in the log, once.
"""

from __future__ import annotations

import os
import stat
import time

from msgspec import Struct

from sessiontree.agent.read_only_commands import runs_programs
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
_MOST = 500
"""How many files that were as committed are asked from git after one command."""
_LINK = "120000"


class WorktreeStates(Struct, frozen=True):
    """The uncommitted files of the worktrees at one moment."""

    at: int
    """When, in nanoseconds as files have it."""
    worktrees: tuple[Snapshot, ...] = ()
    uncovered: dict[str, str] = {}
    """Folders where it is not known, each with the reason."""


class DetectedChanges(Struct, frozen=True):
    """What a command changed: absolute path -> what stood there, and what stands there now."""

    files: dict[str, FileState] = {}
    after: dict[str, FileState] = {}
    left_out: dict[str, str] = {}


class ChangeDetector:
    """Looks at the folders of a room."""

    def __init__(self, room: Workspace, blobs: CachedBlobs, limits: SnapshotLimits = LIMITS) -> None:
        self._room, self._blobs, self._limits = room, blobs, limits
        self._told: set[str] = set()

    def look(self) -> WorktreeStates:
        """What is uncommitted now. Contents are durable when this returns."""
        worktrees: dict[str, Snapshot] = {}
        uncovered: dict[str, str] = {}
        for folder in self._room.folders:
            top = find_root(folder)
            if not top:
                uncovered[folder] = "no git worktree: what commands change there is not kept"
                continue
            if runs_programs(top):
                uncovered[folder] = "git would run programs that the repository names: what commands change is not kept"
                continue
            head = find_head(top)
            try:
                taken = take_snapshot(os.path.realpath(top), head, self._blobs.put, limits=self._limits)
            except StoreError as error:
                uncovered[folder] = f"what commands change there is not kept: {error}"
                continue
            worktrees[taken.path] = taken
        return WorktreeStates(time.time_ns(), tuple(worktrees.values()), uncovered)

    def changed_since(self, before: WorktreeStates) -> DetectedChanges:
        """What is otherwise than it was."""
        now = {one.path: one for one in self.look().worktrees}
        found = DetectedChanges({}, {}, {})
        for old in before.worktrees:
            new = now.get(old.path)
            if new is None:
                found.left_out[old.path] = "it was a git worktree, and is none any more"
            else:
                self._compare(old, new, before.at, found)
        for folder, why in before.uncovered.items():
            if folder not in self._told:
                self._told.add(folder)
                found.left_out[folder] = why
        return found

    def _compare(self, old: Snapshot, new: Snapshot, since: int, found: DetectedChanges) -> None:
        moved = _between(old.path, old.head, new.head)
        paths = sorted({*old.files, *new.files, *moved})
        rules_changed = any(os.path.basename(path) == ".gitignore" for path in paths)
        for path in paths:
            full = os.path.join(old.path, path)
            if not self._room.place_of(full).is_inside:
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
                if path in old.left_out or (path not in moved and _is_older(full, since)):
                    continue
                before = self._committed(old, path, after, found)
                if before is None:
                    continue
                if before is ABSENT and rules_changed:
                    found.left_out[full] = "it may have been there, ignored by git; what it held is not known"
                    continue
            before = FileState(before.mode, before.sha256, before.size)
            if not is_same_state(before, after):
                found.files[full], found.after[full] = before, after
        found.left_out.update(
            {os.path.join(old.path, path): why for path, why in new.left_out.items() if path not in old.left_out}
        )

    def _committed(self, old: Snapshot, path: str, after: FileState, found: DetectedChanges) -> FileState | None:
        """What a file was that was as committed; absent when the commit does not have it, None when it is not known."""
        full = os.path.join(old.path, path)
        listed = command.query(old.path, "ls-tree", "-z", old.head, "--", f":(literal){path}") if old.head else ""
        if not listed:
            return ABSENT
        mode = listed.split(" ", 1)[0]
        if len(found.files) >= _MOST or mode not in ("100644", "100755", _LINK):
            found.left_out[full] = (
                f"more than {_MOST} files changed" if mode.startswith("100") else "a repository of its own"
            )
            return None
        try:
            # As it stands in the worktree: with the line ends and filters that git puts in when it checks out.
            plain = ("--filters",) if mode != _LINK else ("blob",)
            data = command.output(old.path, "cat-file", *plain, f"{old.head}:{path}")
        except StoreError as error:
            found.left_out[full] = str(error)
            return None
        return FileState(_mode(mode, after), self._blobs.put(data), len(data))


def _between(top: str, old: str | None, new: str | None) -> set[str]:
    """The files that differ between two commits."""
    if old is None or new is None or old == new:
        return set()
    try:
        told = command.output(top, "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", old, new)
    except StoreError:
        return set()
    return {os.fsdecode(path) for path in told.split(b"\0") if path}


def _is_older(full: str, since: int) -> bool:
    """Whether a file was not touched since; git may list it for other reasons, as a change of what is ignored."""
    try:
        return os.lstat(full).st_ctime_ns < since
    except OSError:
        return False


def _mode(committed: str, after: FileState) -> str:
    """Permissions of a file by what git knows, which is only whether it can be run; the rest is as it is now."""
    if committed == _LINK:
        return _LINK
    if after.mode and not after.is_link:
        bits = after.permissions
        runs = committed == "100755"
        wanted = bits | ((bits & 0o444) >> 2) if runs else bits & ~0o111
        return f"{stat.S_IFREG | wanted:o}"
    return f"{stat.S_IFREG | (0o755 if committed == '100755' else 0o644):o}"
