"""The archive: cleaned sessions, copies of sessions, and the state of files before they were rewritten.

Safety comes from the order of steps.

* Archiving: write and verify the object, append its line to the catalog, then delete the original, if it is still the
  file that was read.
* Restoring: write and verify the file, append the removal to the catalog, then delete the object.

Each step is durable before the next. A process that dies in between leaves the original, the archived object, or both,
and the next run completes the work.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from sessiontree.archive.allowed_paths import AllowedPaths, iter_related_files, session_folder
from sessiontree.archive.catalog import ArchiveItem, Catalog, Edit, Kind, SessionInfo
from sessiontree.archive.object_store import ArchivedFile, ObjectStore
from sessiontree.clients import client_of, read_client_file
from sessiontree.core.ids import timestamp
from sessiontree.errors import AmbiguousError, ConflictError, ExistsError, NotFoundError, WriteError
from sessiontree.stores.atomic_files import create_file, make_folder, publish_new, sync_folder, write_temporary
from sessiontree.stores.file_lock import file_lock, lock_descriptor, release_descriptor
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

_CHUNK = 1 << 20


class ArchivedSession(Struct, frozen=True):
    """The outcome of archiving a session."""

    item: ArchiveItem
    remaining: tuple[str, ...] = ()
    """Files that stay in its folder: links, and files that changed meanwhile."""


class SessionArchive(Protocol):
    """What can be done with sessions in files, and with those of a repository that keeps its own archive."""

    @property
    def problems(self) -> list[str]: ...

    def locked(self) -> AbstractContextManager[None]: ...

    def finish(self) -> None: ...

    def items(self) -> list[ArchiveItem]: ...

    def exists(self, path: str) -> bool:
        """Whether the session of an item exists."""
        ...

    def read(self, item: ArchiveItem) -> Iterator[bytes]: ...

    def packed_size(self, items: Iterable[ArchiveItem]) -> int: ...

    def archive(self, info: SessionInfo, why: str = "clean") -> ArchivedSession: ...

    def keep(self, info: SessionInfo, why: str = "keep") -> ArchiveItem | None: ...

    def extract(self, item: ArchiveItem, out: str) -> None: ...

    def remove(self, item: ArchiveItem, why: str) -> None: ...

    def delete_session(self, path: str) -> None: ...

    def stamp(self, path: str) -> tuple[int, int]:
        """Size and time of a session, which change with it; an error if it cannot be archived."""
        ...


class Archive:
    """`<home>/archive`, with the catalog `index.jsonl` and the contents in `objects/`."""

    def __init__(self, folder: str, allowed_paths: AllowedPaths, *, os_calls: OsCalls = OS_CALLS) -> None:
        self.folder = folder
        self.allowed_paths = allowed_paths
        self.objects = ObjectStore(os.path.join(folder, "objects"), os_calls)
        self.catalog = Catalog(os.path.join(folder, "index.jsonl"), os_calls)
        self.os_calls = os_calls
        self._is_locked = False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the archive's lock; reentrant. Another run could delete an object that this one relies on."""
        if self._is_locked:
            yield
            return
        try:
            make_folder(self.folder, self.os_calls)
            with file_lock(os.path.join(self.folder, "lock"), os_calls=self.os_calls):
                self._is_locked = True
                yield
        except OSError as error:
            where, why = error.filename or self.folder, error.strerror or error
            raise WriteError(f"{where}: {why}; every file is still in place, or in the archive") from error
        finally:
            self._is_locked = False

    # Queries

    def items(self) -> list[ArchiveItem]:
        """All items, oldest first."""
        return list(self.catalog.read().values())

    def find(self, wanted: str) -> ArchiveItem:
        """Find an item by its id, a session id, a prefix of either, or a path."""
        return find_item(self.items(), wanted, os.path.lexists)

    @property
    def problems(self) -> list[str]:
        """Lines of the catalog that could not be parsed, as messages."""
        return self.catalog.problems

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def stamp(self, path: str) -> tuple[int, int]:
        found = os.stat(self.allowed_paths.check_file(path))
        return found.st_size, found.st_mtime_ns

    def read(self, item: ArchiveItem) -> Iterator[bytes]:
        """The session file of an item in chunks."""
        return self.objects.read(item.files[0].sha256)

    def packed_size(self, items: Iterable[ArchiveItem]) -> int:
        """The compressed size of some items."""
        return sum(map(self.objects.compressed_size, {file.sha256 for item in items for file in item.files}))

    # Archiving

    def archive(self, info: SessionInfo, why: str = "clean") -> ArchivedSession:
        """Move a session file and its folder into the archive."""
        with self.locked():
            path = self.allowed_paths.check_file(info.path)
            item = self._add(info, path, "moved", why)
            return ArchivedSession(item, self._remove_originals(item))

    def keep(self, info: SessionInfo, why: str = "keep") -> ArchiveItem | None:
        """Store a copy of a session, replacing an older copy. None if the copy is up to date."""
        with self.locked():
            path = self.allowed_paths.check_file(info.path)
            older = [item for item in self.items() if item.kind == "kept" and item.path == path]
            if older and _is_unchanged(older[-1], path):
                return None
            item = self._add(info, path, "kept", why)
            for copy in older:
                if copy.id != item.id and self._contains(item, copy):
                    self._remove_item(copy, "refreshed")
            return item

    def add_edit(self, info: SessionInfo, path: str, edit: Edit, why: str) -> ArchiveItem:
        """Store the content of a file before it is rewritten. The caller holds the lock for the whole rewrite."""
        stored = self.objects.put_file(path)
        item = build_item(info, path, "edited", why, (stored,), edit)
        self.catalog.add(item)
        return item

    def removed_line_hashes(self, item: ArchiveItem) -> frozenset[bytes]:
        """The hashes of the lines that a rewrite removed from a file."""
        if item.edit is None or not item.edit.taken:
            return frozenset()
        found: set[bytes] = set()
        ranges = iter(item.edit.taken)
        start, length = next(ranges, (0, 0))
        offset = 0
        for line in iter_lines(self.objects.read(item.sha256)):
            while length and offset >= start + length:
                start, length = next(ranges, (0, 0))
            if length and start <= offset:
                found.add(line_hash(line))
            offset += len(line)
        return frozenset(found)

    def _add(self, info: SessionInfo, path: str, kind: Kind, why: str) -> ArchiveItem:
        files = tuple(self.objects.put_file(file) for file in (path, *iter_related_files(path)))
        for item in self.items():
            if item.kind == kind and item.path == path and item.files == files:
                return item  # an earlier run died after this step
        item = build_item(info, path, kind, why, files)
        self.catalog.add(item)
        return item

    def _remove_originals(self, item: ArchiveItem) -> tuple[str, ...]:
        """Delete archived files; returns those that remain in the folder."""
        # The session file first: without it, no program misses the others.
        main, *others = item.files
        with contextlib.suppress(FileNotFoundError):  # another process deleted it; the archive has it
            self._remove_unchanged(main)
        self._remove_related(others)
        folder = session_folder(item.path)
        _remove_empty_folders(folder)
        if os.path.islink(folder):
            return (folder,)
        return tuple(os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)

    def _remove_related(self, files: list[ArchivedFile]) -> None:
        for file in files:
            with contextlib.suppress(ConflictError, FileNotFoundError):
                self._remove_unchanged(file)

    def _remove_unchanged(self, file: ArchivedFile) -> None:
        """Delete a file if it is still the one that was archived; `ConflictError` otherwise."""
        fd = self.os_calls.open(file.path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            lock_descriptor(fd, file.path)  # keeps our own writers out between the comparison and the unlink
            found = os.stat(file.path, follow_symlinks=False)
            opened = os.fstat(fd)
            is_same_file = (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)
            if not is_same_file or (found.st_size, found.st_mtime_ns) != (file.size, file.mtime_ns):
                raise ConflictError(f"{file.path}: changed while it was being archived; it was not deleted")
            self.os_calls.unlink(file.path)
        finally:
            release_descriptor(fd)
        sync_folder(os.path.dirname(file.path), self.os_calls)

    def finish(self) -> None:
        """Complete the work of runs that died: temporary files, and folders of sessions that were archived."""
        with self.locked():
            self.objects.remove_temporary_files()
            for item in self.items():
                folder = session_folder(item.path)
                if item.kind == "moved" and not os.path.lexists(item.path) and os.path.isdir(folder):
                    self._remove_related(list(item.files[1:]))
                    _remove_empty_folders(folder)

    # Restoring

    def restore(self, item: ArchiveItem) -> list[str]:
        """Restore the files of a session, never overwriting; returns the paths that were written."""
        with self.locked():
            targets = [self.allowed_paths.check(file.path) for file in item.files]
            missing = [
                file for file, target in zip(item.files, targets, strict=True) if not self._is_restored(file, target)
            ]
            for file in item.files:
                if file not in missing:
                    sync_file(file.path, self.os_calls)
            # A client that deletes files by their mtime would delete a restored one: it gets the current time.
            keep_mtime = client_of(item.agent).retention_days(item.path, read_client_file) is None
            for file in reversed(missing):  # the session file last: when it appears, the session is complete
                self._write_back(file, keep_mtime=keep_mtime)
            if item.kind == "moved":
                self._remove_item(item, "restored")
            return [file.path for file in missing]

    def extract(self, item: ArchiveItem, out: str) -> None:
        """Write the session file of an item to a new file anywhere; the archive does not change."""
        create_file(os.path.abspath(out), self.read(item), self.os_calls)

    def delete_session(self, path: str) -> None:
        """Delete a session file and its folder permanently, without archiving them."""
        delete_session(path, self.allowed_paths)

    def remove(self, item: ArchiveItem, why: str) -> None:
        """Remove an item, and the objects that no other item uses."""
        with self.locked():
            self._remove_item(item, why)

    def _is_restored(self, file: ArchivedFile, target: str) -> bool:
        """Whether exactly this file exists already; `ExistsError` if another one does."""
        if not os.path.lexists(target):
            return False
        if os.path.isfile(target) and os.path.getsize(target) == file.size and hash_file(target) == file.sha256:
            return True
        raise ExistsError(f"{target}: another file exists; nothing was restored (--out FILE writes it elsewhere)")

    def _write_back(self, file: ArchivedFile, *, keep_mtime: bool) -> None:
        make_folder(os.path.dirname(file.path), self.os_calls)
        # Checked again: a link may have appeared among its folders since.
        target = self.allowed_paths.check(file.path)
        temporary = write_temporary(target, self.objects.read(file.sha256), self.os_calls)
        if keep_mtime:
            os.utime(temporary, ns=(file.mtime_ns, file.mtime_ns))
        publish_new(temporary, target, self.os_calls)

    def _remove_item(self, item: ArchiveItem, why: str) -> None:
        # The catalog first: an object without an item wastes space, an item without its object is a loss.
        self.catalog.remove(item.id, why, timestamp())
        needed = {file.sha256 for other in self.items() for file in other.files}
        for file in item.files:
            if file.sha256 not in needed:
                self.objects.delete(file.sha256)

    def _contains(self, newer: ArchiveItem, older: ArchiveItem) -> bool:
        """Whether a newer copy has every byte of an older one: each file exists and starts with the old content."""
        files = {file.path: file for file in newer.files}
        for old in older.files:
            new = files.get(old.path)
            if new is None or new.size < old.size:
                return False
            if new.sha256 != old.sha256 and hash_prefix(self.objects.read(new.sha256), old.size) != old.sha256:
                return False
        return True


def find_item(items: list[ArchiveItem], wanted: str, exists: Callable[[str], bool]) -> ArchiveItem:
    """Find an item by its id, a session id, a prefix of either, or a path; `exists` knows which sessions exist."""
    if os.sep in wanted:
        real = os.path.join(os.path.realpath(os.path.dirname(wanted)), os.path.basename(wanted))
        paths = {wanted, os.path.abspath(wanted), real}
        found = [item for item in items if item.path in paths or (item.edit and item.edit.path in paths)]
    else:
        found = [item for item in items if wanted in (item.id, item.session)]
        found = found or [item for item in items if wanted and item.id.startswith(wanted)]
        found = found or [item for item in items if len(wanted) >= 8 and item.session.startswith(wanted)]
    if not found:
        raise NotFoundError(f"no archive item matches {wanted!r}; `sessiontree restore --list` shows all")
    paths = {_current_path(item, items) for item in found}
    if len(paths) > 1:  # a copy of a session that was moved later is still listed under its old path
        found = [item for item in found if item.kind != "kept"] or found
        paths = {_current_path(item, items) for item in found}
    if len(paths) > 1:
        shown = "\n".join(f"  {item.id}  {item.path}" for item in found[:20])
        ids = tuple(item.id for item in found)
        raise AmbiguousError(f"{wanted!r} matches {len(found)} items; use an id from the first column:\n{shown}", ids)
    # For a session that exists, undo its last rewrite; for one that does not, bring the session itself back.
    is_there = exists(paths.pop())
    preferred = [item for item in found if (item.kind == "edited") == is_there]
    return (preferred or found)[-1]


def _current_path(item: ArchiveItem, items: list[ArchiveItem]) -> str:
    """The path of an item's session after all later moves."""
    path = item.path
    for later in items:
        if later.edit is not None and later.path == path:
            path = later.edit.path
    return path


def delete_session(path: str, allowed_paths: AllowedPaths) -> None:
    """Delete a session file and its folder permanently, without archiving them."""
    real = allowed_paths.check_file(path)
    related = list(iter_related_files(real))
    for file in (real, *related):
        os.unlink(file)
    _remove_empty_folders(session_folder(real))
    sync_folder(os.path.dirname(real))


def sync_file(path: str, os_calls: OsCalls) -> None:
    """Make an existing file durable: the process that wrote it may have died before it synced it."""
    fd = os_calls.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os_calls.fsync(fd)
    finally:
        os.close(fd)
    sync_folder(os.path.dirname(path), os_calls)


def line_hash(line: bytes) -> bytes:
    return hashlib.sha256(line.rstrip(b"\n")).digest()


def iter_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Split chunks into lines, each with its LF."""
    pending = b""
    for chunk in chunks:
        *lines, pending = (pending + chunk).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if pending:
        yield pending


def hash_file(path: str, size: int | None = None) -> str:
    """The SHA-256 of a file, or of its first `size` bytes."""
    with open(path, "rb") as file:
        return hash_prefix(iter(lambda: file.read(_CHUNK), b""), size)


def hash_prefix(chunks: Iterator[bytes], size: int | None = None) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        if size is not None and len(chunk) >= size:
            digest.update(chunk[:size])
            break
        digest.update(chunk)
        size = None if size is None else size - len(chunk)
    return digest.hexdigest()


def build_item(
    info: SessionInfo, path: str, kind: Kind, why: str, files: tuple[ArchivedFile, ...], edit: Edit | None = None
) -> ArchiveItem:
    return ArchiveItem(
        id=os.urandom(6).hex(),
        kind=kind,
        path=path,
        agent=info.agent,
        session=info.session,
        title=info.title,
        size=sum(file.size for file in files),
        sha256=files[0].sha256,
        when=timestamp(),
        why=why,
        files=files,
        edit=edit,
        cwd=info.cwd,
    )


def _is_unchanged(item: ArchiveItem, path: str) -> bool:
    """Whether a copy is up to date, by size and mtime of its files."""
    copied = {file.path: (file.size, file.mtime_ns) for file in item.files}
    current = {file: os.stat(file) for file in (path, *iter_related_files(path))}
    return copied == {file: (found.st_size, found.st_mtime_ns) for file, found in current.items()}


def _remove_empty_folders(top: str) -> None:
    if os.path.islink(top):
        return
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):  # not empty
            os.rmdir(folder)
