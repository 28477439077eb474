"""Columns for the layout of a session: links over compactions, and results that are siblings."""

from __future__ import annotations

from collections.abc import Sequence

from sessiontree.core.entries import MessageEntry
from sessiontree.core.layout import LayoutColumns
from sessiontree.core.messages import ToolResult
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.defaults import placed_nodes
from sessiontree.dialects.neovate.path import find_summarized_end


def layout_columns(lines: IndexedLines) -> LayoutColumns:
    parents = list(lines.tree.earlier_parents())
    placed = placed_nodes(lines)
    broken = {problem.node for problem in lines.tree.problems() if problem.kind != "duplicate-id"}
    for node, parent in enumerate(parents):
        if parent is None and placed[node] and node not in broken:
            end = find_summarized_end(lines, node)
            parents[node] = None if end is None else lines.tree.find_before(lines.tree.ids[end], node)
    return LayoutColumns(parents, placed, _find_responses(lines, parents, placed))


def _find_responses(lines: IndexedLines, parents: Sequence[int | None], placed: Sequence[bool]) -> list[object]:
    """The number of the response that a line is, or whose calls it answers next to another line with results."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        if parent is not None and placed[node]:
            children.setdefault(parent, []).append(node)
    forks = {parent: nodes for parent, nodes in children.items() if len(nodes) > 1}
    found: list[object] = [None] * len(parents) if forks else []
    for parent, nodes in forks.items():
        results = [node for node, entry in zip(nodes, lines.entries(nodes), strict=True) if _has_results(entry)]
        for node in (parent, *results):
            found[node] = parent
    return found


def _has_results(entry: object) -> bool:
    return isinstance(entry, MessageEntry) and all(isinstance(message, ToolResult) for message in entry.messages)
