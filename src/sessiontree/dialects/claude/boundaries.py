"""Compaction boundaries: where the context begins anew, and which lines before it are kept.

A boundary names the kept lines by a list or by the ends of a stretch, and an anchor. The kept lines stay where they
are in the file; on the path they stand behind the anchor and before what used to follow it. The list wins over the
stretch. If the anchor, or an end of the stretch, is not there, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.records import Fields, object_in


class Kept(Struct, frozen=True):
    """What a boundary keeps: the links that put it in its place, its nodes, and what else may be taken beside them."""

    links: dict[int, int | None]
    nodes: frozenset[int] = frozenset()
    listed: frozenset[int] | None = None
    """All lines before the boundary that may be used, or None when the boundary gives no list."""


def kept_by(chain: Chain, boundary: int) -> Kept:
    """What a boundary keeps of the lines before it."""
    (fields,) = chain.lines.fields([boundary])
    about = object_in(fields, "compactMetadata")
    by_list = object_in(about, "preservedMessages")
    uuids = by_list.get("uuids")
    if isinstance(uuids, list):
        nodes = _nodes(chain, uuids)
        every = by_list.get("allUuids")
        others = _nodes(chain, every) if isinstance(every, list) and every != uuids else []
        listed = frozenset({*nodes, *others})
        return _spliced(chain, boundary, by_list, nodes, listed)
    stretch = object_in(about, "preservedSegment")
    return _spliced(chain, boundary, stretch, _stretch(chain, stretch), None)


def _spliced(chain: Chain, boundary: int, about: Fields, nodes: Sequence[int], listed: frozenset[int] | None) -> Kept:
    anchor = chain.node(about.get("anchorUuid"))
    kept = list(dict.fromkeys(node for node in nodes if node not in (anchor, boundary)))
    if anchor is None or not kept:
        return Kept({}, listed=listed)
    links: dict[int, int | None] = dict(zip(kept, [anchor, *kept[:-1]], strict=True))
    for child in chain.children(anchor):
        links.setdefault(child, kept[-1])
    links.pop(boundary, None)
    return Kept(links, frozenset(kept), listed)


def _nodes(chain: Chain, uuids: Sequence[object]) -> list[int]:
    return [node for uuid in uuids if (node := chain.node(uuid)) is not None]


def _stretch(chain: Chain, about: Fields) -> list[int]:
    """The lines from head to tail; none when the way up from the tail does not meet the head."""
    head, node = chain.node(about.get("headUuid")), chain.node(about.get("tailUuid"))
    found: list[int] = []
    while head is not None and node is not None:  # the tree has no rings
        if chain.types[node] != "progress":
            found.append(node)
        if node == head:
            return found[::-1]
        node = chain.parents[node]
    return []


def has_summary(chain: Chain, path: Sequence[int], boundary: int) -> bool:
    """Whether the summary that belongs to a boundary stands behind it on the path.

    A line that hangs on the boundary itself is taken for the summary even if it is not marked as one.
    """
    behind = path[path.index(boundary) + 1 :]
    for node in behind:
        if chain.types[node] == "message" and (chain.facts(node).is_summary or chain.parents[node] == boundary):
            return True
    return False


def stood_before(chain: Chain, boundary: int) -> int | None:
    """The line the conversation had come to when it was compacted."""
    (fields,) = chain.lines.fields([boundary])
    named = chain.node(fields.get("logicalParentUuid"))
    if named is not None and named < boundary:
        return named
    parent = chain.parents[boundary]
    return parent if parent is not None else next(chain.iter_links_before(boundary), None)
