"""A session whose history begins in an earlier file."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from msgspec import Struct

from sessiontree.dialects.contract import Dialect
from sessiontree.dialects.storage import Compressed, EarlierPart, Joined
from sessiontree.sources.content import iter_content
from sessiontree.sources.lines_store import LinesStore, damage_line
from sessiontree.stores.contract import SessionRef, SessionStore, read_bytes
from sessiontree.stores.file import FileStore
from sessiontree.stores.memory import MemoryStore
from sessiontree.stores.read_only import ReadOnlyStore

_HEAD_BYTES = 64 * 1024
_LONGEST_HEAD = 4 << 20
_MOST_PARTS = 64


class _Part(Struct, frozen=True):
    store: SessionStore
    start: int
    end: int


class JoinedStore(ReadOnlyStore):
    """Parts of earlier files and the whole last file. New lines of the last file are visible as it grows."""

    def __init__(self, last: SessionStore, parts: list[_Part], after: int) -> None:
        self.ref = last.ref
        self.location = last.location
        self._last = last
        self._after = after
        self._parts = parts
        self._before = sum(part.end - part.start for part in parts)

    def exists(self) -> bool:
        return self._last.exists()

    def size(self) -> int:
        return self._before - self._after + self._last.size()

    def readinto(self, offset: int, buffer: memoryview) -> int:
        for part in self._parts:
            if offset < part.end - part.start:
                return part.store.readinto(part.start + offset, buffer[: part.end - part.start - offset])
            offset -= part.end - part.start
        return self._last.readinto(self._after + offset, buffer)

    def close(self) -> None:
        self._last.close()
        for part in self._parts:
            part.store.close()


def open_joined(path: str, dialect: Dialect, storage: Joined) -> SessionStore:
    """Open a file together with the files it continues; just the file if it continues none."""
    last = _open_part(path, storage)
    head = _read_head(last)
    try:
        earlier = storage.earlier(path, head)
        if earlier is None:
            return last
        after = min(max(earlier.after, 0), last.size())
    except Exception as error:  # noqa: BLE001 - the dialect's function may fail in any way on a damaged file
        return JoinedStore(last, [_damaged(error)], 0)
    parts = [_Part(last, 0, after), *_iter_parts(earlier, dialect, storage, [os.path.realpath(path)])]
    return JoinedStore(last, [part for part in parts if part.end > part.start], after)


def _iter_parts(earlier: EarlierPart, dialect: Dialect, storage: Joined, seen: list[str]) -> Iterator[_Part]:
    """The part of an earlier file, after the parts of files that it continues in turn. `seen` are resolved paths."""
    try:
        path = _find_file(earlier, seen)
        own = dialect.storage(path)
        storage = own if isinstance(own, Joined) else storage
        store = _open_part(path, storage)
        head = _read_head(store)
        # The content of a session names this file. Only another session may be read, never an arbitrary file.
        if not dialect.recognize(head):
            raise ValueError(f"the earlier part {path} is not a session of the same format")
        end = store.size()
        if not 0 <= earlier.start <= earlier.end <= end:
            raise ValueError(f"the earlier part {path} has {end} bytes, but the session uses {earlier.end} of them")
        before = storage.earlier(path, head)
    except Exception as error:  # noqa: BLE001 - as above; the numbers and names come from the file, too
        yield _damaged(error)
        return
    start = earlier.start
    if before is not None:
        after = min(max(before.after, start), earlier.end)
        yield _Part(store, start, after)
        yield from _iter_parts(before, dialect, storage, [*seen, path])
        start = after
    yield _Part(store, start, earlier.end)


def _damaged(error: Exception) -> _Part:
    line = damage_line(error)
    return _Part(MemoryStore(line), 0, len(line))


def _open_part(path: str, storage: Joined) -> SessionStore:
    if storage.codec is None:
        return FileStore(path)
    lines = Compressed(storage.codec)
    return LinesStore(SessionRef(path), lambda: iter_content(path, lines))


def _read_head(store: SessionStore) -> bytes:
    """The beginning of a file, with at least the complete first line unless that is enormous."""
    size = _HEAD_BYTES
    while True:
        head = read_bytes(store, 0, size)
        if b"\n" in head or len(head) < size or size >= _LONGEST_HEAD:
            return head
        size *= 4


def _find_file(earlier: EarlierPart, seen: list[str]) -> str:
    names = (earlier.name,) if isinstance(earlier.name, str) else earlier.name
    path = next(filter(os.path.isfile, (os.path.join(earlier.folder, name) for name in names)), "")
    if not path:
        found = _find_named(earlier, names)
        if len(found) != 1:
            problem = "is missing" if not found else f"may be any of {len(found)} files"
            raise ValueError(f"the earlier part {os.path.join(earlier.folder, names[0])} {problem}")
        path = found[0]
    path = os.path.realpath(path)
    if path in seen:
        raise ValueError(f"the earlier part {path} continues the session itself")
    if len(seen) >= _MOST_PARTS:
        raise ValueError(f"more than {_MOST_PARTS} earlier parts")
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"the earlier part {path} is not a file")
    return path


def _find_named(earlier: EarlierPart, names: tuple[str, ...]) -> list[str]:
    """The files whose names end in one of some names: in the likely folders, else anywhere."""
    for folder in earlier.likely_folders:
        with contextlib.suppress(OSError):
            found = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(names)]
            if found:
                return found
    return [found for found in _iter_files(earlier.folder) if found.endswith(names)]


def _iter_files(folder: str) -> Iterator[str]:
    for here, _, names in os.walk(folder):
        yield from (os.path.join(here, name) for name in names)
