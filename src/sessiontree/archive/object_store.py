"""The contents of archived files: compressed, each named by the SHA-256 of what it holds.

`zstd -d` opens them without this program. An object has its name only after it was read back and compared; reading one
gives all of the right bytes, or raises.
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
"""How hard to compress: see docs/decisions/0011-archive.md for what the levels cost."""
_STEP = 1 << 20


class Stored(Struct, frozen=True):
    """One file in the archive: where it was, and what it held."""

    path: str
    sha256: str
    size: int
    mtime_ns: int = 0


class Objects:
    """Compressed contents in a folder."""

    def __init__(self, folder: str, os_calls: OsCalls = OS_CALLS) -> None:
        self._folder = folder
        self._os_calls = os_calls

    def put_file(self, path: str) -> Stored:
        """Keep a copy of a file. Returns when it is durably there and was compared; the file itself is left alone."""
        fd = self._os_calls.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            sha256, size = self.put(iter(lambda: file.read(_STEP), b""))
        return Stored(path, sha256, size, found.st_mtime_ns)

    def put(self, chunks: Iterable[bytes]) -> tuple[str, int]:
        """Keep some bytes: (their SHA-256, how many they are)."""
        make_folder(self._folder, self._os_calls)
        digest, size = hashlib.sha256(), 0

        def compressed() -> Iterator[bytes]:
            nonlocal size
            import zstandard

            compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compressobj()
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                yield compressor.compress(chunk)
            yield compressor.flush()

        try:
            temporary = write_temporary(os.path.join(self._folder, "incoming"), compressed(), self._os_calls)
        except OSError as error:
            raise WriteError(f"{self._folder}: could not be written: {error.strerror}; nothing was archived") from error
        sha256 = digest.hexdigest()
        try:
            self._compare(temporary, sha256)
            self._publish(temporary, sha256)
        finally:
            with contextlib.suppress(OSError):
                self._os_calls.unlink(temporary)
        return sha256, size

    def read(self, sha256: str) -> Iterator[bytes]:
        """The bytes behind a name; `DamagedError` behind the last of them when they are not the right ones."""
        return self._decompressed(self._path(sha256), sha256)

    def holds(self, sha256: str) -> bool:
        """Whether the content is there and sound. Reads all of it."""
        try:
            self._compare(self._path(sha256), sha256)
        except (DamagedError, NotFoundError):
            return False
        return True

    def packed_size(self, sha256: str) -> int:
        """How many bytes an object takes on the disk; 0 when there is none."""
        try:
            return os.stat(self._path(sha256)).st_size
        except FileNotFoundError:
            return 0

    def drop(self, sha256: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._os_calls.unlink(self._path(sha256))

    def sweep(self) -> None:
        """Take away what dead processes had begun to write. Only for one who keeps all others out."""
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
        if not self.holds(sha256):
            self._os_calls.rename(temporary, path)  # a damaged one: the good copy takes its place
        sync_folder(os.path.dirname(path), self._os_calls)  # the one who made it may have died before this

    def _compare(self, path: str, sha256: str) -> None:
        for _ in self._decompressed(path, sha256):
            pass

    def _decompressed(self, path: str, sha256: str) -> Iterator[bytes]:
        import zstandard

        digest = hashlib.sha256()
        try:
            with (
                open(path, "rb") as file,
                zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as reader,
            ):
                while chunk := reader.read(_STEP):
                    digest.update(chunk)
                    yield chunk
        except FileNotFoundError:
            raise NotFoundError(f"{path}: this content is not in the archive") from None
        except zstandard.ZstdError as error:
            raise DamagedError(f"{path}: cannot be decompressed: {error}") from None
        if digest.hexdigest() != sha256:
            raise DamagedError(f"{path}: its content does not fit its name")

    def _path(self, sha256: str) -> str:
        check_blob_name(sha256)
        return os.path.join(self._folder, sha256[:2], f"{sha256}.zst")
