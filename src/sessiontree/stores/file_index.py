"""Indexes of session files, in the cache folder: one small file for each large session.

An index belongs to the bytes it was built from. If the session's file still has the recorded device, inode, size and
times, it is unchanged. If it has only grown, the bytes before the recorded end are compared at the start, at the end
and at places in between. Otherwise the index is not used.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from zlib import crc32

import msgspec
from msgspec import Struct

from sessiontree import paths
from sessiontree.stores.atomic_files import write_temporary
from sessiontree.stores.contract import StoredIndex

_TOTAL_SIZE = 256 << 20
"""Maximum size of all indexes together; the least recently used ones are removed."""
_LARGEST = 512 << 20
"""Largest session with an index: loading the index of a larger one would take more memory than reading the file."""
_COMPARED = 64
_COMPARED_SIZE = 4096
_TICK_NS = 20_000_000
"""A file that changed less than this ago may change again without its timestamps changing."""


class FileStamp(Struct, frozen=True, array_like=True):
    """The facts about a file that change with its content."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, fd: int) -> FileStamp:
        found = os.fstat(fd)
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    @property
    def is_settled(self) -> bool:
        return time.time_ns() - max(self.modified, self.changed) > _TICK_NS


class _IndexedFile(Struct, frozen=True, array_like=True):
    """The first part of an index file: which bytes the index after it belongs to."""

    path: str
    stamp: FileStamp
    checksum: int
    """Of some of the bytes."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_IndexedFile).decode
_LENGTH = 4
"""Bytes for the size of the first part."""


def read_index(path: str, name: str, fd: int, environment: Mapping[str, str]) -> StoredIndex | None:
    """The index of an open session file, if its bytes are still the indexed ones."""
    place = _index_path(path, name, environment)
    try:
        # The cache folder may be shared or restored from elsewhere: a pipe or a link there must not stop a reader.
        index = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(index, "rb") as file:
            of_index = os.fstat(index)
            if not stat.S_ISREG(of_index.st_mode) or of_index.st_size > _TOTAL_SIZE:
                return None
            content = file.read()
        begin = _LENGTH + int.from_bytes(content[:_LENGTH], "big")
        stored = _decode(memoryview(content)[_LENGTH:begin])
    except (OSError, msgspec.MsgspecError):
        return None
    was, now = stored.stamp, FileStamp.of(fd)
    if stored.path != path or (was.device, was.inode) != (now.device, now.inode) or now.size < was.size:
        return None
    # The same size with a different time means that the file was changed in place: nothing is known about its lines.
    if was != now and (now.size == was.size or _checksum(fd, was.size) != stored.checksum):
        return None
    with contextlib.suppress(OSError):
        os.utime(place)  # marks it as used, see `_remove_oldest`
    return StoredIndex(memoryview(content)[begin:], was.size)  # a copy may take 64 MB


def write_index(
    path: str, name: str, fd: int, before: FileStamp, pieces: Iterable[bytes], environment: Mapping[str, str]
) -> None:
    """Store an index of an open file, if it has not changed since `before`, when its reading began."""
    if before.size > _LARGEST or not before.is_settled:
        return
    # Checksum first, stamp second: a change while the bytes are being read shows in the stamp.
    checksum = _checksum(fd, before.size)
    if FileStamp.of(fd) != before:
        return
    place = _index_path(path, name, environment)
    folder = os.path.dirname(place)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        first = _encode(_IndexedFile(path, before, checksum))
        os.replace(write_temporary(place, chain([len(first).to_bytes(_LENGTH, "big"), first], pieces)), place)
        _remove_oldest(folder)
    except (OSError, UnicodeEncodeError):  # a full disk, a read-only folder: the session is read without an index
        return


def drop_indexes(path: str, environment: Mapping[str, str]) -> None:
    """Remove the indexes of a file whose bytes are overwritten."""
    stem = os.path.basename(_index_path(path, "", environment))
    for found in _iter_files(os.path.dirname(_index_path(path, "", environment))):
        if found.name.startswith(stem):
            with contextlib.suppress(OSError):
                os.unlink(found.path)


def _index_path(path: str, name: str, environment: Mapping[str, str]) -> str:
    # Two paths may share a name, so an index records its path. A better hash would load OpenSSL: 4 MB of memory.
    key = crc32(os.fsencode(path))
    return os.path.join(paths.cache_folder(environment), "indexes", f"{key:08x}.{name}")


def _checksum(fd: int, size: int) -> int:
    """A checksum of the first and the last bytes before an end, and of bytes in between."""
    checksum = 0
    last = max(size - _COMPARED_SIZE, 0)
    for number in range(_COMPARED + 1):
        start = last * number // _COMPARED
        checksum = crc32(os.pread(fd, min(_COMPARED_SIZE, size - start), start), checksum)
    return checksum


def _iter_files(folder: str) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        yield from found


def _remove_oldest(folder: str) -> None:
    files: list[tuple[float, int, str]] = []
    for found in _iter_files(folder):
        with contextlib.suppress(OSError):
            of_file = found.stat(follow_symlinks=False)
            files.append((of_file.st_mtime, of_file.st_size, found.path))
    left = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if left <= _TOTAL_SIZE:
            return
        os.unlink(path)
        left -= size
