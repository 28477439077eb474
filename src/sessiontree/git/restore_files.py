"""Putting uncommitted work back into a worktree: contents, permissions, links, deletions, and what was staged.

Nothing is written outside of the worktree, through a link, or into git's own folder, whatever a snapshot says. A file
that differs from both what was saved and what is committed is in the way: it is overwritten only when that is asked
for, and what it held is kept first. Each file appears whole or not at all, and laying the same snapshot again is safe.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator

from msgspec import Struct

from sessiontree.errors import DamagedError, ExistsError, NotFoundError, StoreError, WriteError
from sessiontree.git import command
from sessiontree.git.snapshot import SavedFile, Snapshot, Staged, mode_of
from sessiontree.stores.atomic_files import write_temporary
from sessiontree.stores.contract import BlobStore
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

_SHOWN = 20


class Laid(Struct, frozen=True):
    """What was done."""

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """What could not be put back, each with the reason."""
    kept: tuple[tuple[str, str], ...] = ()
    """What was overwritten: path, and the blob that has what was there."""


def is_within(path: str) -> bool:
    """Whether a path of a snapshot names a file inside a worktree, and none of git's own."""
    parts = path.split("/")
    return (
        bool(path)
        and "\0" not in path
        and not os.path.isabs(path)
        and all(part not in ("", ".", "..") and part.lower() not in (".git", "git~1") for part in parts)
    )


def find_in_the_way(top: str, snapshot: Snapshot) -> list[str]:
    """The paths where something else stands now that is committed nowhere."""
    with _failures_told(top):
        return list(_iter_in_the_way(top, snapshot))


@contextlib.contextmanager
def _failures_told(top: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where, why = error.filename or top, error.strerror or error
        raise WriteError(f"{where}: {why}; what was saved is still kept, run it again") from error


def _iter_in_the_way(top: str, snapshot: Snapshot) -> Iterator[str]:
    changed = {os.fsdecode(one.path): one for one in command.iter_changed(top)}
    tracked = {os.fsdecode(path) for path in command.do(top, "ls-files", "-z").split(b"\0")}
    for path, saved in snapshot.files.items():
        if not is_within(path) or _obstacle(top, path) is not None:
            continue
        is_clean = path in tracked and path not in changed
        stands = _state(os.path.join(top, path))
        if (stands is not None and not is_clean and not _is_saved(stands, saved)) or _stages_else(
            changed.get(path), saved.staged
        ):
            yield path


def _stages_else(now: command.Changed | None, saved: Staged | None) -> bool:
    """Whether the index has something of a path that neither the commit nor the snapshot has."""
    if now is None or not now.staged:
        return False
    return saved is None or (now.staged_mode, now.staged_object if now.staged_mode else "") != (
        saved.mode,
        saved.object,
    )


def lay(
    top: str, snapshot: Snapshot, blobs: BlobStore, *, overwrite: bool = False, os_calls: OsCalls = OS_CALLS
) -> Laid:
    """Put a snapshot into a worktree that stands at its commit. `ExistsError` before anything is done."""
    in_the_way = find_in_the_way(top, snapshot)
    if in_the_way and not overwrite:
        shown = "".join(f"\n  {path}" for path in in_the_way[:_SHOWN])
        more = f"\n  and {len(in_the_way) - _SHOWN} more" if len(in_the_way) > _SHOWN else ""
        raise ExistsError(
            f"{top}: {len(in_the_way)} files differ from what was saved and are not committed; nothing was changed. "
            f"--yes overwrites them and keeps what they held as blobs:{shown}{more}"
        )
    with _failures_told(top):
        return _Laying(top, snapshot, blobs, os_calls).carry_out(in_the_way)


class _Laying:
    def __init__(self, top: str, snapshot: Snapshot, blobs: BlobStore, os_calls: OsCalls) -> None:
        self._top, self._files, self._blobs, self._os_calls = top, snapshot.files, blobs, os_calls
        self._nothing = "0" * len(snapshot.head or "0" * 40)
        """The name of no object, as long as names are in this repository."""
        self._missing: list[str] = []

    def carry_out(self, in_the_way: list[str]) -> Laid:
        for path in self._files:
            if not is_within(path):
                self._missing.append(f"{path}: leads out of the worktree")
        kept = tuple((path, name) for path in in_the_way if (name := self._keep(path)) is not None)
        files = {path: saved for path, saved in self._files.items() if is_within(path)}
        self._stage({path: saved.staged for path, saved in files.items() if saved.staged is not None})
        removed = [path for path, saved in files.items() if not saved.mode and self._remove(path)]
        written = [path for path, saved in files.items() if saved.mode and self._write(path, saved)]
        return Laid(tuple(written), tuple(removed), tuple(self._missing), kept)

    def _keep(self, path: str) -> str | None:
        """Keep what stands at a path before it is overwritten."""
        full = os.path.join(self._top, path)
        if not os.path.lexists(full) or (os.path.isdir(full) and not os.path.islink(full)):
            return None
        return self._blobs.put(_content(full))

    def _remove(self, path: str) -> bool:
        full = os.path.join(self._top, path)
        if self._is_barred(path) or not os.path.lexists(full):
            return False
        self._os_calls.unlink(full)
        folder = os.path.dirname(full)
        with contextlib.suppress(OSError):  # something else is in it
            while folder != self._top:
                os.rmdir(folder)
                folder = os.path.dirname(folder)
        return True

    def _write(self, path: str, saved: SavedFile) -> bool:
        full = os.path.join(self._top, path)
        stands = None if self._is_barred(path) else _state(full)
        if self._is_barred(path, say=True) or (stands is not None and _is_saved(stands, saved)):
            return False
        data = self._content(path, saved.sha256)
        if data is None:
            return False
        os.makedirs(os.path.dirname(full), exist_ok=True)
        temporary = self._beside(full, data, saved)
        try:
            self._os_calls.rename(temporary, full)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return True

    def _beside(self, full: str, data: bytes, saved: SavedFile) -> str:
        if saved.is_link:
            temporary = f"{full}.{os.urandom(6).hex()}.tmp"
            os.symlink(os.fsdecode(data), temporary)
            return temporary
        temporary = write_temporary(full, [data], self._os_calls)
        os.chmod(temporary, saved.permissions)
        return temporary

    def _is_barred(self, path: str, *, say: bool = False) -> bool:
        """Whether something on the way to a path keeps it from being written there."""
        why = _obstacle(self._top, path)
        if why is not None and say:
            self._missing.append(f"{path}: {why}")
        return why is not None

    def _content(self, path: str, name: str) -> bytes | None:
        try:
            data = self._blobs.get(name)
        except (DamagedError, NotFoundError, StoreError) as error:
            self._missing.append(f"{path}: {error}")
            return None
        if data is None:
            self._missing.append(f"{path}: its content {name[:12]}… is not among the blobs")
        return data

    def _stage(self, staged: dict[str, Staged]) -> None:
        """Make the index what it was."""
        there = command.sizes(self._top, [one.object for one in staged.values() if one.mode])
        lines: list[bytes] = []
        for path, one in staged.items():
            if one.mode and one.object not in there:
                data = self._content(f"{path} (index)", one.sha256)
                if data is None:
                    continue
                command.do(self._top, "hash-object", "-w", "--stdin", data=data)
            name = one.object if one.mode else self._nothing
            lines.append(f"{one.mode or '0'} {name}\t{path}\0".encode())
        if lines:
            command.do(self._top, "update-index", "-z", "--index-info", data=b"".join(lines))


def _obstacle(top: str, path: str) -> str | None:
    """Why nothing may be written at a path: a link or a file among its folders, or a folder in its place."""
    at = top
    *folders, _ = path.split("/")
    for folder in folders:
        at = os.path.join(at, folder)
        try:
            mode = os.lstat(at).st_mode
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(mode):
            return f"{os.path.relpath(at, top)} is a link, and nothing is written through one"
        if not stat.S_ISDIR(mode):
            return f"{os.path.relpath(at, top)} is no folder"
    full = os.path.join(top, path)
    return "a folder is in its place" if os.path.isdir(full) and not os.path.islink(full) else None


def _state(full: str) -> tuple[str, str] | None:
    """Kind, permissions and hash of what stands at a path; None when nothing does."""
    try:
        found = os.lstat(full)
        if not stat.S_ISLNK(found.st_mode) and not stat.S_ISREG(found.st_mode):
            return mode_of(found), ""
        return mode_of(found), hashlib.sha256(_content(full)).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _content(full: str) -> bytes:
    if os.path.islink(full):
        return os.fsencode(os.readlink(full))
    fd = os.open(full, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        return file.read()


def _is_saved(stands: tuple[str, str], saved: SavedFile) -> bool:
    return stands == (saved.mode, saved.sha256)
