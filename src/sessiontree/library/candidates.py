"""The library's sessions as tidying asks for them, from what is known already: no file is opened for it.

What a summary cannot tell for sure is left open, and whoever needs it looks into the file: labels always; of a file
that was not read whole, also the name, and the last message if it may stand in the part between.
"""

from __future__ import annotations

from collections.abc import Iterator

from sessiontree.archive.candidates import Candidate, whole_size
from sessiontree.library.library import Library
from sessiontree.library.summary import Summary


def candidates(library: Library) -> Iterator[Candidate]:
    """All sessions that something can be read of, but sub-agents."""
    for one in library.sessions():
        if _says_nothing(one):
            continue
        try:
            size = whole_size(one.path)
        except OSError:
            continue  # it was deleted meanwhile
        yield Candidate(
            path=one.path,
            agent=one.agent,
            id=one.id,
            active=one.active,
            title=one.title,
            named=one.named if one.is_whole else None,
            labelled=None,
            size=size,
            cwd=one.cwd if one.cwd or one.is_whole else None,
            is_dated=one.dated,
        )


def _says_nothing(one: Summary) -> bool:
    """A file of which all was read, or nothing could be, and that is no session by what is in it."""
    return one.is_whole and one.created is None and one.active is None and not one.messages
