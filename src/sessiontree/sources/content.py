"""The lines of a document or a compressed file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sessiontree.dialects.storage import Compressed, Document, LineFile
from sessiontree.sources.lines_store import closed_line, iter_file, with_damage


def _iter_document(chunks: Iterable[bytes], storage: Document) -> Iterator[bytes]:
    yield from map(closed_line, storage.lines(b"".join(chunks)))


def iter_content(path: str, storage: Document | Compressed) -> Iterator[bytes]:
    chunks = iter_file(path)
    content: LineFile | Document = storage if isinstance(storage, Document) else storage.content
    if isinstance(storage, Compressed):
        from sessiontree.sources.compressed import iter_decompressed

        chunks = iter_decompressed(chunks, storage.codec)
    return with_damage(chunks if isinstance(content, LineFile) else _iter_document(chunks, content))
