"""Open a listed session as a store of its lines."""

from __future__ import annotations

from sessiontree.library.summary import Summary
from sessiontree.stores.contract import SessionStore
from sessiontree.stores.file import FileStore


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
