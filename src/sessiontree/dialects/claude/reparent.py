"""Parents for lines whose recorded parent is missing, and for roots in the middle of a conversation.

The client (2.1.150 and newer) bridges a missing parent by time: to the line with the greatest timestamp not after its
own, if it is at most 5000 ms older (5000 yes, 5001 no; the order in the file does not matter). Otherwise its chain ends
there, and all earlier history is silently lost. `ReadOptions.recovered` and repair do more: they link to the preceding
line of the file, and undo roots that neither a compaction nor a rewind created.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import islice
from math import inf

from sessiontree.core.tree import NodeSet
from sessiontree.dialects.claude.boundaries import LoadedLines
from sessiontree.dialects.claude.chain import Bridge, Chain
from sessiontree.dialects.claude.records import NIL_UUID
from sessiontree.dialects.contract import Reparenting

MAX_GAP_MS = 5000
"""Maximum age difference between a line whose parent is missing and its new parent; measured."""

_MAX_LINES_BACK = 10_000
"""Number of links of the file to search for one of the same session."""


def client_bridge(chain: Chain, loaded: LoadedLines) -> Bridge:
    """Bridge a missing parent as the client does, to a line that it has loaded."""

    def bridge(last: int, stopped: int, seen: NodeSet) -> int | None:
        # `parentUuid: null` is a new root for the client: it bridges only parents that are named, and that are missing
        # or were walked already.
        is_cycle = chain.recorded_parent(stopped) in seen
        if not is_cycle and not chain.tree.is_orphan(stopped) and stopped not in loaded.links:
            return None
        # Only lines of this walk are excluded: a descendant of one of them leads back to it, and is bridged in turn.
        candidates = chain.iter_older_links(last, MAX_GAP_MS)
        return next((node for node in candidates if node in loaded and node not in seen), None)

    return bridge


def recovery_bridge(chain: Chain) -> Bridge:
    """Bridge the remaining gaps: with all missing parents replaced, only a cycle can end a walk early."""

    def bridge(last: int, stopped: int, seen: NodeSet) -> int | None:
        is_cycle = chain.recorded_parent(stopped) in seen
        return _find_preceding(chain, last, seen, {}) if is_cycle else None

    return bridge


def find_reparentings(chain: Chain) -> list[Reparenting]:
    """Return a parent for every line whose parent is missing, and for every false root, in file order."""
    links: dict[int, int | None] = {}
    found: list[Reparenting] = []
    parents = set(chain.parents)
    missing = {problem.node: problem.id for problem in chain.tree.problems() if problem.kind == "missing-parent"}
    new_parents: dict[str, int] = {}
    for node, parent in enumerate(chain.parents):
        if parent is not None or not chain.is_in_tree(node):
            continue
        reparenting: Reparenting | None
        if node in missing:
            if not chain.is_link(node) and node not in parents:
                continue  # a progress line without children
            # All children of one missing parent get the same new parent, so that branches stay branches.
            reparenting = _reparent_orphan(chain, node, links, new_parents.get(missing[node]))
            if reparenting is not None:
                new_parents.setdefault(missing[node], reparenting.parent)
        else:
            reparenting = _reparent_root(chain, node, links) if _is_false_root(chain, node) else None
        if reparenting is not None:
            links[node] = reparenting.parent
            found.append(reparenting)
    return found


def _reparent_orphan(
    chain: Chain, node: int, links: Mapping[int, int | None], sibling_parent: int | None
) -> Reparenting | None:
    # The client's own rule comes before ours, so that a recovered path differs only where the client loses history.
    if sibling_parent is not None and _first_unconnected(chain, [sibling_parent], {node}, links) is not None:
        return Reparenting(node, sibling_parent, "another line with the same lost parent is linked to it")
    near = _first_unconnected(chain, chain.iter_older_links(node, MAX_GAP_MS), {node}, links)
    if near is not None:
        return Reparenting(node, near, "it is the line before it in time, at most five seconds older")
    preceding = _find_preceding(chain, node, {node}, links)
    if preceding is not None:
        return Reparenting(node, preceding, "it is the preceding line of the same session in the file")
    older = _first_unconnected(chain, chain.iter_older_links(node, inf), {node}, links)
    return None if older is None else Reparenting(node, older, "it is the line before it in time")


def _reparent_root(chain: Chain, node: int, links: Mapping[int, int | None]) -> Reparenting | None:
    preceding = _find_preceding(chain, node, {node}, links)
    if preceding is None:
        return None
    why = "a conversation does not start over in the middle of a file"
    return Reparenting(node, preceding, why, rule="false-root")


def _is_false_root(chain: Chain, node: int) -> bool:
    """Whether a root was created by neither a compaction nor a rewind to the first prompt.

    To the client, `parentUuid: null` in the middle of a file is a new root, and everything before it is invisible.
    Sub-agents have roots of their own.
    """
    if not chain.is_link(node) or chain.types[node] == "compaction" or chain.is_in_cycle(node):
        return False
    facts = chain.facts(node)
    return not facts.is_summary and not facts.is_sidechain and not _is_rewind(chain, node)


def _is_rewind(chain: Chain, node: int) -> bool:
    # After a rewind to before the first prompt the client writes a pin with the nil UUID. The order of metadata lines
    # is not causal, so the pin may be before or after the prompt: both gaps between links are searched.
    pins: list[int] = []
    for nodes in (range(node - 1, -1, -1), range(node + 1, len(chain))):
        for other in nodes:
            if chain.is_link(other):
                break
            if chain.types[other] == "last-prompt":
                pins.append(other)
    return any(pin.get("leafUuid") == NIL_UUID for pin in chain.lines.fields(pins))


def _find_preceding(chain: Chain, node: int, seen: Container[int], links: Mapping[int, int | None]) -> int | None:
    # One file can hold lines of several sessions, and of sub-agents (older clients): only the line's own counts.
    facts = chain.facts(node)
    candidates = (
        other
        for other in islice(chain.iter_links_before(node), _MAX_LINES_BACK)
        if chain.facts(other).session == facts.session and chain.facts(other).is_sidechain == facts.is_sidechain
    )
    return _first_unconnected(chain, candidates, seen, links)


def _first_unconnected(
    chain: Chain, candidates: Iterable[int], seen: Container[int], links: Mapping[int, int | None]
) -> int | None:
    """Return the first candidate that is not itself a descendant of the lines in `seen`: that would make a cycle."""
    connected: set[int] = set()
    for candidate in candidates:
        walked: set[int] = set()
        node: int | None = candidate
        while node is not None and node not in walked and node not in connected and node not in seen:
            walked.add(node)
            node = links[node] if node in links else chain.parents[node]
        if node is None or node in walked:
            return candidate
        connected |= walked
    return None
