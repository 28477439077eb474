"""Open a session, however its client stores it, as a store of lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from sessiontree.dialects.storage import Compressed, Document, Gathered, Joined, LineFile, Rows
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.sources.content import iter_content
from sessiontree.sources.lines_store import LinesStore, closed_line, damage_line, with_damage
from sessiontree.stores.contract import SessionRef, SessionStore
from sessiontree.stores.file import FileStore
from sessiontree.stores.repositories import open_repository

if TYPE_CHECKING:
    from sessiontree.dialects.contract import Dialect


def is_line_file(path: str, dialect: Dialect) -> bool:
    """Whether a file is stored as lines of one session, so that it can be read in part and written."""
    return isinstance(dialect.storage(path), LineFile)


def open_source(ref: SessionRef, dialect: Dialect) -> SessionStore:
    """Open a session as a store of lines. Nothing is read before the first call of the store, and nothing created."""
    if ref.home:
        return open_repository(ref.home).open(ref)
    storage = dialect.storage(ref.name)
    if ref.item and not isinstance(storage, Rows):
        raise NotFoundError(f"{ref}: {ref.name} contains only one session; leave out #{ref.item}")
    match storage:
        case LineFile():
            return FileStore(ref.name)
        case Joined():
            from sessiontree.sources.joined import open_joined

            return open_joined(ref.name, dialect, storage)
        case Rows():
            if not ref.item:
                raise UsageError(f"{ref.name}: contains several sessions; use {ref.name}#SESSION")
            return LinesStore(ref, partial(_iter_rows, ref, storage))
        case Gathered():
            from sessiontree.sources.gathered import iter_gathered

            return LinesStore(ref, partial(iter_gathered, ref.name, storage))
        case Document() if storage.content is not None:
            from sessiontree.sources.document_store import DocumentStore

            return DocumentStore(ref, partial(iter_content, ref.name, storage), storage.content)
        case Document() | Compressed():
            return LinesStore(ref, partial(iter_content, ref.name, storage))
        case _:
            assert_never(storage)


def _iter_rows(ref: SessionRef, storage: Rows) -> Iterator[bytes]:
    from sessiontree.sources.database import missing_pages, open_database, run_first
    from sessiontree.sources.items import has_item

    with open_database(ref.name) as database:
        is_empty = True
        rows = run_first(database, storage.lines, {"item": ref.item})
        for chunk in with_damage(_iter_row_lines(rows, storage)):
            is_empty = False
            yield chunk
        missing = missing_pages(ref.name)
        if missing and not is_empty:
            yield damage_line(f"{ref.name}: the file was cut: its last {missing} pages are missing")
        if is_empty and not has_item(database, storage, ref.item):
            raise NotFoundError(f"{ref}: no such session in the database")


def _iter_row_lines(rows: Iterable[Sequence[Any]], storage: Rows) -> Iterator[bytes]:
    for row in rows:
        try:
            found = storage.line(tuple(row))
            yield from map(closed_line, [found] if isinstance(found, bytes) else found)
        except Exception as error:  # noqa: BLE001 - the dialect's function may fail in any way on a damaged row
            yield damage_line(f"{type(error).__name__}: {error}")
