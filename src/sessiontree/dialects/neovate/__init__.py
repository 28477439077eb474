"""The sessions of Neovate (once Takumi), 0.9 to 0.28 and after: read, told in canonical form, and written.

    wire        lines -> envelopes and entries path        where a session stands, which lines belong to a leaf, and
    which did before a compaction relinks     better links where Neovate loses history about, titles  what a session is:
    id, origin, settings; its name places      where files lie asides      lines of our own, beside the tree: what
    Neovate has no place for hearing     the words of a line -> a message in canonical form saying      a message in
    canonical form -> the words of a line deltas, riding  what the words leave out, and how it rides along plain
    the short way for ordinary messages, of which it is known what their lines do not say telling     lines -> items
    encoder      items -> lines, by way of `drafts` and `sheet`; results are gathered in `turns`, what a compaction
    keeps
                is remembered in `kept`, and `reordering` says by the order of lines what cannot be said otherwise
    copying     a fork within Neovate

There is no header. A line of the type `message` is an entry; a `config` line, file snapshots, titles and anything else
are asides. What Neovate loads is the chain of the last message in the file, put in the order of the file; roots are
common, since a compaction is nothing but a new root. Versions differ: 0.28 drops every assistant message of which a
call has no result in the new form. That is a loss, and providers need no such thing from us, so all are kept when a
file is read; what we write has a result for each call, so that nothing is dropped.
"""

from sessiontree.dialects.neovate.dialect import NEOVATE
from sessiontree.dialects.neovate.places import file_history_path, project_folder_name, tool_output_folder
from sessiontree.dialects.neovate.records import COMPACTION_MARK, INTERRUPTION

__all__ = [
    "COMPACTION_MARK",
    "INTERRUPTION",
    "NEOVATE",
    "file_history_path",
    "project_folder_name",
    "tool_output_folder",
]
