"""The contracts of a store (the bytes of one session) and of a blob store (large content, by its hash)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Store(Protocol):
    """A place that keeps the bytes of one session.

    Contract:
    * Bytes that were appended come back exactly, at the same offsets, for as long as the store exists. Nothing but
      `replace` and `overwrite` changes them.
    * Reading never writes, and works while others write: what is read is a prefix of what will be there.
    * Writing is done between `lock` and `unlock`. `lock` keeps other writers out (threads, processes, other stores on
      the same place) and gives the size at that moment. `append` writes all or nothing: when it fails, the bytes are
      as they were, and a `WriteError` is raised by every later `lock` until `resolve` finds the store sound.
    * `overwrite`, too, is called between `lock` and `unlock`. It puts bytes over as many at an offset if those are the
      expected ones, else it raises `ConflictError` and writes nothing. The size never changes. The death of the process
      leaves the old bytes or the new ones; a failure is kept like that of an append.
    * A store whose bytes were deleted, replaced or cut by someone else raises `ReplacedError` from `lock`, and writes
      nothing.
    * `create` makes the store with its first bytes, durably, all or nothing; `ExistsError` when it is there already.
    * `replace` swaps all bytes at once, durably: a reader sees the old or the new ones, never a mixture. It keeps the
      old ones as a backup whose name it gives back. `ConflictError` when the size is not the expected one.
    * `start_sync` says that a `sync` follows at once: what can begin without waiting begins, or nothing happens. It
      never raises; `sync` tells of what fails.
    * `sync` returns when everything appended or put over so far would survive a power cut.
    """

    @property
    def location(self) -> str:
        """Where the bytes are, for people."""
        ...

    def exists(self) -> bool: ...

    def size(self) -> int: ...

    def readinto(self, offset: int, buffer: memoryview) -> int:
        """Fill the buffer with the bytes at an offset; how many there were, 0 at the end."""
        ...

    def create(self, data: Iterable[bytes]) -> None: ...

    def lock(self) -> int: ...

    def append(self, data: bytes) -> None: ...

    def overwrite(self, offset: int, data: bytes, expected: bytes) -> None: ...

    def unlock(self) -> None: ...

    def replace(self, data: Iterable[bytes], expected_size: int) -> str: ...

    def start_sync(self) -> None: ...

    def sync(self) -> None: ...

    def resolve(self) -> None: ...

    def close(self) -> None: ...


class BlobStore(Protocol):
    """Keeps large content by its SHA-256.

    Contract:
    * `put` returns when the content is durably there, whole; putting the same content again is free of harm.
    * `get` gives the exact content, or None when there is none; `DamagedError` when it does not fit its name.
    * A name is 64 lower-case hex digits and nothing else; any other name is a `NotFoundError`, never a path.
    """

    def put(self, data: bytes) -> str: ...

    def get(self, name: str) -> bytes | None: ...


def read_bytes(store: Store, offset: int, size: int) -> bytes:
    """Some bytes of a store, fewer only when it ends before."""
    buffer = bytearray(size)
    with memoryview(buffer) as view:
        return bytes(view[: read_into(store, offset, view)])


def read_into(store: Store, offset: int, view: memoryview) -> int:
    """Fill a view with bytes of a store; how many there were, fewer only when it ends before."""
    held = 0
    while held < len(view):
        got = store.readinto(offset + held, view[held:])
        if got == 0:
            break
        held += got
    return held
