"""Full-text search in all sessions of all agents: every branch, prompts, answers, thinking and tools.

    query, query_parser   the query language
    tokenizer             text -> terms
    text_extractor        a line of a session -> its searchable texts
    file_chunks           chunks of session files
    index_db, indexer     the index, and its updates
    index_query           which chunks of files match
    matcher               a query as an FTS5 expression, and as a test of lines
    ranking               the order of sessions
    branch_state          which branch a line is on
    unindexed_scan        search in files that are not indexed
    hit_builder, snippets, results   what a search returns
    session_filter        the sessions that a query applies to
    engine                the search itself
    embedder, vector_db, semantic          search by meaning (optional)
    prompt_history, prompt_db, prompt_spool, prompt_import   the history of typed prompts

From Python: `library.search("query", agent=..., since=...)` returns `Results`, an iterator of `Hit`s. The best sessions
come first, with at most `per_session` hits each. An invalid query never raises: `Results.notes` explains what was
ignored.

`refresh="auto"` indexes small additions first, and scans larger ones without the index. `"all"` updates the index
first; `"none"` does not change it. `Index.update(library.indexable(), progress=...)` only updates the index. It works
in small steps, so a killed update loses at most one of them.

Nothing here writes to a session. The index can be deleted at any time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.search.engine import search
    from sessiontree.search.indexer import Index
    from sessiontree.search.results import Hit, Results, read_hit
    from sessiontree.search.snippets import Part

# Imported on first use: a command that only records a prompt needs neither the index nor the engine.
_MODULES = {
    "Hit": "results",
    "Index": "indexer",
    "Part": "snippets",
    "Results": "results",
    "read_hit": "results",
    "search": "engine",
}

__all__ = ["Hit", "Index", "Part", "Results", "read_hit", "search"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.search' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.search.{_MODULES[name]}"), name)
