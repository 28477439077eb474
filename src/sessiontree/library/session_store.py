"""Open a listed session as a store of its lines, and compare an open session with the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.library.summary import Summary
from sessiontree.stores.contract import SessionStore
from sessiontree.stores.file import FileStore

if TYPE_CHECKING:
    from sessiontree.session.session import Session


def open_store(summary: Summary) -> SessionStore:
    """Open a session, wherever it is stored. Nothing is read before the first call of the store."""
    if summary.is_line_file:
        return FileStore(summary.ref)
    # Only other storage needs its dialect, whose import takes longer than reading a file.
    from sessiontree import plugins
    from sessiontree.library.roots import dialect_named
    from sessiontree.sources import open_source
    from sessiontree.stores.contract import parse_ref

    return open_source(parse_ref(summary.ref, plugins.names("stores")), dialect_named(summary.agent))


def size_in_cache(session: Session) -> int | None:
    """The size that the cache has for an unchanged session.

    None if the session has no file of its own lines: the cache then has the size of a document or of rows, and the
    next scan replaces whatever is stored about an older version.
    """
    from sessiontree.sources import is_line_file

    is_lines = bool(session.ref.home) or is_line_file(session.ref.name, session.dialect)
    return session.journal.size if is_lines else None
