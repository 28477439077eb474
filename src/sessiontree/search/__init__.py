"""Full-text search in all sessions of all agents: every branch, prompts, answers, thinking and tools.

    query, query_parser   the query language
    tokenizer             text -> terms
    texts, text_extractor a line of a session -> its searchable texts
    file_chunks           chunks of session files
    index_db, indexer     the index, and its updates
    matcher               a query as an FTS5 expression, and as a test of lines
    ranking               the order of sessions
    branch_state          which branch a line is on
    unindexed_scan        search in files that are not indexed
    snippets, results     what a search returns
    session_filter        the sessions that a query applies to
    engine                the search itself
    embedder, vector_db, semantic          search by meaning (optional)
    prompt_history, prompt_db, prompt_spool, prompt_import   the history of typed prompts

From Python: `library.search("query", agent=..., since=...)` returns `Results`, an iterator of `Hit`s. The best sessions
come first, with at most `per_session` hits each. An invalid query never raises: `Results.notes` explains what was
ignored.

`refresh="auto"` indexes small additions first, and scans larger ones without the index. `"all"` updates the index
first; `"none"` does not change it. `Index.update(library.everything(), progress=...)` only updates the index. It works
in small steps, so a killed update loses at most one of them.

Nothing here writes to a session. The index can be deleted at any time.
"""

from sessiontree.search.engine import search
from sessiontree.search.indexer import Index
from sessiontree.search.results import Hit, Results, read_hit
from sessiontree.search.snippets import Part

__all__ = ["Hit", "Index", "Part", "Results", "read_hit", "search"]
