"""Which lines of a Neovate session stay when it is truncated to its last compaction."""

from __future__ import annotations

from collections.abc import Sequence

from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.neovate.records import is_compaction
from sessiontree.dialects.truncation import find_head, iter_metadata


def find_kept_lines(lines: IndexedLines, path: Sequence[int]) -> set[int] | None:
    """Find the lines that must stay for a path; None if it does not start at a compaction."""
    if not path or lines.tree.parent(path[0]) is not None or not is_compaction(lines.fields([path[0]])[0]):
        return None
    kept = {*path, *find_head(lines, path[0])}
    return kept | set(iter_metadata(lines, path[0], kept))
