"""Which lines belong to a leaf, in the order of the conversation: the rules of the other modules put together."""

from __future__ import annotations

from msgspec import Struct

from sessiontree.dialects.claude.boundaries import Kept, has_summary, kept_by, stood_before
from sessiontree.dialects.claude.chain import Chain, walk
from sessiontree.dialects.claude.parallel_calls import with_siblings
from sessiontree.dialects.claude.records import object_in
from sessiontree.dialects.claude.reparent import as_recovered, as_the_client, find_reparentings
from sessiontree.dialects.contract import ReadOptions

_NOTHING = Kept({})


class Trail(Struct, frozen=True):
    """The lines that belong to a leaf, and those among them that a compaction kept."""

    nodes: list[int]
    kept: frozenset[int] = frozenset()


def find_trail(chain: Chain, leaf: int | None, read_options: ReadOptions) -> Trail:
    """Root, or the last boundary, to leaf."""
    if leaf is None:
        return Trail([])
    if not chain.is_placed(leaf):
        return Trail([leaf])
    nodes, boundary, kept = _spine(chain, leaf, read_options)
    nodes = with_siblings(chain, nodes, _eligible(chain, boundary, kept), read_options.recovered)
    if read_options.snips:
        removed = _snipped(chain)
        nodes = [node for node in nodes if chain.tree.ids[node] not in removed]
    return Trail(nodes, kept.nodes)


def _spine(chain: Chain, leaf: int, read_options: ReadOptions) -> tuple[list[int], int | None, Kept]:
    """The path without what hangs beside it, the boundary it begins with, and what that one kept."""
    links: dict[int, int | None] = {}
    mend = as_the_client(chain)
    if read_options.recovered:
        links = {relink.node: relink.parent for relink in find_reparentings(chain)}
        mend = as_recovered(chain)
    for boundary in chain.boundaries_before(leaf):
        if boundary == leaf:  # nothing came after it, so nothing was compacted
            links[boundary] = stood_before(chain, boundary)
            continue
        kept = kept_by(chain, boundary)
        nodes = walk(chain, leaf, {**links, **kept.links}, mend)
        if boundary not in nodes:
            continue
        if read_options.recovered and not has_summary(chain, nodes, boundary):
            links[boundary] = stood_before(chain, boundary)
            continue
        return nodes[nodes.index(boundary) :], boundary, kept
    return walk(chain, leaf, links, mend), None, _NOTHING


def _eligible(chain: Chain, boundary: int | None, kept: Kept) -> set[int] | None:
    """A boundary with a list says which of the lines before it may be used at all."""
    if boundary is None or kept.listed is None:
        return None
    return {*range(boundary, len(chain)), *kept.listed}


def _snipped(chain: Chain) -> set[str]:
    """The ids that the client's snip marks name."""
    marks = [node for node, kind in enumerate(chain.types) if kind in ("system", "compaction")]
    removed: set[str] = set()
    for start in range(0, len(marks), 256):
        for fields in chain.lines.fields(marks[start : start + 256]):
            named = object_in(fields, "snipMetadata").get("removedUuids")
            if isinstance(named, list):
                removed.update(uuid for uuid in named if isinstance(uuid, str))
    return removed
