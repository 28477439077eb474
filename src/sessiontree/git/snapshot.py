"""Snapshots of uncommitted work: changed, staged, deleted and untracked files, with contents in a blob store.

Ignored files, nested repositories, large files and untracked files with the names of secrets are left out. A snapshot
lists omitted files with the reason, except ignored ones. Taking a snapshot changes nothing in the worktree.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from sessiontree.errors import DamagedError, NotFoundError, StoreError
from sessiontree.git.objects import read_blobs, read_sizes
from sessiontree.git.status import StatusEntry, iter_status, iter_submodules
from sessiontree.secrets.names import has_secret_name
from sessiontree.stores.contract import BlobStore
from sessiontree.stores.safe_files import read_path

PutBlob: TypeAlias = Callable[[bytes], str]
"""Stores content durably and returns its SHA-256."""


class SnapshotLimits(Struct, frozen=True):
    """How much of a worktree a snapshot stores."""

    file_bytes: int = 10_000_000
    total_bytes: int = 100_000_000
    files: int = 5_000


LIMITS = SnapshotLimits()


class StagedFile(Struct, frozen=True, omit_defaults=True):
    """The index entry of a path that differs from the commit; without a mode the path was removed from the index."""

    mode: Annotated[str, Meta(pattern="^(100644|100755|120000)?$")] = ""
    object: Annotated[str, Meta(pattern="^([0-9a-f]{40}|[0-9a-f]{64})?$")] = ""
    """Its object id. Git may have collected the object since, so the content is stored as a blob as well."""
    sha256: str = ""


class FileState(Struct, frozen=True, omit_defaults=True):
    """What is at a path: kind, permissions and content. Without a mode, nothing is there."""

    mode: Annotated[str, Meta(pattern="^(1[02]0[0-7]{3})?$")] = ""
    """Kind and permissions in octal, like `st_mode`."""
    sha256: str = ""
    """Hash of the content; of a symbolic link, of its target."""
    size: int = 0
    staged: StagedFile | None = None

    @property
    def is_link(self) -> bool:
        return bool(self.mode) and stat.S_ISLNK(int(self.mode, 8))

    @property
    def permissions(self) -> int:
        return int(self.mode, 8) & 0o777


ABSENT = FileState()


class Snapshot(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The uncommitted work of a worktree at one time."""

    path: str
    head: str | None = None
    """The commit that was checked out; None if it is not known."""
    files: dict[str, FileState] = {}
    left_out: dict[str, str] = {}
    """Path -> why it was not stored."""

    @property
    def is_empty(self) -> bool:
        return not self.files and not self.left_out


def parse_snapshot(fields: object) -> Snapshot | None:
    """Convert decoded JSON; None if it is not a snapshot."""
    try:
        return msgspec.convert(fields, Snapshot)
    except msgspec.ValidationError:
        return None


# The state of one file


def file_mode(found: os.stat_result) -> str:
    """The mode of a `FileState`, without the setuid, setgid and sticky bits."""
    return f"{stat.S_IFMT(found.st_mode) | (found.st_mode & 0o777):o}"


def read_state(path: str, put: PutBlob | None = None) -> FileState | None:
    """Read the state of a path; None if it is neither a file nor a link. With `put`, its content is stored."""
    found = read_path(path)
    if found is None:
        return ABSENT
    if not stat.S_ISREG(found.stat.st_mode) and not stat.S_ISLNK(found.stat.st_mode):
        return None
    name = hashlib.sha256(found.data).hexdigest() if put is None else put(found.data)
    return FileState(file_mode(found.stat), name, len(found.data))


def is_same_state(left: FileState | None, right: FileState | None) -> bool:
    """Whether kind, permissions and content are equal; the index is not compared."""
    if left is None or right is None:
        return False
    if left.is_link and right.is_link:  # the permissions of a link mean nothing, and differ between systems
        return left.sha256 == right.sha256
    return (left.mode, left.sha256) == (right.mode, right.sha256)


def load_content(state: FileState, blobs: BlobStore) -> bytes | None:
    """The content of a stored state; None if nothing was there, `DamagedError` if its blob is gone."""
    if not state.mode:
        return None
    try:
        data = blobs.get(state.sha256)
    except (NotFoundError, StoreError) as error:
        raise DamagedError(str(error)) from None
    if data is None:
        raise DamagedError(f"its content, blob {state.sha256[:12]}…, is missing")
    return data


class CachedBlobs:
    """A blob store that writes each content once per process: putting it again would read and compare the blob."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._stored: set[str] = set()

    def put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        if name not in self._stored:
            self._store.put(data)
            self._stored.add(name)
        return name

    def get(self, name: str) -> bytes | None:
        return self._store.get(name)


# Taking a snapshot


def take_snapshot(
    root: str, head: str | None, put: PutBlob, *, secrets: bool = False, limits: SnapshotLimits = LIMITS
) -> Snapshot:
    """Store the uncommitted work of a worktree; all contents are durable when this returns."""
    return _SnapshotBuilder(root, put, secrets, limits).build(head)


class _SnapshotBuilder:
    def __init__(self, root: str, put: PutBlob, secrets: bool, limits: SnapshotLimits) -> None:
        self._root, self._put, self._secrets, self._limits = root, put, secrets, limits
        self._files: dict[str, FileState] = {}
        self._left_out: dict[str, str] = {}
        self._size = 0

    def build(self, head: str | None) -> Snapshot:
        staged: dict[str, StatusEntry] = {}
        for entry in iter_status(self._root):
            try:
                path = entry.path.decode()
            except UnicodeDecodeError:  # snapshots are JSON, which cannot hold such a name
                self._left_out[entry.path.decode("utf-8", "backslashreplace")] = "its name is not UTF-8"
                continue
            if entry.is_untracked and path in self._files:
                continue  # removed from the index but still in the worktree: git lists it twice
            reason = self._exclusion(path, entry)
            if reason:
                self._left_out[path] = reason
                continue
            if entry.is_conflict:
                self._left_out[f"{path} (index)"] = "an unfinished merge; only the file itself is stored"
            if entry.is_staged:
                staged[path] = entry
            self._add_file(path, may_be_absent=not entry.is_untracked)
        for submodule in iter_submodules(self._root):  # changes in them are not listed
            self._left_out.setdefault(submodule.decode("utf-8", "backslashreplace"), "a nested repository")
        self._add_staged(staged)
        return Snapshot(self._root, head, dict(sorted(self._files.items())), dict(sorted(self._left_out.items())))

    def _exclusion(self, path: str, entry: StatusEntry) -> str:
        """Why a path is left out; empty if it is not."""
        if entry.is_submodule or path.endswith("/"):
            return "a nested repository"
        if entry.is_untracked and not self._secrets and has_secret_name(path):
            return "named like a secret; --secrets includes it"
        if len(self._files) >= self._limits.files and path not in self._files:
            return f"more than {self._limits.files:,} files"
        return ""

    def _add_file(self, path: str, *, may_be_absent: bool) -> None:
        full = os.path.join(self._root, path)
        try:
            found = os.lstat(full)
            if stat.S_ISLNK(found.st_mode):
                data = os.fsencode(os.readlink(full))
            elif not stat.S_ISREG(found.st_mode):
                self._left_out[path] = "not a regular file"
                return
            elif self._exceeds_limits(path, found.st_size):
                return
            else:
                # It may have become a link since: its target must not be stored, which can be outside the worktree.
                fd = os.open(full, os.O_RDONLY | os.O_NOFOLLOW)
                with os.fdopen(fd, "rb") as file:
                    data = file.read()
        except (FileNotFoundError, NotADirectoryError):
            if may_be_absent:
                self._files.setdefault(path, ABSENT)
            return
        except OSError as error:
            self._left_out[path] = f"cannot be read: {error.strerror}"
            return
        self._size += len(data)
        self._files[path] = FileState(file_mode(found), self._put(data), len(data))

    def _exceeds_limits(self, path: str, size: int) -> bool:
        if size > self._limits.file_bytes:
            self._left_out[path] = f"{size:,} bytes; the limit for one file is {self._limits.file_bytes:,}"
        elif self._size + size > self._limits.total_bytes:
            self._left_out[path] = f"{size:,} bytes; the limit for all files is {self._limits.total_bytes:,}"
        else:
            return False
        return True

    def _add_staged(self, entries: dict[str, StatusEntry]) -> None:
        sizes = read_sizes(self._root, [entry.staged_object for entry in entries.values() if entry.staged_mode])
        wanted: list[str] = []
        for path, entry in entries.items():
            size = sizes.get(entry.staged_object) if entry.staged_mode else None
            if size is not None and not self._exceeds_limits(f"{path} (index)", size):
                self._size += size
                wanted.append(entry.staged_object)
        names = {object: self._put(data) for object, data in read_blobs(self._root, wanted)}
        for path, entry in entries.items():
            if not entry.staged_mode:
                staged = StagedFile()
            elif entry.staged_object in names:
                staged = StagedFile(entry.staged_mode, entry.staged_object, names[entry.staged_object])
            else:
                continue
            if path in self._files:
                self._files[path] = msgspec.structs.replace(self._files[path], staged=staged)
