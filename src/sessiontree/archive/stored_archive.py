"""The archive of a repository, such as a database: its sessions are archived where they are stored.

The repository keeps the contents under the id of an item, with a record whose content is ours. Each step is one
transaction of it, so an item and the session that it replaces are never both missing, and nothing has to be completed
after a process that died.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator

import msgspec

from sessiontree.archive.archive import ArchivedSession, build_item, hash_prefix
from sessiontree.archive.catalog import ArchiveItem, Edit, Kind, SessionInfo
from sessiontree.archive.object_store import ArchivedFile
from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.errors import ConflictError, ExistsError, NotFoundError
from sessiontree.stores.atomic_files import create_file
from sessiontree.stores.contract import ArchiveRepository, SessionRef, SessionStat, SessionStore, read_bytes
from sessiontree.stores.repositories import find_ref

_CHUNK = 1 << 20


class StoredArchive:
    """The archive of one repository."""

    def __init__(self, repository: ArchiveRepository) -> None:
        self.repository = repository
        self.problems: list[str] = []
        """Records that could not be parsed, as messages."""

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Each step is a transaction, so there is no lock to hold between them."""
        return contextlib.nullcontext()

    def finish(self) -> None:
        """A process that died leaves nothing unfinished."""

    # Queries

    def items(self) -> list[ArchiveItem]:
        """All items, oldest first."""
        self.problems = []
        found: list[ArchiveItem] = []
        for id, record in self.repository.archived():
            try:
                item = msgspec.convert(parse_json(record), ArchiveItem)
            except (ValueError, TypeError) as error:
                self.problems.append(f"{self.repository.home}: item {id} of the archive: skipped: {error}")
                continue
            # The record has the id of its session: the address of the database may have changed since.
            path = str(SessionRef(item.path, self.repository.home))
            files = tuple(msgspec.structs.replace(file, path=path) for file in item.files)
            edit = item.edit and msgspec.structs.replace(item.edit, path=path)
            found.append(msgspec.structs.replace(item, id=id, path=path, files=files, edit=edit))
        return found

    def exists(self, path: str) -> bool:
        return self.repository.stat(find_ref(path)) is not None

    def read(self, item: ArchiveItem) -> Iterator[bytes]:
        """The content of an item in chunks."""
        return self.repository.read_archived(item.id)

    def stamp(self, path: str) -> tuple[int, int]:
        stat = self._stat(path)
        return stat.size, stat.changed

    def packed_size(self, items: Iterable[ArchiveItem]) -> int:
        """The database compresses by itself, and does not tell how much."""
        return sum(item.size for item in items)

    # Archiving

    def archive(self, info: SessionInfo, why: str = "clean") -> ArchivedSession:
        """Move a session into the archive."""
        return ArchivedSession(self._add(info, "moved", why))

    def keep(self, info: SessionInfo, why: str = "keep") -> ArchiveItem | None:
        """Store a copy of a session, replacing an older copy. None if the copy is up to date."""
        older = [item for item in self.items() if item.kind == "kept" and item.path == info.path]
        stat = self._stat(info.path)
        if older and _stamp(older[-1]) == (stat.size, stat.changed):
            return None
        item = self._add(info, "kept", why)
        for copy in older:
            # A copy of other bytes stays: the session was replaced since.
            if copy.size <= item.size and hash_prefix(self.read(item), copy.size) == copy.sha256:
                self.remove(copy, "refreshed")
        return item

    def add_edit(self, info: SessionInfo, edit: Edit) -> ArchiveItem:
        """Store the content of a session before it is rewritten."""
        return self._add(info, "edited", edit.verb, edit)

    def _add(self, info: SessionInfo, kind: Kind, why: str, edit: Edit | None = None) -> ArchiveItem:
        stat = self._stat(info.path)
        store = self.repository.open(stat.ref)
        sha256 = hash_store(store, stat.size)
        item = build_item(info, info.path, kind, why, (ArchivedFile(info.path, sha256, stat.size, stat.changed),), edit)
        # Refused if the session has changed since its bytes were read.
        self.repository.archive(item.id, self._encode(item, stat.ref), stat, remove=kind == "moved")
        return item

    def _encode(self, item: ArchiveItem, ref: SessionRef) -> bytes:
        files = tuple(msgspec.structs.replace(file, path=ref.name) for file in item.files)
        edit = item.edit and msgspec.structs.replace(item.edit, path=ref.name)
        return render_json(msgspec.to_builtins(msgspec.structs.replace(item, path=ref.name, files=files, edit=edit)))

    def _stat(self, path: str) -> SessionStat:
        ref = find_ref(path)
        stat = self.repository.stat(ref)
        if stat is None:
            raise NotFoundError(f"{ref}: no such session")
        return stat

    # Restoring

    def restore(self, item: ArchiveItem) -> list[str]:
        """Restore an item; returns the sessions that were written, none if it exists already."""
        if item.edit is not None:
            return self._undo_edit(item, item.edit)
        ref = find_ref(item.path)
        stat = self.repository.stat(ref)
        if stat is None:
            self.repository.restore_archived(item.id, ref, remove=item.kind == "moved")
            return [item.path]
        if stat.size != item.size or hash_store(self.repository.open(ref), stat.size) != item.sha256:
            raise ExistsError(f"{ref}: another session exists; nothing was restored (--out FILE writes it elsewhere)")
        if item.kind == "moved":
            self.remove(item, "restored")
        return []

    def _undo_edit(self, item: ArchiveItem, edit: Edit) -> list[str]:
        """Write the old content, followed by what was appended to the rewritten session."""
        ref = find_ref(item.path)
        hint = f"`sessiontree restore {item.id} --out FILE` writes the old content elsewhere"
        if self.repository.stat(ref) is None:
            raise NotFoundError(f"{ref}: the rewritten session does not exist; restore it first, or {hint}")
        store = self.repository.open(ref)
        size = store.size()
        if _starts_with(store, size, item.size, item.sha256):
            self.remove(item, "restored")  # an earlier run undid it, or the rewrite was never carried out
            return []
        if not _starts_with(store, size, edit.size, edit.sha256):
            raise ConflictError(
                f"{ref}: was rewritten again since; undo that first (the newest in `sessiontree restore --list`), "
                f"or {hint}"
            )
        store.replace(self._iter_restored(item, store, edit.size, size), expected_size=size)
        self.remove(item, "restored")
        return [item.path]

    def _iter_restored(self, item: ArchiveItem, store: SessionStore, start: int, end: int) -> Iterator[bytes]:
        last = b"\n"
        for chunk in self.read(item):
            last = chunk[-1:] or last
            yield chunk
        tail = read_bytes(store, start, end - start)
        if tail and last != b"\n" and not tail.startswith(b"\n"):
            yield b"\n"
        yield tail

    def extract(self, item: ArchiveItem, out: str) -> None:
        """Write an item to a new file anywhere; the archive does not change."""
        create_file(os.path.abspath(out), self.read(item))

    # Deleting

    def remove(self, item: ArchiveItem, why: str) -> None:  # noqa: ARG002 - as the archive of files
        self.repository.remove_archived(item.id)

    def delete_session(self, path: str) -> None:
        """Delete a session permanently, without archiving it."""
        self.repository.delete(find_ref(path))


def _stamp(item: ArchiveItem) -> tuple[int, int]:
    return item.files[0].size, item.files[0].mtime_ns


def iter_store(store: SessionStore, size: int) -> Iterator[bytes]:
    """The first bytes of a store, in chunks."""
    for start in range(0, size, _CHUNK):
        yield read_bytes(store, start, min(_CHUNK, size - start))


def hash_store(store: SessionStore, size: int) -> str:
    digest = hashlib.sha256()
    for chunk in iter_store(store, size):
        digest.update(chunk)
    return digest.hexdigest()


def _starts_with(store: SessionStore, found: int, size: int, sha256: str) -> bool:
    return found >= size and hash_store(store, size) == sha256
