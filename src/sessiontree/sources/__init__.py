"""Sources: any storage in which a client keeps a session, exposed as a store of lines.

A dialect describes its storage (`dialects/storage.py`), and `open_source` opens it:

    a file of lines           the file itself, the only one that can be written
    a document                its lines, as the dialect's function gives them
    rows of a database        the rows of one session, read without creating or changing any file
    a compressed file         its decompressed lines
    a file that continues     the lines of the earlier file, then its own
    a session elsewhere       opened by the repository of its scheme

Damage in any of them becomes a line that is not JSON and names the reason. It is then reported as a problem of the
session, like any other damaged line.
"""

from __future__ import annotations

from sessiontree.sources.open import is_line_file, open_source

__all__ = ["is_line_file", "open_source"]
