"""The lines of a document that can be rewritten as a whole, such as by a repair."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sessiontree.errors import ConflictError
from sessiontree.sources.lines_store import LinesStore
from sessiontree.stores.contract import SessionRef
from sessiontree.stores.file import FileStore


class DocumentStore(LinesStore):
    """Lines as they were at the first read. `content` turns new ones into the content of the file."""

    def __init__(
        self,
        ref: SessionRef,
        produce: Callable[[], Iterable[bytes]],
        content: Callable[[Iterable[bytes]], Iterable[bytes]],
    ) -> None:
        super().__init__(ref, self._produce_once)
        self._lines = produce
        self._content = content
        self._file_size = 0

    def _produce_once(self) -> Iterable[bytes]:
        self._file_size = FileStore(self.ref.name).size()
        return self._lines()

    def replace(self, data: Iterable[bytes], *, expected_size: int) -> str:
        if self.size() != expected_size:
            raise ConflictError(f"{self.location}: changed during the rewrite; nothing was written")
        lines = [line for line in b"".join(data).split(b"\n") if line]
        backup = FileStore(self.ref.name).replace(self._content(lines), expected_size=self._file_size)
        self.close()
        return backup
