"""Claude Code transcripts: a chain of lines, with many metadata lines between them and no header.

Reading:

    records         line types, and a line's envelope
    content         content blocks, both ways
    messages        a line -> its messages and its entry
    index           blocks of lines -> envelopes and line summaries, at open
    chain           facts about each line, and the walk from a leaf to its root
    boundaries      compaction boundaries, and the lines they preserve
    reparent        parents for lines whose parent is missing, and for false roots
    parallel_calls  shards and results of parallel tool calls, which a plain walk misses
    path            the current leaf, and the path to a leaf: the four above combined
    context         a path -> the messages a model receives
    tail_scan       the byte ranges of a large file that its context is built from
    header          the session's id, folder, origin, title; format detection
    locations, related_files   where the client keeps transcripts and the files that belong to them

Canonical entries in and out:

    history         the complete conversation of a leaf, including what compactions replaced
    decode          groups the lines of each entry; `decode_lines` decodes each group
    encoder         the encoder; `encode_user` and `encode_assistant` encode messages
    transcript      a transcript under construction, used by all of them
    line_builder    builds lines: common fields, ids, times
    write_state     maps encoded entries to lines, parents and open calls
    fork            a new session that starts with the lines of another
    truncate        the lines that stay when a transcript is cut at its last compaction
    worktree_notes  the client's own records of worktrees and file copies

The rules are those of client 2.1.325 as measured; `ReadOptions` selects others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.dialects.claude.client import CLIENT
    from sessiontree.dialects.claude.dialect import CLAUDE

# Imported on first use: a search needs the client alone.
_MODULES = {"CLAUDE": "dialect", "CLIENT": "client"}

__all__ = ["CLAUDE", "CLIENT"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.dialects.claude' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.dialects.claude.{_MODULES[name]}"), name)
