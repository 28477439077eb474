"""Many sessions: all that can be found on the machine, listed, threaded, continued.

    roots         the folders where each agent keeps sessions
    finding       the session files below them
    summary       what a listing tells of one session
    reading       the head and tail of a file -> a summary, and what a later look can go on from
    window        the lines that were read: what people said in them, which of them to keep
    counting      messages, branches and usage of the lines that were read
    facts         what one whole file used and did, with keys that its copies share
    stats         many sessions added up, each thing once
    cache         what was read before, in one SQLite file
    repositories  which git repository a folder belongs to
    projects      whether two folders are the same project; what is remembered of folders that are gone
    threads       forks under their origin, sub-agents under their parent
    library       `Library`: all of it together
    candidates    the sessions as tidying asks for them
    breadcrumbs   the last session of this terminal

Nothing here writes to a session. What can be derived is in the cache and can be deleted at any time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.library.library import Library
    from sessiontree.library.summary import Summary

# Imported when first used: a command that only leaves a breadcrumb needs neither the cache nor what reads sessions.
_HOME_OF = {"Library": "library", "Summary": "summary"}

__all__ = ["Library", "Summary"]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sessiontree.library' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.library.{_HOME_OF[name]}"), name)
