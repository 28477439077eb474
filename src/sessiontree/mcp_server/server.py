"""The stdio server. A background thread updates the search index; until it is done, searches scan unindexed files."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping, Sequence

from sessiontree.errors import SessionTreeError, UsageError
from sessiontree.library.library import Library

TOOLS = ("search_sessions", "read_passage", "list_sessions", "recent_decisions")


def require_mcp() -> None:
    """Raise an error with an install hint if the package is missing."""
    try:
        import mcp.server.mcpserver  # noqa: F401
    except ModuleNotFoundError:
        raise UsageError("`sessiontree mcp` needs another package: pip install 'sessiontree[mcp]'") from None


def serve(home: str | None, roots: Mapping[str, Sequence[str]], *, refresh: bool = True) -> None:
    """Serve on stdin and stdout until the client closes them."""
    require_mcp()
    from sessiontree.mcp_server.tools import build_server

    def open_library() -> Library:
        return Library(home, roots)

    def index() -> None:
        """Update the index. Each step is kept, even if the process is killed."""
        from sessiontree.search.indexer import open_indexes

        try:
            with open_library() as library, open_indexes(library) as parts:
                for part in parts:
                    part.update(timeout=0.0)
        except (sqlite3.Error, OSError, SessionTreeError):
            return  # searches scan the files instead, and note that
        finally:
            indexed.set()

    indexed = threading.Event()
    if refresh:
        threading.Thread(target=index, daemon=True).start()
    build_server(open_library, indexed if refresh else None).run("stdio")
