"""Sessions, blobs and documents in memory: for tests and for sessions that must not leave files."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from sessiontree.errors import ConflictError, ExistsError, NotFoundError, ReplacedError
from sessiontree.paths import check_session_id, find_by_id
from sessiontree.stores.blobs import blob_name, check_blob_name
from sessiontree.stores.contract import SessionRef, SessionStat, check_document_name

_identities = itertools.count(1)


class MemoryStore:
    """The bytes of one session in memory. Threads may share it."""

    def __init__(self, data: bytes | None = None, location: str = "(memory)", ref: SessionRef | None = None) -> None:
        self._data: bytearray | None = None if data is None else bytearray(data)
        self._lock = threading.Condition()  # reentrant: the holder of `exclusive` appends under the same lock
        self.location = location if ref is None else str(ref)
        self.ref = ref or SessionRef(location, "" if os.path.isabs(location) else "memory:")
        self.changed = time.time_ns()
        """Time of the last change, in nanoseconds since 1970."""
        self.identity = next(_identities)
        """Changes when all bytes are replaced."""

    def exists(self) -> bool:
        return self._data is not None

    def size(self) -> int:
        return len(self._data or b"")

    def content(self) -> bytes:
        """All bytes."""
        return bytes(self._data or b"")

    def readinto(self, offset: int, buffer: memoryview) -> int:
        part = (self._data or b"")[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def create(self, data: Iterable[bytes]) -> None:
        self._adopt(_joined(data))

    def _adopt(self, content: bytearray) -> None:
        with self._lock:
            if self._data is not None:
                raise ExistsError(f"{self.location}: the session exists")
            self._data = content
            self._note_change()

    def append(self, data: bytes, *, expected_size: int) -> int | None:
        with self.exclusive() as size:
            if size != expected_size:
                return None
            assert self._data is not None
            self._data += data
            self._note_change()
            return size + len(data)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[int]:
        with self._lock:
            if self._data is None:
                raise ReplacedError(f"{self.location}: the session does not exist; nothing was written")
            yield len(self._data)

    def overwrite(self, offset: int, data: bytes, expected: bytes) -> None:
        assert self._data is not None
        end = offset + len(data)
        if len(data) != len(expected) or self._data[offset:end] != expected:
            raise ConflictError(f"{self.location} byte {offset}: the bytes there have changed; nothing was written")
        self._data[offset:end] = data
        self._note_change()

    def replace(self, data: Iterable[bytes], *, expected_size: int) -> str:
        content = _joined(data)
        with self.exclusive() as size:
            if size != expected_size:
                raise ConflictError(f"{self.location}: changed during the rewrite; nothing was written")
            self._data = content
            self.identity = next(_identities)
            self._note_change()
        return f"{self.location} (no backup in memory)"

    def discard(self) -> None:
        """Forget the bytes: the session is deleted."""
        with self._lock:
            self._data = None
            self._note_change()

    def _note_change(self) -> None:
        self.changed = time.time_ns()
        self._lock.notify_all()

    def watch(self, timeout: float | None = None) -> Iterator[int]:
        """Give the size now and after each change; ends with the bytes, or `timeout` seconds after a change."""
        seen = (-1, -1)

        def has_changed() -> bool:
            return self._data is None or (len(self._data), self.identity) != seen

        while True:
            with self._lock:
                if not self._lock.wait_for(has_changed, timeout) or self._data is None:
                    return
                seen = (len(self._data), self.identity)
            yield seen[0]

    def start_sync(self) -> None:
        """Nothing to sync in memory."""

    def sync(self) -> None:
        """Nothing to sync in memory."""

    def resolve(self) -> None:
        """Writes to memory do not fail."""

    def close(self) -> None:
        """Keep the bytes: they have no other copy."""


class MemoryBlobs:
    """Blobs in memory."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        name = blob_name(data)
        self._blobs[name] = data
        return name

    def get(self, name: str) -> bytes | None:
        return self._blobs.get(check_blob_name(name))


class MemoryDocuments:
    """Documents in memory."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._documents: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def location(self, name: str) -> str:
        return f"{self._home}/{check_document_name(name)}"

    def read(self, name: str) -> bytes | None:
        return self._documents.get(check_document_name(name))

    def update(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        with self._lock:
            new = change(self.read(name))
            if new is None:
                self._documents.pop(name, None)
            else:
                self._documents[name] = new


class MemoryRepository:
    """Sessions in memory, as long as the process lives."""

    is_volatile = True

    def __init__(self, home: str = "memory:") -> None:
        self.home = home
        self.blobs = MemoryBlobs()
        self.documents = MemoryDocuments(home)
        self._stores: dict[str, MemoryStore] = {}
        self._lock = threading.Lock()

    def new(self, id: str, *, timestamp: str, cwd: str, near: SessionRef | None = None) -> MemoryStore:  # noqa: ARG002
        return _NewMemoryStore(self, SessionRef(check_session_id(id), self.home))

    def open(self, ref: SessionRef) -> MemoryStore:
        store = self._stores.get(ref.name)
        if store is None or ref.home != self.home:
            raise NotFoundError(f"{ref}: no such session")
        return store

    def find(self, wanted: str) -> SessionRef:
        return SessionRef(find_by_id(wanted, [(id, id) for id in list(self._stores)], self.home), self.home)

    def iter_stats(self) -> Iterator[SessionStat]:
        for id, store in list(self._stores.items()):
            yield SessionStat(store.ref, id, store.size(), store.changed, store.identity)

    def delete(self, ref: SessionRef) -> None:
        with self._lock:
            self.open(ref).discard()
            del self._stores[ref.name]

    def watch(self, ref: SessionRef, timeout: float | None = None) -> Iterator[int]:
        return self.open(ref).watch(timeout)

    def stat(self, ref: SessionRef) -> SessionStat | None:
        store = self._stores.get(ref.name)
        return None if store is None else SessionStat(ref, ref.name, store.size(), store.changed, store.identity)

    @contextlib.contextmanager
    def adding(self, store: MemoryStore) -> Iterator[None]:
        """Add a store that is created inside of the block; `ExistsError` if its id is taken."""
        with self._lock:
            if store.ref.name in self._stores:
                raise ExistsError(f"{store.location}: the session exists")
            yield
            self._stores[store.ref.name] = store


class _NewMemoryStore(MemoryStore):
    """The store of a session that its repository does not know before `create`."""

    def __init__(self, repository: MemoryRepository, ref: SessionRef) -> None:
        super().__init__(ref=ref)
        self._repository = repository

    def create(self, data: Iterable[bytes]) -> None:
        content = _joined(data)  # before the lock: the iterator may read another session of the repository
        with self._repository.adding(self):
            self._adopt(content)


def _joined(data: Iterable[bytes]) -> bytearray:
    """The pieces in one buffer. Unlike with `join`, they are never all in memory beside it."""
    content = bytearray()
    for piece in data:
        content += piece
    return content


_repositories: dict[str, MemoryRepository] = {}
_repositories_lock = threading.Lock()


def open_memory_repository(home: str) -> MemoryRepository:
    """The repository of a name, such as `memory:team`: the same one for all of the process."""
    with _repositories_lock:
        return _repositories.setdefault(home, MemoryRepository(home))
