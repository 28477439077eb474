"""Finding what was said: in any session of any agent, on any branch, in prompts, answers, thinking and tools.

    query      a line of text as typed -> what it asks for
    tokens     text -> the terms it is found by
    texts      a line of a session -> the texts in it that can be found
    lines      places in a session file, and how they are read again
    store      the index as a file
    index      bringing the index up to date with the session files
    matching   a query as an expression for the index, and as a test of lines
    ranking    which sessions come first
    branches   on which branch a line lies
    patterns   regular expressions with a time limit
    scan       looking through the bytes of files that have no index yet
    snippets   the part of a text that shows a hit
    searching  all of it together
    choosing   which sessions a query is about
    embedding  texts as vectors, and who makes them (optional)
    vectors    the vectors of passages as a file
    semantic   search by meaning beside search by words
    history    the prompts of the user

From Python: `library.search("query", agent=..., since=...)` gives `Results`, an iterator of `Hit`s, the best sessions
first, at most `per_session` of each. It never raises for what a query says; `Results.notes` has what there is to say to
whoever asked, `state` whether the index or the bytes of the files were asked, `unindexed` how many bytes the index does
not know, and `next_offset` where the next page begins.

`refresh="auto"` reads small additions into the index first and looks through the bytes of what is too large for that;
`"all"` brings the index up to date before, `"none"` leaves it as it is. `Index.update(library.everything(),
progress=...)` does the reading alone, in small steps that survive the end of the process.

Nothing here writes to a session. The index can be deleted at any time.
"""

from sessiontree.search.engine import Hit, Results, read_hit, search
from sessiontree.search.indexer import Index
from sessiontree.search.snippets import Part

__all__ = ["Hit", "Index", "Part", "Results", "read_hit", "search"]
