"""Columns for the layout of a transcript: links over compactions, and the lines of each response."""

from __future__ import annotations

from collections.abc import Sequence

from sessiontree.core.layout import LayoutColumns
from sessiontree.dialects.claude.chain import LINK_TYPES, Chain
from sessiontree.dialects.claude.messages import SENT_TYPES
from sessiontree.dialects.claude.records import string_in
from sessiontree.dialects.contract import EntryKind, IndexedLines, is_metadata_id
from sessiontree.dialects.defaults import placed_nodes
from sessiontree.dialects.passthrough import passthrough_of

_SUMMARIES = frozenset({"compaction", "branch_summary"})


def layout_columns(lines: IndexedLines) -> LayoutColumns:
    parents = list(lines.tree.earlier_parents())
    placed = placed_nodes(lines)
    for node, kind in enumerate(lines.types):
        if kind == "compaction" and placed[node]:
            parents[node] = _find_summarized_end(lines, node, parents[node])
    return LayoutColumns(parents, placed, _find_responses(lines, parents, placed))


def entry_kinds(lines: IndexedLines) -> list[EntryKind]:
    """Tell the kinds of entries by the summaries that were created at open."""
    chain = Chain(lines)
    nodes = [node for node, type in enumerate(lines.types) if type in SENT_TYPES]
    chain.load_summaries(nodes)
    kinds: list[EntryKind] = ["summary" if type in _SUMMARIES else "other" for type in lines.types]
    for node in nodes:
        summary = chain.summary(node)
        if summary.results:
            kinds[node] = "result"
        elif summary.is_assistant:
            kinds[node] = "calls" if summary.calls else "answer"  # the client writes one block to a line
        elif summary.is_message:
            # The client writes its summary as a message of the user, after the boundary.
            parent = lines.tree.parent(node)
            may_be_summary = parent is None or lines.types[parent] == "compaction"
            kinds[node] = "summary" if may_be_summary and chain.facts(node).is_summary else "prompt"
    return kinds


def _find_summarized_end(lines: IndexedLines, boundary: int, parent: int | None) -> int | None:
    """The line that was the leaf when the conversation was compacted; a boundary itself is a root in the file."""
    (line,) = lines.fields([boundary])
    named = string_in(line, "logicalParentUuid")
    found = lines.tree.find_before(named, boundary) if named else None
    if found is not None or parent is not None:
        return found if found is not None else parent
    if named is None and passthrough_of(line):
        return None  # the first entry of a session that we wrote
    ids, types = lines.tree.ids, lines.types
    earlier = range(boundary - 1, -1, -1)
    return next((node for node in earlier if types[node] in LINK_TYPES and not is_metadata_id(ids[node])), None)


def _has_siblings(parents: Sequence[int | None]) -> bool:
    has_child = bytearray(len(parents))  # flags: a set of 500,000 numbers takes 33 MB
    for parent in parents:
        if parent is not None:
            if has_child[parent]:
                return True
            has_child[parent] = True
    return False


def _find_responses(lines: IndexedLines, parents: Sequence[int | None], placed: Sequence[bool]) -> list[object]:
    """The id of the response that a line is a shard of, or whose call it answers.

    Shards and results of parallel calls are siblings in the file (`parallel_calls`).
    """
    if not _has_siblings(parents):
        return []
    chain = Chain(lines)
    nodes = [node for node in range(len(parents)) if placed[node] and lines.types[node] == "message"]
    chain.load_summaries(nodes)
    found: list[object] = [None] * len(parents)
    for node in nodes:
        summary = chain.summary(node)
        if summary.response:
            found[node] = summary.response
        elif summary.results:
            parent = parents[node]
            while parent is not None and not placed[parent]:
                parent = parents[parent]
            found[node] = None if parent is None else found[parent]
    return found
