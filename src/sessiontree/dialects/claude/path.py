"""The current leaf of a transcript, and the lines that belong to a leaf in the order of the conversation.

The rules are those of client 2.1.150 and newer, as measured:

* The leaf is the last chain line of the file, followed down to its last descendant. Timestamps are not compared.
* The last `last-prompt` line is a pin. If the candidate descends from the pinned line, or shares a response with it,
  the candidate is the leaf; otherwise the pinned line is. After an explicit pin only lines written later count as
  descendants. A pin that names an unknown uuid or the nil UUID has no effect.
* Clients up to 2.1.87 took the leaf with the newest timestamp and ignored pins (`ReadOptions.as_of`).
"""

from __future__ import annotations

from msgspec import Struct

from sessiontree.dialects.claude.boundaries import Preserved, find_leaf_before, find_preserved, has_summary
from sessiontree.dialects.claude.chain import Chain, walk
from sessiontree.dialects.claude.parallel_calls import insert_parallel_lines
from sessiontree.dialects.claude.records import object_in
from sessiontree.dialects.claude.reparent import client_bridge, find_reparentings, recovery_bridge
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions

_NOTHING_PRESERVED = Preserved({})
_BATCH = 256


class Path(Struct, frozen=True):
    """The lines that belong to a leaf, and those among them that a compaction preserved."""

    nodes: list[int]
    preserved: frozenset[int] = frozenset()


def find_path(chain: Chain, leaf: int | None, read_options: ReadOptions) -> Path:
    """Return the path from the root, or from the last boundary, to a leaf."""
    if leaf is None:
        return Path([])
    if not chain.is_in_tree(leaf):
        return Path([leaf])
    nodes, boundary, preserved = _walk_to_boundary(chain, leaf, read_options)
    nodes = insert_parallel_lines(chain, nodes, _eligible_lines(chain, boundary, preserved), read_options.recovered)
    if read_options.snips:
        removed = _snipped_ids(chain)
        nodes = [node for node in nodes if chain.tree.ids[node] not in removed]
    return Path(nodes, preserved.nodes)


def _walk_to_boundary(chain: Chain, leaf: int, read_options: ReadOptions) -> tuple[list[int], int | None, Preserved]:
    """Return the path without parallel lines, the boundary that it begins with, and the lines this preserved."""
    links: dict[int, int | None] = {}
    bridge = client_bridge(chain)
    if read_options.recovered:
        links = {found.node: found.parent for found in find_reparentings(chain)}
        bridge = recovery_bridge(chain)
    for boundary in chain.iter_boundaries(leaf):
        if boundary == leaf:  # nothing follows it, so nothing was compacted: the client sends the full history
            links[boundary] = find_leaf_before(chain, boundary)
            continue
        # Only the last boundary on the path counts. Its splices change the path, so each one is tried in turn.
        preserved = find_preserved(chain, boundary)
        nodes = walk(chain, leaf, {**links, **preserved.links}, bridge)
        if boundary not in nodes:
            continue
        if read_options.recovered and not has_summary(chain, nodes, boundary):
            # The summary was lost, so the history before the boundary is better than nothing.
            links[boundary] = find_leaf_before(chain, boundary)
            continue
        return nodes[nodes.index(boundary) :], boundary, preserved
    return walk(chain, leaf, links, bridge), None, _NOTHING_PRESERVED


def _eligible_lines(chain: Chain, boundary: int | None, preserved: Preserved) -> set[int] | None:
    # A boundary with a list hides every other line before it, also results of parallel calls (measured).
    if boundary is None or preserved.listed is None:
        return None
    return {*range(boundary, len(chain)), *preserved.listed}


def _snipped_ids(chain: Chain) -> set[str]:
    """Return the uuids that snip markers name; client 2.1.325 ignores these markers."""
    markers = [node for node, kind in enumerate(chain.types) if kind in ("system", "compaction")]
    removed: set[str] = set()
    for start in range(0, len(markers), _BATCH):
        for line in chain.lines.fields(markers[start : start + _BATCH]):
            uuids = object_in(line, "snipMetadata").get("removedUuids")
            if isinstance(uuids, list):
                removed.update(uuid for uuid in uuids if isinstance(uuid, str))
    return removed


# The leaf


def find_leaf(chain: Chain, read_options: ReadOptions) -> int | None:
    """Return the current leaf of the session; None when there is no chain line."""
    if read_options.as_of == "timestamps":
        return _find_newest_leaf(chain)
    last = _find_last_line(chain)
    if last is None:
        return None
    pin, pinned, is_explicit = _find_pin(chain)
    candidate = _descend(chain, last)
    if pinned is None or pinned == candidate:
        return candidate
    if (last > pin or not is_explicit) and _is_on_pinned_branch(chain, candidate, pinned):
        return candidate
    return pinned


def is_pinned_elsewhere(chain: Chain, id: str | None) -> bool:
    """Whether the last pin would keep the current leaf when a child of this line is appended."""
    _, pinned, _ = _find_pin(chain)
    start = None if id is None else chain.find_link(id)
    return pinned is not None and pinned not in chain.iter_ancestors(start)


def _find_last_line(chain: Chain) -> int | None:
    fallback: int | None = None
    for node in chain.iter_links_before(len(chain)):
        if not chain.can_be_leaf(node):
            continue
        if chain.types[node] != "compaction":
            return node
        # A boundary without a child compacted nothing; it is the leaf only if there is no other line.
        if fallback is None:
            fallback = node
        if node in chain.parents:
            return node
    return fallback


def _descend(chain: Chain, node: int) -> int:
    # A child can come before its parent in the file, so the last line may have descendants.
    seen: set[int] = set()
    while node not in seen:
        seen.add(node)
        node = max((child for child in chain.children(node) if chain.can_be_leaf(child)), default=node)
    return node


def _find_pin(chain: Chain) -> tuple[int, int | None, bool]:
    """Return the last pin: its own line, the line that it names if that exists, and whether it is explicit."""
    for node in range(len(chain) - 1, -1, -1):
        if chain.types[node] == "last-prompt":
            (pin,) = chain.lines.fields([node])
            return node, chain.find_link(pin.get("leafUuid")), pin.get("explicit") is True
    return -1, None, False


def _is_on_pinned_branch(chain: Chain, candidate: int, pinned: int) -> bool:
    """Whether a line descends from the pinned one, or shares a response with it (parallel shards)."""
    if pinned in chain.iter_ancestors(candidate):
        return True
    nodes = find_path(chain, candidate, AS_CLIENT).nodes
    if pinned in nodes:
        return True
    response = chain.summary(pinned).response
    return bool(response) and any(chain.summary(other).response == response for other in nodes)


def _find_newest_leaf(chain: Chain) -> int | None:
    links = [node for node in range(len(chain)) if chain.is_link(node)]
    chain.load_facts(links)
    candidates = [node for node in links if chain.can_be_leaf(node)]
    inner = {_parent_link(chain, node) for node in candidates}
    leaves = [node for node in candidates if node not in inner]
    return max(leaves, key=lambda node: (_time_of(chain, node), node), default=None)


def _parent_link(chain: Chain, node: int) -> int | None:
    ancestors = chain.iter_ancestors(chain.parents[node])
    return next((other for other in ancestors if chain.types[other] != "progress"), None)


def _time_of(chain: Chain, node: int) -> float:
    time = chain.facts(node).time
    return float("-inf") if time is None else time
