"""The archive: sessions that moved out of the way, copies of others, and what rewriting took away.

The order of every step is what makes it safe. In: the content durably in the archive and compared, then the line in the
index, then the original goes, if it is still what was read. Out: the file durably in its place and compared, then the
line in the index, then the content. A process that dies in between leaves the original, the archive, or both, and the
next run finishes what it began.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator

from msgspec import Struct

from sessiontree.archive.allowed_paths import Bounds, folder_of, iter_beside
from sessiontree.archive.catalog import About, Edit, Index, Item, Kind
from sessiontree.archive.object_store import Objects, Stored
from sessiontree.core.ids import timestamp
from sessiontree.errors import AmbiguousError, ConflictError, ExistsError, NotFoundError, WriteError
from sessiontree.stores.atomic_files import create_file, make_folder, publish_new, sync_folder, write_temporary
from sessiontree.stores.file_lock import file_lock, lock_descriptor, release_descriptor
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

_DELETES_BY_DATE = frozenset({"claude"})
"""Agents that delete session files by the file's date: what comes back to them comes back with a fresh one."""
_STEP = 1 << 20


class Freed(Struct, frozen=True):
    """What an archived session left behind, and how many bytes are gone from its place."""

    item: Item
    left: tuple[str, ...] = ()
    """Files in its folder that were not taken along: links, and what changed meanwhile."""


class Archive:
    """`<home>/archive`: `index.jsonl`, and `objects/` with the contents."""

    def __init__(self, folder: str, bounds: Bounds, *, os_calls: OsCalls = OS_CALLS) -> None:
        self.folder = folder
        self.bounds = bounds
        self.objects = Objects(os.path.join(folder, "objects"), os_calls)
        self.index = Index(os.path.join(folder, "index.jsonl"), os_calls)
        self.os_calls = os_calls
        self._is_locked = False
        """Whether this run holds the lock."""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One at a time: what one run finds in the archive, no other takes away."""
        if self._is_locked:  # this run has it already
            yield
            return
        try:
            make_folder(self.folder, self.os_calls)
            with file_lock(os.path.join(self.folder, "lock"), os_calls=self.os_calls):
                self._is_locked = True
                yield
        except OSError as error:
            where, why = error.filename or self.folder, error.strerror or error
            raise WriteError(f"{where}: {why}; what was there is there still, or in the archive") from error
        finally:
            self._is_locked = False

    # Looking

    def items(self) -> list[Item]:
        """Everything that is in the archive, oldest first."""
        return list(self.index.read().values())

    def find(self, wanted: str) -> Item:
        """The item meant by its own id, a session's id, a beginning of either, or a path."""
        items = self.items()
        if os.sep in wanted:
            real = os.path.join(os.path.realpath(os.path.dirname(wanted)), os.path.basename(wanted))
            paths = {wanted, os.path.abspath(wanted), real}
            found = [item for item in items if item.path in paths or (item.edit and item.edit.path in paths)]
        else:
            found = [item for item in items if wanted in (item.id, item.session)]
            found = found or [item for item in items if wanted and item.id.startswith(wanted)]
            found = found or [item for item in items if len(wanted) >= 8 and item.session.startswith(wanted)]
        if not found:
            raise NotFoundError(f"nothing in the archive is {wanted!r}; `sessiontree restore --list` shows what is")
        places = {_place_now(item, items) for item in found}
        if len(places) > 1:  # a copy of a session that has moved since is still listed under its old place
            found = [item for item in found if item.kind != "kept"] or found
            places = {_place_now(item, items) for item in found}
        if len(places) > 1:
            shown = "\n".join(f"  {item.id}  {item.path}" for item in found[:20])
            ids = tuple(item.id for item in found)
            raise AmbiguousError(f"{wanted!r} fits {len(found)} items; give the first column:\n{shown}", ids)
        # Of a session that is there, one means the last rewriting; of one that is not, the session itself.
        is_there = os.path.lexists(places.pop())
        fitting = [item for item in found if (item.kind == "edited") == is_there]
        return (fitting or found)[-1]

    # In

    def archive(self, about: About, why: str = "clean") -> Freed:
        """Move a session file and its folder into the archive."""
        with self.locked():
            path = self.bounds.check_file(about.path)
            item = self._put(about, path, "moved", why)
            return Freed(item, self._remove_originals(item))

    def keep(self, about: About, why: str = "keep") -> Item | None:
        """Put a copy of a session into the archive, in place of an older one. None when the copy is up to date."""
        with self.locked():
            path = self.bounds.check_file(about.path)
            older = [item for item in self.items() if item.kind == "kept" and item.path == path]
            if older and _is_unchanged(older[-1], path):
                return None
            item = self._put(about, path, "kept", why)
            for one in older:
                if one.id != item.id and self._covers(item, one):
                    self._leave(one, "refreshed")
            return item

    def put_edit(self, about: About, path: str, edit: Edit, why: str) -> Item:
        """Keep what a file holds now, before it is rewritten. Called with the archive locked, like all of a rewrite."""
        stored = self.objects.put_file(path)
        item = _item(about, path, "edited", why, (stored,), edit)
        self.index.add(item)
        return item

    def taken_lines(self, item: Item) -> frozenset[bytes]:
        """The hashes of the lines that a rewriting took out of a file."""
        if item.edit is None or not item.edit.taken:
            return frozenset()
        found: set[bytes] = set()
        ranges = iter(item.edit.taken)
        start, length = next(ranges, (0, 0))
        offset = 0
        for line in iter_whole_lines(self.objects.read(item.sha256)):
            while length and offset >= start + length:
                start, length = next(ranges, (0, 0))
            if length and start <= offset:
                found.add(line_hash(line))
            offset += len(line)
        return frozenset(found)

    def _put(self, about: About, path: str, kind: Kind, why: str) -> Item:
        files = tuple(self.objects.put_file(file) for file in (path, *iter_beside(path)))
        for item in self.items():
            if item.kind == kind and item.path == path and item.files == files:
                return item  # an earlier run died before it was done
        item = _item(about, path, kind, why, files)
        self.index.add(item)
        return item

    def _remove_originals(self, item: Item) -> tuple[str, ...]:
        """Take away what the archive holds, the session file first: without it, nobody misses the others."""
        main, *others = item.files
        with contextlib.suppress(FileNotFoundError):  # someone else took it away; the archive has it
            self._remove_unchanged(main)
        for file in others:
            with contextlib.suppress(ConflictError, FileNotFoundError):
                self._remove_unchanged(file)
        _remove_empty_folders(folder_of(item.path))
        folder = folder_of(item.path)
        return tuple(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)

    def _remove_unchanged(self, file: Stored) -> None:
        fd = self.os_calls.open(file.path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            lock_descriptor(fd, file.path)
            found = os.stat(file.path, follow_symlinks=False)
            opened = os.fstat(fd)
            same = (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)
            if not same or (found.st_size, found.st_mtime_ns) != (file.size, file.mtime_ns):
                raise ConflictError(f"{file.path}: changed while it was being archived; it stays where it is")
            self.os_calls.unlink(file.path)
        finally:
            release_descriptor(fd)
        sync_folder(os.path.dirname(file.path), self.os_calls)

    def finish(self) -> None:
        """Take away what an earlier run had archived, or begun to write, and left behind when it died."""
        with self.locked():
            self.objects.sweep()
            for item in self.items():
                if item.kind != "moved" or os.path.lexists(item.path) or not os.path.isdir(folder_of(item.path)):
                    continue
                for file in item.files[1:]:
                    with contextlib.suppress(ConflictError, FileNotFoundError):
                        self._remove_unchanged(file)
                _remove_empty_folders(folder_of(item.path))

    # Out

    def restore(self, item: Item) -> list[str]:
        """Bring the files of a session back to their places; those that were written. Never overwrites."""
        with self.locked():
            places = [self.bounds.check(file.path) for file in item.files]
            missing = [file for file, place in zip(item.files, places, strict=True) if not self._is_there(file, place)]
            for file in item.files:
                if file not in missing:
                    settle(file.path, self.os_calls)
            for file in reversed(missing):  # the session file last: when it appears, all of the session is there
                self._write_back(file, fresh=item.agent in _DELETES_BY_DATE)
            if item.kind == "moved":
                self._leave(item, "restored")
            return [file.path for file in missing]

    def extract(self, item: Item, out: str) -> None:
        """Write the session file of an item to a new file, wherever that is; the archive stays as it is."""
        create_file(os.path.abspath(out), self.objects.read(item.files[0].sha256), self.os_calls)

    def purge(self, item: Item) -> None:
        """Delete an item for good."""
        with self.locked():
            self._leave(item, "purged")

    def forget(self, item: Item, why: str) -> None:
        """Take an item off the list whose content is back in its place, or never left it."""
        with self.locked():
            self._leave(item, why)

    def _is_there(self, file: Stored, place: str) -> bool:
        """Whether exactly this file is in its place; `ExistsError` when another one is."""
        if not os.path.lexists(place):
            return False
        if os.path.isfile(place) and os.path.getsize(place) == file.size and hash_of(place) == file.sha256:
            return True
        raise ExistsError(f"{place}: there is another file now; nothing was restored (--out FILE writes it elsewhere)")

    def _write_back(self, file: Stored, *, fresh: bool) -> None:
        make_folder(os.path.dirname(file.path), self.os_calls)
        place = self.bounds.check(file.path)
        temporary = write_temporary(place, self.objects.read(file.sha256), self.os_calls)
        if not fresh:
            os.utime(temporary, ns=(file.mtime_ns, file.mtime_ns))
        publish_new(temporary, place, self.os_calls)

    def _leave(self, item: Item, why: str) -> None:
        self.index.remove(item.id, why, timestamp())
        needed = {file.sha256 for other in self.items() for file in other.files}
        for file in item.files:
            if file.sha256 not in needed:
                self.objects.drop(file.sha256)

    def _covers(self, newer: Item, older: Item) -> bool:
        """Whether every byte of an older copy is in a newer one: each file is there, and begins with what it held."""
        files = {file.path: file for file in newer.files}
        for old in older.files:
            new = files.get(old.path)
            if new is None or new.size < old.size:
                return False
            if new.sha256 != old.sha256 and prefix_hash(self.objects.read(new.sha256), old.size) != old.sha256:
                return False
        return True


def _place_now(item: Item, items: list[Item]) -> str:
    """Where the session of an item is now, or was before it went: later moves are followed."""
    place = item.path
    for later in items:
        if later.edit is not None and later.path == place:
            place = later.edit.path
    return place


def delete(path: str, bounds: Bounds) -> None:
    """Delete a session file and its folder for good, without the archive."""
    real = bounds.check_file(path)
    beside = list(iter_beside(real))
    for file in (real, *beside):
        os.unlink(file)
    _remove_empty_folders(folder_of(real))
    sync_folder(os.path.dirname(real))


def settle(path: str, os_calls: OsCalls) -> None:
    """Make a file that is there survive a power cut: whoever wrote it may have died before that."""
    fd = os_calls.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os_calls.fsync(fd)
    finally:
        os.close(fd)
    sync_folder(os.path.dirname(path), os_calls)


def line_hash(line: bytes) -> bytes:
    return hashlib.sha256(line.rstrip(b"\n")).digest()


def iter_whole_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Lines with their LF."""
    held = b""
    for chunk in chunks:
        *whole, held = (held + chunk).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if held:
        yield held


def hash_of(path: str, size: int | None = None) -> str:
    """The SHA-256 of a file, or of its first bytes."""
    with open(path, "rb") as file:
        return prefix_hash(iter(lambda: file.read(_STEP), b""), size)


def prefix_hash(chunks: Iterator[bytes], size: int | None = None) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        if size is not None and len(chunk) >= size:
            digest.update(chunk[:size])
            break
        digest.update(chunk)
        size = None if size is None else size - len(chunk)
    return digest.hexdigest()


def _item(about: About, path: str, kind: Kind, why: str, files: tuple[Stored, ...], edit: Edit | None = None) -> Item:
    return Item(
        id=os.urandom(6).hex(),
        kind=kind,
        path=path,
        agent=about.agent,
        session=about.session,
        title=about.title,
        size=sum(file.size for file in files),
        sha256=files[0].sha256,
        when=timestamp(),
        why=why,
        files=files,
        edit=edit,
    )


def _is_unchanged(item: Item, path: str) -> bool:
    """Whether the files of a copy are still as they were when it was made, by size and date."""
    known = {file.path: (file.size, file.mtime_ns) for file in item.files}
    now = {file: os.stat(file) for file in (path, *iter_beside(path))}
    return known == {file: (found.st_size, found.st_mtime_ns) for file, found in now.items()}


def _remove_empty_folders(top: str) -> None:
    if os.path.islink(top):
        return
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):  # something is left in it
            os.rmdir(folder)
