"""Session and blob stores in memory: for tests and for sessions that must not leave files."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sessiontree.errors import ConflictError, ExistsError, ReplacedError
from sessiontree.stores.blobs import blob_name, check_blob_name


class MemoryStore:
    """The bytes of one session in memory."""

    def __init__(self, data: bytes | None = None, location: str = "(memory)") -> None:
        self._data: bytearray | None = None if data is None else bytearray(data)
        self._lock = threading.Lock()
        self.location = location

    def exists(self) -> bool:
        return self._data is not None

    def size(self) -> int:
        return len(self._data or b"")

    def readinto(self, offset: int, buffer: memoryview) -> int:
        part = (self._data or b"")[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def create(self, data: Iterable[bytes]) -> None:
        if self._data is not None:
            raise ExistsError(f"{self.location}: the session exists")
        self._data = bytearray(b"".join(data))

    def lock(self) -> int:
        self._lock.acquire()
        if self._data is None:
            self._lock.release()
            raise ReplacedError(f"{self.location}: the session does not exist; nothing was written")
        return len(self._data)

    def append(self, data: bytes) -> None:
        assert self._data is not None
        self._data += data

    def overwrite(self, offset: int, data: bytes, expected: bytes) -> None:
        assert self._data is not None
        end = offset + len(data)
        if len(data) != len(expected) or self._data[offset:end] != expected:
            raise ConflictError(f"{self.location} byte {offset}: the bytes there have changed; nothing was written")
        self._data[offset:end] = data

    def unlock(self) -> None:
        self._lock.release()

    def replace(self, data: Iterable[bytes], expected_size: int) -> str:
        with self._lock:
            if self.size() != expected_size:
                raise ConflictError(f"{self.location}: changed during the rewrite; nothing was written")
            self._data = bytearray(b"".join(data))
        return f"{self.location} (no backup in memory)"

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
