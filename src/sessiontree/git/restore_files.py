"""Restore the files of a snapshot: contents, permissions, links, deletions and the index.

Snapshots come from session files, so their paths are not trusted: nothing is written outside the worktree, through a
symbolic link, or into `.git`. Each file is replaced atomically, and restoring the same snapshot again is safe.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from msgspec import Struct

from sessiontree.errors import DamagedError, ExistsError, PathError, WriteError
from sessiontree.git import command
from sessiontree.git.objects import read_sizes
from sessiontree.git.snapshot import FileState, Snapshot, StagedFile, is_same_state, load_content, read_state
from sessiontree.git.status import StatusEntry, iter_status
from sessiontree.stores.atomic_files import write_temporary
from sessiontree.stores.contract import BlobStore
from sessiontree.stores.os_calls import OS_CALLS, OsCalls
from sessiontree.stores.safe_files import change_permissions, read_path, remove_file, write_file, write_link

_MAX_SHOWN = 20


class RestoredFiles(Struct, frozen=True):
    """The outcome of restoring a snapshot."""

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Paths that could not be restored, each with the reason."""
    overwritten: tuple[tuple[str, str], ...] = ()
    """Path and the blob with its former content."""


# One file


def restore_state(path: str, state: FileState, blobs: BlobStore) -> None:
    """Make one path what it was: content, permissions, link, or absent."""
    current = read_state(path)
    if current is None:
        raise PathError(f"{path}: a folder or special file is in its place")
    if is_same_state(current, state):
        return
    data = load_content(state, blobs)
    if data is None:
        remove_file(path)
    elif state.is_link:
        write_link(path, os.fsdecode(data))
    elif current.mode and not current.is_link and current.sha256 == state.sha256:
        change_permissions(path, state.permissions)
    else:
        if current.is_link:
            remove_file(path)
        write_file(path, data, state.permissions)


# All files of a worktree


def is_safe_path(path: str) -> bool:
    """Whether a path of a snapshot names a file inside the worktree and outside `.git`."""
    parts = path.split("/")
    return (
        bool(path)
        and "\0" not in path
        and not os.path.isabs(path)
        # `git~1` is the short name of `.git` on file systems of Windows.
        and all(part not in ("", ".", "..") and part.lower() not in (".git", "git~1") for part in parts)
    )


def find_conflicts(root: str, snapshot: Snapshot) -> list[str]:
    """Paths whose current content is neither the snapshot's nor the commit's, and would be lost."""
    with _write_errors(root):
        return list(_iter_conflicts(os.path.realpath(root), snapshot))


def find_changes(root: str, snapshot: Snapshot) -> list[str]:
    """Paths of a worktree that restoring a snapshot would write or remove."""
    with _write_errors(root):
        return [
            path
            for path, saved in snapshot.files.items()
            if is_safe_path(path)
            and _obstacle(root, path) is None
            and not is_same_state(read_state(os.path.join(root, path)), saved)
        ]


def restore_files(
    root: str, snapshot: Snapshot, blobs: BlobStore, *, overwrite: bool = False, os_calls: OsCalls = OS_CALLS
) -> RestoredFiles:
    """Restore a snapshot into a worktree at its commit. On conflicts: `ExistsError`, before anything is written.

    With `overwrite`, conflicting files are replaced after their contents were stored as blobs.
    """
    conflicts = find_conflicts(root, snapshot)
    if conflicts and not overwrite:
        shown = "".join(f"\n  {path}" for path in conflicts[:_MAX_SHOWN])
        more = f"\n  and {len(conflicts) - _MAX_SHOWN} more" if len(conflicts) > _MAX_SHOWN else ""
        files = "1 file has" if len(conflicts) == 1 else f"{len(conflicts)} files have"
        raise ExistsError(
            f"{root}: {files} uncommitted changes that are not in the snapshot; nothing was changed. "
            f"--yes overwrites them and keeps the old contents as blobs:{shown}{more}"
        )
    with _write_errors(root):
        return _FileRestorer(os.path.realpath(root), snapshot, blobs, os_calls).restore(conflicts)


@contextlib.contextmanager
def _write_errors(root: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where, why = error.filename or root, error.strerror or error
        raise WriteError(f"{where}: {why}; the snapshot is unchanged, run it again") from error


def _iter_conflicts(root: str, snapshot: Snapshot) -> Iterator[str]:
    changed = {os.fsdecode(entry.path): entry for entry in iter_status(root)}
    tracked = {os.fsdecode(path) for path in command.output(root, "ls-files", "-z").split(b"\0")}
    for path, saved in snapshot.files.items():
        if not is_safe_path(path) or _obstacle(root, path) is not None:
            continue  # it will not be written, so nothing can be lost
        is_committed = path in tracked and path not in changed
        current = read_state(os.path.join(root, path))
        exists = current is None or bool(current.mode)
        would_lose_file = exists and not is_committed and not is_same_state(current, saved)
        if would_lose_file or _would_lose_staged(changed.get(path), saved.staged):
            yield path


def _would_lose_staged(current: StatusEntry | None, saved: StagedFile | None) -> bool:
    """Whether the index has a version of a path that neither the commit nor the snapshot has."""
    if current is None or not current.is_staged:
        return False
    staged = (current.staged_mode, current.staged_object if current.staged_mode else "")
    return saved is None or staged != (saved.mode, saved.object)


class _FileRestorer:
    def __init__(self, root: str, snapshot: Snapshot, blobs: BlobStore, os_calls: OsCalls) -> None:
        self._root, self._files, self._blobs, self._os_calls = root, snapshot.files, blobs, os_calls
        # An all-zero object id, as long as ids are in this repository (SHA-1 or SHA-256).
        self._null_object = "0" * len(snapshot.head or "0" * 40)
        self._missing: list[str] = []

    def restore(self, conflicts: list[str]) -> RestoredFiles:
        self._missing += [f"{path}: outside the worktree" for path in self._files if not is_safe_path(path)]
        files = {path: saved for path, saved in self._files.items() if is_safe_path(path)}
        # The order matters. Current contents are stored first, so that a run that dies loses none of them. Deletions
        # come before writes, because a folder may have to replace a deleted file.
        overwritten = tuple((path, name) for path in conflicts if (name := self._store_current(path)) is not None)
        self._restore_index({path: saved.staged for path, saved in files.items() if saved.staged is not None})
        removed = [path for path, saved in files.items() if not saved.mode and self._remove(path)]
        written = [path for path, saved in files.items() if saved.mode and self._write(path, saved)]
        return RestoredFiles(tuple(written), tuple(removed), tuple(self._missing), overwritten)

    def _store_current(self, path: str) -> str | None:
        found = read_path(os.path.join(self._root, path))
        if found is None or not (stat.S_ISREG(found.stat.st_mode) or stat.S_ISLNK(found.stat.st_mode)):
            return None
        return self._blobs.put(found.data)

    def _remove(self, path: str) -> bool:
        full = os.path.join(self._root, path)
        if _obstacle(self._root, path) is not None or not os.path.lexists(full):
            return False
        self._os_calls.unlink(full)
        remove_empty_parents(full, self._root)
        return True

    def _write(self, path: str, saved: FileState) -> bool:
        full = os.path.join(self._root, path)
        obstacle = _obstacle(self._root, path)
        if obstacle is not None:
            self._missing.append(f"{path}: {obstacle}")
            return False
        if is_same_state(read_state(full), saved):
            return False
        data = self._load(path, saved)
        if data is None:
            return False
        os.makedirs(os.path.dirname(full), exist_ok=True)
        temporary = self._write_temporary(full, data, saved)
        try:
            self._os_calls.rename(temporary, full)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return True

    def _write_temporary(self, full: str, data: bytes, saved: FileState) -> str:
        if saved.is_link:
            temporary = f"{full}.{os.urandom(6).hex()}.tmp"
            os.symlink(os.fsdecode(data), temporary)
            return temporary
        temporary = write_temporary(full, [data], self._os_calls)
        os.chmod(temporary, saved.permissions)
        return temporary

    def _load(self, path: str, state: FileState) -> bytes | None:
        try:
            return load_content(state, self._blobs)
        except DamagedError as error:
            self._missing.append(f"{path}: {error}")
            return None

    def _restore_index(self, staged: dict[str, StagedFile]) -> None:
        existing = read_sizes(self._root, [entry.object for entry in staged.values() if entry.mode])
        lines: list[bytes] = []
        for path, entry in staged.items():
            if entry.mode and entry.object not in existing:
                data = self._load(f"{path} (index)", FileState(entry.mode, entry.sha256))
                if data is None:
                    continue
                command.output(self._root, "hash-object", "-w", "--stdin", data=data)
            # Mode 0 removes a path from the index.
            name = entry.object if entry.mode else self._null_object
            lines.append(f"{entry.mode or '0'} {name}\t{path}\0".encode())
        if lines:
            command.output(self._root, "update-index", "-z", "--index-info", data=b"".join(lines))


def remove_empty_parents(path: str, root: str) -> None:
    """Remove the folders above a removed file that are empty now, below `root`."""
    folder = os.path.dirname(path)
    with contextlib.suppress(OSError):  # the first one that is not empty
        while folder != root:
            os.rmdir(folder)
            folder = os.path.dirname(folder)


def _obstacle(root: str, path: str) -> str | None:
    """Why nothing may be written at a path: a link or a file among its folders, or a folder in its place."""
    current = root
    *folders, _ = path.split("/")
    for folder in folders:
        current = os.path.join(current, folder)
        try:
            mode = os.lstat(current).st_mode
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(mode):
            return f"{os.path.relpath(current, root)} is a symbolic link, which is not followed"
        if not stat.S_ISDIR(mode):
            return f"{os.path.relpath(current, root)} is not a folder"
    full = os.path.join(root, path)
    return "a folder is in its place" if os.path.isdir(full) and not os.path.islink(full) else None
