"""The sessions of Neovate (formerly Takumi), 0.9 to 0.28 and later.

    dialect         the dialect
    records         decodes lines into envelopes and entries
    path            leaf, path, history and context
    reparent        better parents where Neovate loses history
    header          id, origin, settings and title of a session
    locations       paths of sessions, copies of files and tool output
    metadata_lines  our own lines for entries that Neovate cannot store
    content         converts canonical messages to bodies of lines, and back
    decode          decodes lines into canonical entries
    encoder         encodes canonical entries as lines, with the help of
    line_builder      builds one line after the other
    result_buffer     collects the results of a response, which are one line
    kept_messages     the messages that a compaction keeps and repeats
    rewrite           rewrites a file in another order
    fork            a fork within Neovate

There is no header. Lines of the type `message` are entries; settings, file snapshots, titles and everything else are
metadata lines. Neovate loads the chain of the last message in the file, in file order. Several roots are common, since
a compaction is a new root. Version 0.28 drops every response with a call that has no result in the current form. We
keep all responses when reading, because `providers` completes such calls. When writing, every call gets a result, so
that Neovate drops nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.dialects.neovate.client import CLIENT
    from sessiontree.dialects.neovate.dialect import NEOVATE
    from sessiontree.dialects.neovate.locations import file_history_path, project_folder_name, tool_output_folder
    from sessiontree.dialects.neovate.records import COMPACTION_MARK, INTERRUPTION

# Imported on first use: a search needs the client alone.
_MODULES = {
    "CLIENT": "client",
    "COMPACTION_MARK": "records",
    "INTERRUPTION": "records",
    "NEOVATE": "dialect",
    "file_history_path": "locations",
    "project_folder_name": "locations",
    "tool_output_folder": "locations",
}

__all__ = [
    "CLIENT",
    "COMPACTION_MARK",
    "INTERRUPTION",
    "NEOVATE",
    "file_history_path",
    "project_folder_name",
    "tool_output_folder",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.dialects.neovate' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.dialects.neovate.{_MODULES[name]}"), name)
