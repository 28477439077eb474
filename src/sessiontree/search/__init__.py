"""Full-text search in all sessions of all agents: every branch, prompts, answers, thinking and tools.

    query, query_parser   the query language
    tokenizer             text -> terms
    texts, text_extractor a line of a session -> its searchable texts
    file_chunks           chunks of session files
    index_db, indexer     the index, and its updates
    matcher               a query as FTS5 expression, and as test of lines
    ranking               order of sessions
    branch_state          which branch a line is on
    unindexed_scan        search in files that are not indexed
    snippets, results     what a search returns
    session_filter        sessions that a query applies to
    engine                the search itself
    embedder, vector_db, semantic          search by meaning (optional)
    prompt_history, prompt_db, prompt_spool, prompt_import   the history of typed prompts

From Python: `library.search("query", agent=..., since=...)` returns `Results`, an iterator of `Hit`s, the best sessions
first, at most `per_session` of each. It never raises for an invalid query; `Results.notes` has messages to the user,
`state` is how hits were found, `unindexed` the number of bytes not indexed yet, `next_offset` the start of the next
page.

`refresh="auto"` indexes small additions first and scans what is too large for that; `"all"` updates the index first,
`"none"` leaves it as it is. `Index.update(library.everything(), progress=...)` only updates, in small steps that
survive a kill.

Nothing here writes to a session. The index can be deleted at any time.
"""

from sessiontree.search.engine import search
from sessiontree.search.indexer import Index
from sessiontree.search.results import Hit, Results, read_hit
from sessiontree.search.snippets import Part

__all__ = ["Hit", "Index", "Part", "Results", "read_hit", "search"]
