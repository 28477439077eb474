"""The sessions of another client: files in the folders where that client looks for them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.contract import Dialect
from sessiontree.paths import find_by_id
from sessiontree.sources import open_source
from sessiontree.stores.blobs import FileBlobs
from sessiontree.stores.contract import SessionRef, SessionRepository, SessionStat, SessionStore
from sessiontree.stores.file import FileStore
from sessiontree.stores.repositories import delete_file


class ClientRepository:
    """The folders of one client. Documents, which the client does not know, are in the home folder."""

    is_volatile = False

    def __init__(self, dialect: Dialect, location: str, own: SessionRepository) -> None:
        """`location` is a file of the client, next to which its blobs are; `own` is the home folder's repository."""
        self._dialect = dialect
        self._location = location
        folder = dialect.blob_folder(location)
        self._own = own
        self.home = own.home
        self.blobs = own.blobs if folder is None else FileBlobs(folder, flat=True)
        self.documents = own.documents

    def new(self, id: str, *, timestamp: str, cwd: str, near: SessionRef | None = None) -> SessionStore:
        path = self._dialect.destination(SessionMeta(id, timestamp, cwd, origin=self._location), os.environ).path
        if near is not None:
            path = self._near(near.path, path)
        return FileStore(path)

    def _near(self, origin: str, path: str) -> str:
        """The path for a session that the client would write to `path`: next to its origin, but not in an archive."""
        folder, name = os.path.split(os.path.dirname(origin))
        shown = self._dialect.traits.archive_folders.get(name)
        if shown is None:
            return os.path.join(folder, name, os.path.basename(path))
        roots = [os.path.join(root, "") for root in self._dialect.session_roots(os.environ)]
        below = next((path.removeprefix(root) for root in roots if path.startswith(root)), os.path.basename(path))
        return os.path.join(folder, shown, below)

    def at(self, location: str) -> ClientRepository:
        """The repository of another file of the same client, whose blobs may be in another folder."""
        return ClientRepository(self._dialect, location, self._own)

    def open(self, ref: SessionRef) -> SessionStore:
        return open_source(ref, self._dialect)

    def find(self, wanted: str) -> SessionRef:
        known = ((stat.id, stat.ref.path) for stat in self.iter_stats())
        return SessionRef(find_by_id(wanted, known, f"the folders of {self._dialect.name}"))

    def iter_stats(self) -> Iterator[SessionStat]:
        """The files in the client's folders. An id is the one in the file's name."""
        dialect = self._dialect
        for root in dialect.session_roots(os.environ):
            for folder, folders, names in os.walk(root):
                folders[:] = sorted(name for name in folders if name not in dialect.traits.skipped_folders)
                for path in (os.path.join(folder, name) for name in sorted(names)):
                    file = dialect.classify_file(root, os.path.relpath(path, root))
                    if file is None or os.path.islink(path):
                        continue
                    id = file.id or os.path.splitext(os.path.basename(path))[0].rpartition("_")[2]
                    parent = None if file.parent is None else SessionRef(os.path.join(root, file.parent))
                    with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                        stat = os.stat(path)
                        yield SessionStat(
                            SessionRef(path),
                            id,
                            stat.st_size,
                            stat.st_mtime_ns,
                            stat.st_ino,
                            dialect.name,
                            file.kind,
                            parent,
                        )

    def delete(self, ref: SessionRef) -> None:
        delete_file(ref.path)
