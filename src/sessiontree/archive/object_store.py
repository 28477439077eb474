"""Content-addressed storage of archived files: zstd-compressed objects named by the SHA-256 of their content.

`zstd -d` opens them without this program.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator

from msgspec import Struct

from sessiontree.errors import DamagedError, NotFoundError, WriteError
from sessiontree.stores.atomic_files import make_folder, publish_new, sync_folder, write_temporary
from sessiontree.stores.blobs import check_blob_name
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

LEVEL = 9
"""Compression level; docs/decisions/0011-archive.md compares the levels."""
_CHUNK = 1 << 20


class ArchivedFile(Struct, frozen=True):
    """One file in the archive: its original path and its content."""

    path: str
    sha256: str
    size: int
    mtime_ns: int = 0


class ObjectStore:
    """A folder of compressed objects."""

    def __init__(self, folder: str, os_calls: OsCalls = OS_CALLS) -> None:
        self._folder = folder
        self._os_calls = os_calls

    def put_file(self, path: str) -> ArchivedFile:
        """Store a copy of a file; it is durable and verified when this returns."""
        fd = self._os_calls.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            sha256, size = self.put(iter(lambda: file.read(_CHUNK), b""))
        return ArchivedFile(path, sha256, size, found.st_mtime_ns)

    def put(self, chunks: Iterable[bytes]) -> tuple[str, int]:
        """Store some bytes; returns their SHA-256 and size."""
        make_folder(self._folder, self._os_calls)
        digest, size = hashlib.sha256(), 0

        def compress() -> Iterator[bytes]:
            nonlocal size
            import zstandard

            compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compressobj()
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                yield compressor.compress(chunk)
            yield compressor.flush()

        try:
            temporary = write_temporary(os.path.join(self._folder, "incoming"), compress(), self._os_calls)
        except OSError as error:
            raise WriteError(f"{self._folder}: cannot be written: {error.strerror}; nothing was archived") from error
        sha256 = digest.hexdigest()
        try:
            # Read back before it gets its name: the original is deleted because an object of that name exists.
            self._verify(temporary, sha256)
            self._publish(temporary, sha256)
        finally:
            with contextlib.suppress(OSError):
                self._os_calls.unlink(temporary)
        return sha256, size

    def read(self, sha256: str) -> Iterator[bytes]:
        """The content of an object in chunks; `DamagedError` after the last chunk if the hash is wrong."""
        return self._decompress(self._path(sha256), sha256)

    def is_valid(self, sha256: str) -> bool:
        """Whether an object exists and is sound. Reads all of it."""
        try:
            self._verify(self._path(sha256), sha256)
        except (DamagedError, NotFoundError):
            return False
        return True

    def compressed_size(self, sha256: str) -> int:
        """The size of an object on disk; 0 if it does not exist."""
        try:
            return os.stat(self._path(sha256)).st_size
        except FileNotFoundError:
            return 0

    def delete(self, sha256: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._os_calls.unlink(self._path(sha256))

    def remove_temporary_files(self) -> None:
        """Remove what processes that died had begun to write. The caller must hold the archive's lock."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                if name.startswith(".incoming.") and name.endswith(".tmp"):
                    self._os_calls.unlink(os.path.join(self._folder, name))

    def _publish(self, temporary: str, sha256: str) -> None:
        path = self._path(sha256)
        make_folder(os.path.dirname(path), self._os_calls)
        if not os.path.lexists(path):
            publish_new(temporary, path, self._os_calls)
            return
        if not self.is_valid(sha256):
            self._os_calls.rename(temporary, path)  # replace a damaged object with the good copy
        # Even if the object existed: the process that wrote it may have died before it synced the folder.
        sync_folder(os.path.dirname(path), self._os_calls)

    def _verify(self, path: str, sha256: str) -> None:
        for _ in self._decompress(path, sha256):
            pass

    def _decompress(self, path: str, sha256: str) -> Iterator[bytes]:
        import zstandard

        digest = hashlib.sha256()
        try:
            with (
                open(path, "rb") as file,
                zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as reader,
            ):
                while chunk := reader.read(_CHUNK):
                    digest.update(chunk)
                    yield chunk
        except FileNotFoundError:
            raise NotFoundError(f"{path}: not in the archive") from None
        except zstandard.ZstdError as error:
            raise DamagedError(f"{path}: cannot be decompressed: {error}") from None
        if digest.hexdigest() != sha256:
            raise DamagedError(f"{path}: its content does not match its name")

    def _path(self, sha256: str) -> str:
        check_blob_name(sha256)
        return os.path.join(self._folder, sha256[:2], f"{sha256}.zst")
