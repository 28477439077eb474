"""Read-only stores: a base class, and byte ranges of another store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from sessiontree.errors import ReadOnlyError
from sessiontree.stores.contract import SessionRef, SessionStore


class ReadOnlyStore:
    """The writing half of a `SessionStore` that cannot be written. Subclasses implement reading."""

    ref: SessionRef
    location: str
    why_read_only = "it is read-only"

    def start_sync(self) -> None: ...

    def sync(self) -> None: ...

    def resolve(self) -> None: ...

    def close(self) -> None: ...

    def create(self, data: Iterable[bytes]) -> None:  # noqa: ARG002 - the contract's
        raise self._refusal()

    def append(self, data: bytes, *, expected_size: int) -> int | None:  # noqa: ARG002 - the contract's
        raise self._refusal()

    def exclusive(self) -> AbstractContextManager[int]:
        raise self._refusal()

    def overwrite(self, offset: int, data: bytes, expected: bytes) -> None:  # noqa: ARG002 - the contract's
        raise self._refusal()

    def replace(self, data: Iterable[bytes], *, expected_size: int) -> str:  # noqa: ARG002 - the contract's
        raise self._refusal()

    def _refusal(self) -> ReadOnlyError:
        return ReadOnlyError(f"{self.location}: cannot be written: {self.why_read_only}")


class SliceStore(ReadOnlyStore):
    """Byte ranges of another store, concatenated. Closing it leaves the other store open."""

    def __init__(self, store: SessionStore, ranges: Sequence[tuple[int, int]]) -> None:
        self._store = store
        self._ranges = ranges
        self.ref = store.ref
        self.location = store.location

    def exists(self) -> bool:
        return self._store.exists()

    def size(self) -> int:
        return sum(end - start for start, end in self._ranges)

    def readinto(self, offset: int, buffer: memoryview) -> int:
        for start, end in self._ranges:
            if offset < end - start:
                return self._store.readinto(start + offset, buffer[: end - start - offset])
            offset -= end - start
        return 0
