"""The sessions of Neovate (formerly Takumi), 0.9 to 0.28 and later.

    dialect         the dialect
    records         lines -> envelopes and entries
    path            leaf, path, history and context
    reparent        better parents where Neovate loses history
    header          id, origin, settings and title of a session
    locations       where files are
    metadata_lines  our own lines for what Neovate has no place for
    content         canonical messages <-> bodies of lines
    decode          lines -> canonical entries
    encoder         canonical entries -> lines, with
    line_builder      one line after the other,
    result_buffer     the results of a response, which are one line,
    kept_messages     the messages that a compaction keeps and repeats,
    rewrite           files in another order
    fork            a fork within Neovate

There is no header. Lines of the type `message` are entries; settings, file snapshots, titles and everything else are
metadata lines. Neovate loads the chain of the last message in the file, in file order; several roots are common, since
a compaction is a new root. 0.28 drops every response with a call that has no result in the current form. Providers do
not need that from us, so reading keeps all responses; what we write has a result for each call, so that nothing is
dropped.
"""

from sessiontree.dialects.neovate.dialect import NEOVATE
from sessiontree.dialects.neovate.locations import file_history_path, project_folder_name, tool_output_folder
from sessiontree.dialects.neovate.records import COMPACTION_MARK, INTERRUPTION

__all__ = [
    "COMPACTION_MARK",
    "INTERRUPTION",
    "NEOVATE",
    "file_history_path",
    "project_folder_name",
    "tool_output_folder",
]
