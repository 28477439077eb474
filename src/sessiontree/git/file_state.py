"""What stands at a path, kept by content: as `SavedFile`, the same value that snapshots of worktrees have."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable

from sessiontree.errors import DamagedError, NotFoundError, PathError, StoreError
from sessiontree.git.snapshot import SavedFile, mode_of
from sessiontree.stores.contract import BlobStore
from sessiontree.stores.safe_files import change_permissions, read_path, remove_file, write_file, write_link

Put = Callable[[bytes], str]

ABSENT = SavedFile()
"""Nothing stands there."""


class Blobs:
    """A blob store that remembers what it has put: the same content is not read back each time."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._put: set[str] = set()

    def put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        if name not in self._put:
            self._store.put(data)
            self._put.add(name)
        return name

    def get(self, name: str) -> bytes | None:
        return self._store.get(name)


def stands_at(path: str, put: Put | None = None) -> SavedFile | None:
    """What stands at a path; None when that is no file and no link. With `put`, its content is kept."""
    found = read_path(path)
    if found is None:
        return ABSENT
    if not stat.S_ISREG(found.stat.st_mode) and not stat.S_ISLNK(found.stat.st_mode):
        return None
    name = hashlib.sha256(found.data).hexdigest() if put is None else put(found.data)
    return SavedFile(mode_of(found.stat), name, len(found.data))


def is_same(one: SavedFile | None, other: SavedFile | None) -> bool:
    """Whether the same stands there: kind, permissions and content. Permissions of a link mean nothing."""
    if one is None or other is None:
        return False
    if one.is_link and other.is_link:
        return one.sha256 == other.sha256
    return (one.mode, one.sha256) == (other.mode, other.sha256)


def content_of(saved: SavedFile, blobs: Blobs) -> bytes | None:
    """The content of what stood somewhere; None when nothing did, `DamagedError` when it is kept no more."""
    if not saved.mode:
        return None
    try:
        data = blobs.get(saved.sha256)
    except (NotFoundError, StoreError) as error:
        raise DamagedError(str(error)) from None
    if data is None:
        raise DamagedError(f"its content {saved.sha256[:12]}… is not among the blobs")
    return data


def put_back(path: str, saved: SavedFile, blobs: Blobs) -> list[str]:
    """Make a path what it was: content, permissions, link, or nothing at all. The folders that were made for it."""
    now = stands_at(path)
    if now is None:
        raise PathError(f"{path}: a folder or something else is in its place")
    if is_same(now, saved):
        return []
    if not saved.mode:
        remove_file(path)
        return []
    data = content_of(saved, blobs)
    assert data is not None
    if saved.is_link:
        return write_link(path, os.fsdecode(data))
    if now.mode and not now.is_link and now.sha256 == saved.sha256:
        change_permissions(path, saved.permissions)
        return []
    if now.is_link:
        remove_file(path)
    return write_file(path, data, saved.permissions)
