"""Compaction boundaries: where the context starts over, and which earlier lines a boundary preserves.

A boundary names the preserved lines in a list (`preservedMessages`) or by the ends of a segment (`preservedSegment`),
and an anchor. As measured with client 2.1.325:

* Preserved lines stay where they are in the file, with their old parents. On the path they follow the anchor and
  precede its former children. The anchor is the summary for `/compact` (summary, then the preserved tail), and the
  boundary itself for "Summarize from here" (the preserved start, then the summary).
* The list takes precedence over the segment, and may have gaps.
* If the anchor or an end of the segment is missing, nothing is preserved; the summary is still used.
* A boundary as the very last line compacts nothing: the full history is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.records import Fields, object_in


class Preserved(Struct, frozen=True):
    """The lines that a boundary preserves, and the parents they have on paths through it."""

    links: dict[int, int | None]
    nodes: frozenset[int] = frozenset()
    listed: frozenset[int] | None = None
    """All lines before the boundary that the client uses at all; None when the boundary has no list."""


def find_preserved(chain: Chain, boundary: int) -> Preserved:
    """Return what a boundary preserves of the lines before it."""
    (line,) = chain.lines.fields([boundary])
    metadata = object_in(line, "compactMetadata")
    by_list = object_in(metadata, "preservedMessages")
    uuids = by_list.get("uuids")
    if isinstance(uuids, list):
        nodes = _find_links(chain, uuids)
        # `allUuids` also lists lines off the path: results of parallel calls, and other shards.
        all_uuids = by_list.get("allUuids")
        others = _find_links(chain, all_uuids) if isinstance(all_uuids, list) and all_uuids != uuids else []
        return _splice(chain, boundary, by_list, nodes, frozenset({*nodes, *others}))
    segment = object_in(metadata, "preservedSegment")
    return _splice(chain, boundary, segment, _segment_nodes(chain, segment), None)


def _splice(
    chain: Chain, boundary: int, metadata: Fields, nodes: Sequence[int], listed: frozenset[int] | None
) -> Preserved:
    anchor = chain.find_link(metadata.get("anchorUuid"))
    preserved = list(dict.fromkeys(node for node in nodes if node not in (anchor, boundary)))
    if anchor is None or not preserved:
        return Preserved({}, listed=listed)
    links: dict[int, int | None] = dict(zip(preserved, [anchor, *preserved[:-1]], strict=True))
    for child in chain.children(anchor):
        links.setdefault(child, preserved[-1])
    links.pop(boundary, None)  # the boundary stays a root, whatever it names as its parent
    return Preserved(links, frozenset(preserved), listed)


def _find_links(chain: Chain, uuids: Sequence[object]) -> list[int]:
    return [node for uuid in uuids if (node := chain.find_link(uuid)) is not None]


def _segment_nodes(chain: Chain, segment: Fields) -> list[int]:
    """Return the lines from head to tail; none when the head is not an ancestor of the tail."""
    head = chain.find_link(segment.get("headUuid"))
    if head is None:
        return []
    found: list[int] = []
    for node in chain.iter_ancestors(chain.find_link(segment.get("tailUuid"))):
        if chain.types[node] != "progress":
            found.append(node)
        if node == head:
            return found[::-1]
    return []


def has_summary(chain: Chain, path: Sequence[int], boundary: int) -> bool:
    """Whether the summary of a boundary follows it on the path.

    A child of the boundary counts as its summary even if it is not marked as one.
    """
    for node in path[path.index(boundary) + 1 :]:
        if chain.types[node] == "message" and (chain.facts(node).is_summary or chain.parents[node] == boundary):
            return True
    return False


def find_leaf_before(chain: Chain, boundary: int) -> int | None:
    """Return the line that was the leaf when the conversation was compacted."""
    (line,) = chain.lines.fields([boundary])
    logical_parent = chain.find_link(line.get("logicalParentUuid"))
    if logical_parent is not None and logical_parent < boundary:
        return logical_parent
    parent = chain.parents[boundary]
    return parent if parent is not None else next(chain.iter_links_before(boundary), None)
