"""Reparenting where Neovate loses history:

* the first message after an old automatic compaction, written without a parent, follows the summary;
* a root after a line that is not a message follows the message before it: Neovate uses the last line of the file, of
  any type, as the parent;
* a message whose parent is lost follows the message before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sessiontree.dialects.contract import IndexedLines, Reparenting
from sessiontree.dialects.neovate.metadata_lines import marks_of
from sessiontree.dialects.neovate.records import MESSAGE, is_compaction


def find_reparentings(lines: IndexedLines) -> list[Reparenting]:
    found: list[Reparenting] = []
    replacements: dict[str, int] = {}
    for node, before in _iter_with_before(lines):
        lost = lines.tree.missing_parent(node)
        if lost is not None:  # children of one lost message get the same parent: branches stay branches
            parent = replacements.setdefault(lost, before)
            found.append(Reparenting(node, parent, "it comes before the first child of the lost parent"))
        elif lines.tree.parent(node) is None:
            missing = _root_reparenting(lines, node, before)
            found += [missing] if missing is not None else []
    return found


def _root_reparenting(lines: IndexedLines, root: int, before: int) -> Reparenting | None:
    """Find the parent that a root lacks; None for an intended root."""
    # Intended roots: a compaction, a root that we wrote as one, the node where a cycle was cut, or a root moved after
    # its own children to become the current entry.
    fields, earlier = lines.fields([root, before])
    if fields.get("parentUuid") or is_compaction(fields) or marks_of(fields).get("root"):
        return None
    if fields.get("role") == "assistant" and is_compaction(earlier):
        return Reparenting(root, before, "old automatic compaction forgot the summary", "summary-off-path")
    if lines.types[root - 1] != MESSAGE and lines.tree.common_ancestor(before, root) != root:
        return Reparenting(root, before, "its parent was taken from a line that is not a message", "false-root")
    return None


def _iter_with_before(lines: IndexedLines) -> Iterator[tuple[int, int]]:
    """Iterate over all messages except the first, each with the message before it in the file."""
    before: int | None = None
    for node, kind in enumerate(lines.types):
        if kind == MESSAGE:
            if before is not None:
                yield node, before
            before = node
