"""A read-only store of lines that are produced on first use, such as those of a document or a compressed file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from sessiontree.errors import NotFoundError, SessionTreeError, StoreError
from sessiontree.stores.contract import SessionRef
from sessiontree.stores.read_only import ReadOnlyStore

_BLOCK = 4096
"""Small, because a few compressed bytes may expand to many."""
_DAMAGED = b"[damaged: "
_IN_MEMORY = 8 << 20
_LARGEST = 1 << 30
"""A small compressed file can expand to any size; the rest of one that exceeds this is reported and not read."""


class LinesStore(ReadOnlyStore):
    """The bytes that `produce` yields, as they were at the first read; open another one to see changes.

    Up to 8 MiB are held in memory, more in a temporary file without a name.
    """

    why_read_only = "it is read-only; `sessiontree fork SESSION --to native` makes a copy that can be written"

    def __init__(self, ref: SessionRef, produce: Callable[[], Iterable[bytes]]) -> None:
        self._held: bytearray | None = None
        self._file: IO[bytes] | None = None
        self.ref = ref
        self.location = str(ref)
        self._produce = produce
        self._size = 0

    def exists(self) -> bool:
        return os.path.exists(self.ref.name)

    def size(self) -> int:
        self._fill()
        return self._size

    def readinto(self, offset: int, buffer: memoryview) -> int:
        held = self._fill()
        if self._file is not None:
            return os.preadv(self._file.fileno(), [buffer], offset)
        with memoryview(held)[offset : offset + len(buffer)] as part:
            buffer[: len(part)] = part
            return len(part)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._held = self._file = None

    def __del__(self) -> None:
        self.close()

    def _fill(self) -> bytearray:
        if self._held is not None:
            return self._held
        held = bytearray()
        self._size = 0
        for chunk in _limited(self._produce(), self.location):
            self._size += len(chunk)
            held += chunk
            if len(held) > _IN_MEMORY:
                if self._file is None:
                    import tempfile  # slow to import, and most sessions are files of lines

                    self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the store
                self._file.write(held)
                held.clear()
        if self._file is not None:
            self._file.write(held)
            self._file.flush()
            held.clear()
        self._held = held
        return held


def iter_file(path: str) -> Iterator[bytes]:
    """The bytes of a file in blocks."""
    if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait for a writer
        raise StoreError(f"{path}: not a regular file")
    try:
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                yield block
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error


def damage_line(reason: object) -> bytes:
    """A line that reports damage: not JSON, so that every reader keeps it as a damaged line."""
    text = " ".join(str(reason).split())[:500]
    return b"%b%b]\n" % (_DAMAGED, text.encode("utf-8", "replace"))


def damage_of(head: bytes) -> str:
    """The damage that the first line reports; empty for any other line."""
    line = head.partition(b"\n")[0]
    return line.decode("utf-8", "replace").strip("[]") if line.startswith(_DAMAGED) else ""


def closed_line(line: bytes) -> bytes:
    """A line with LF. An LF inside could only be whitespace between JSON tokens."""
    return line.replace(b"\n", b" ") + b"\n"


def with_damage(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks up to the first that cannot be produced, then a line with the reason."""
    is_open = False
    try:
        for chunk in chunks:
            if chunk:
                is_open = not chunk.endswith(b"\n")
                yield chunk
    except SessionTreeError:
        raise  # the file is missing or may not be read
    except Exception as error:  # noqa: BLE001 - a dialect's function may fail in any way on damaged content
        yield b"\n" * is_open + damage_line(f"{type(error).__name__}: {error}")


def _limited(chunks: Iterable[bytes], location: str) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > _LARGEST:
            yield chunk[: _LARGEST - size]
            yield b"\n" + damage_line(f"{location}: more than {_LARGEST >> 30} GiB of lines; the rest is not read")
            return
        yield chunk
