"""Some parts of a store as if they were all of it. Only to be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sessiontree.errors import ReadOnlyError
from sessiontree.stores.contract import Store


class SliceStore:
    """Parts of another store, one behind the other."""

    def __init__(self, store: Store, parts: Sequence[tuple[int, int]]) -> None:
        self._store = store
        self._parts = parts
        self.location = store.location

    def exists(self) -> bool:
        return self._store.exists()

    def size(self) -> int:
        return sum(end - start for start, end in self._parts)

    def readinto(self, offset: int, buffer: memoryview) -> int:
        for start, end in self._parts:
            if offset < end - start:
                return self._store.readinto(start + offset, buffer[: end - start - offset])
            offset -= end - start
        return 0

    def start_sync(self) -> None:
        """Nothing is written here."""

    def sync(self) -> None:
        """Nothing is written here."""

    def resolve(self) -> None:
        """Nothing is written here."""

    def close(self) -> None:
        """The store behind it is someone else's to close."""

    def create(self, data: Iterable[bytes]) -> None:  # noqa: ARG002 - the contract's
        raise self._refusal()

    def lock(self) -> int:
        raise self._refusal()

    def append(self, data: bytes) -> None:  # noqa: ARG002 - the contract's
        raise self._refusal()

    def overwrite(self, offset: int, data: bytes, expected: bytes) -> None:  # noqa: ARG002 - the contract's
        raise self._refusal()

    def unlock(self) -> None:
        raise self._refusal()

    def replace(self, data: Iterable[bytes], expected_size: int) -> str:  # noqa: ARG002 - the contract's
        raise self._refusal()

    def _refusal(self) -> ReadOnlyError:
        return ReadOnlyError(f"{self.location}: parts of a session are only read")
