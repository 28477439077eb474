"""The session library: all sessions on this machine, listed, grouped into threads, and aggregated.

    roots           the folders where each agent keeps sessions
    scan            the files below them that may contain sessions
    scanner         one scan: what did not change from the cache, the rest read
    snapshot        what is known, for any thread, and changes from a background scan
    session_store   a listed session as a store of its lines
    summary         a session as a listing shows it
    summary_reader  head and tail of a session -> a summary, and the state to continue from
    partial_reader  the lines that were read: prompts in them, and which of them to keep
    counts          messages, branches and usage
    session_stats   usage and activity of one whole file, with keys that its copies share
    aggregate       statistics of many sessions, each response counted once
    cache           summaries and statistics that were read before, in one SQLite file
    projects        whether two folders belong to the same project, even after they are gone
    threads         forks below their origin, sub-agents below their parent
    library         `Library`, the entry point
    last_session    the last session of this terminal

Nothing here writes to a session. The cache can be deleted at any time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.library.library import Library
    from sessiontree.library.summary import Summary

# Imported on first use: a command that only records the last session needs neither the cache nor the readers.
_MODULES = {"Library": "library", "Summary": "summary"}

__all__ = ["Library", "Summary"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.library' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.library.{_MODULES[name]}"), name)
