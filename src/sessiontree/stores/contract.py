"""Protocols of a store (the bytes of one session) and of a blob store (large content by its hash)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Store(Protocol):
    """The bytes of one session.

    Contract:
    * Appended bytes are read back exactly, at the same offsets, as long as the store exists. Only `replace` and
      `overwrite` change them.
    * Reads never write, and work while others write: they return a prefix of the final bytes.
    * Writes happen between `lock` and `unlock`. `lock` excludes other writers (threads, processes, other stores of the
      same bytes) and returns the current size. `append` writes all or nothing: when it fails, the bytes are unchanged,
      and every later `lock` raises the `WriteError` again until `resolve` succeeds.
    * `overwrite` is also called between `lock` and `unlock`. It replaces bytes at an offset by as many others if they
      are the expected ones, else it raises `ConflictError` and writes nothing. The size never changes. If the process
      dies, the old or the new bytes are there. A failure blocks later writes like that of an append.
    * After another program deleted, replaced or truncated the bytes, `lock` raises `ReplacedError`.
    * `create` creates the store with its first bytes, durably, all or nothing; `ExistsError` if it already exists.
    * `replace` replaces all bytes at once, durably: a reader sees the old or the new ones, never a mixture. It keeps
      the old ones as a backup and returns its name. `ConflictError` when the size is not the expected one.
    * `start_sync` announces that `sync` follows immediately, so that the disk can start early. It never raises; `sync`
      reports failures.
    * `sync` returns when everything appended or overwritten so far would survive a power cut.
    """

    @property
    def location(self) -> str:
        """Location of the bytes, for display: a path or a URL."""
        ...

    def exists(self) -> bool: ...

    def size(self) -> int: ...

    def readinto(self, offset: int, buffer: memoryview) -> int:
        """Read bytes at an offset into a buffer and return their number; 0 at the end."""
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
    """Large content by its SHA-256.

    Contract:
    * `put` returns when the complete content is durable; storing the same content again changes nothing.
    * `get` returns the exact content, or None if it is missing; `DamagedError` when it does not match its name.
    * A name is 64 lower-case hex digits; any other name is a `NotFoundError`, never used as a path.
    """

    def put(self, data: bytes) -> str: ...

    def get(self, name: str) -> bytes | None: ...


def read_bytes(store: Store, offset: int, size: int) -> bytes:
    """Read bytes of a store; fewer than `size` only at its end."""
    buffer = bytearray(size)
    with memoryview(buffer) as view:
        return bytes(view[: read_into(store, offset, view)])


def read_into(store: Store, offset: int, view: memoryview) -> int:
    """Fill a view with bytes of a store and return their number; less than its size only at the end."""
    held = 0
    while held < len(view):
        got = store.readinto(offset + held, view[held:])
        if got == 0:
            break
        held += got
    return held
