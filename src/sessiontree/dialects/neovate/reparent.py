"""Better links where Neovate loses history.

* the first message after an old automatic compaction, which forgot its parent, follows the summary;
* a root behind a line that is no message follows the message before it: Neovate takes the parent from the last line of
  the file, whatever that is;
* a message whose parent is lost follows the message before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sessiontree.dialects.contract import IndexedLines, Reparenting
from sessiontree.dialects.neovate.metadata_lines import marks_of
from sessiontree.dialects.neovate.records import MESSAGE, is_compaction


def find_reparentings(lines: IndexedLines) -> list[Reparenting]:
    relinks: list[Reparenting] = []
    stands_for: dict[str, int] = {}
    for node, before in _iter_with_before(lines):
        lost = lines.tree.missing_parent(node)
        if lost is not None:  # all children of a lost message get the same parent, so that branches stay branches
            parent = stands_for.setdefault(lost, before)
            relinks.append(Reparenting(node, parent, "it stands where the lost parent stood"))
        elif lines.tree.parent(node) is None:
            relink = _root_relink(lines, node, before)
            relinks += [relink] if relink is not None else []
    return relinks


def _root_relink(lines: IndexedLines, root: int, before: int) -> Reparenting | None:
    """The link that a root lacks, or None when it is one in its own right.

    That is a compaction, a root that we wrote as one, where a ring was opened, or one that was moved behind its own
    children, because the session was to stand there.
    """
    fields, earlier = lines.fields([root, before])
    if fields.get("parentUuid") or is_compaction(fields) or marks_of(fields).get("root"):
        return None
    if fields.get("role") == "assistant" and is_compaction(earlier):
        return Reparenting(root, before, "old automatic compaction forgot the summary", "summary-off-path")
    if lines.types[root - 1] != MESSAGE and lines.tree.common_ancestor(before, root) != root:
        return Reparenting(root, before, "its parent was looked for on a line that is no message", "false-root")
    return None


def _iter_with_before(lines: IndexedLines) -> Iterator[tuple[int, int]]:
    """Each message but the first, with the message before it in the file."""
    before: int | None = None
    for node, kind in enumerate(lines.types):
        if kind == MESSAGE:
            if before is not None:
                yield node, before
            before = node
