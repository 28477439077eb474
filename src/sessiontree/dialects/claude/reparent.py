"""Better links where the chain is broken.

The client itself links a line whose parent is missing to the line next in time before it, if that is at most five
seconds older; beyond that it forgets everything before. We can do more: link to what stood before in the file, and
undo roots in the middle of a conversation that no compaction and no rewind made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from math import inf

from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.contract import Reparenting

CLIENT_PATIENCE = 5000
"""Milliseconds between a line and the one it is linked to by time."""

_FARTHEST = 10_000
"""Lines of a file that are looked back over for one of the same session."""

NIL = "00000000-0000-0000-0000-000000000000"
"""What a pin names when the user went back to before the pinned line."""


def as_the_client(chain: Chain) -> Callable[[int, int, set[int]], int | None]:
    """How the client goes on where a parent is missing."""

    def mend(last: int, stopped: int, seen: set[int]) -> int | None:
        if not chain.tree.is_orphan(stopped):
            return None
        return _first_apart(chain, chain.iter_by_time(last, CLIENT_PATIENCE), seen, {})

    return mend


def as_recovered(chain: Chain) -> Callable[[int, int, set[int]], int | None]:
    """How we go on where even better links end: only a ring can have led there."""

    def mend(last: int, stopped: int, seen: set[int]) -> int | None:
        named = chain.named_parent(stopped)
        return _stood_before(chain, last, seen, {}) if named in seen else None

    return mend


def find_reparentings(chain: Chain) -> list[Reparenting]:
    """A better parent for every line whose parent is lost, and for every false root, in file order."""
    links: dict[int, int | None] = {}
    relinks: list[Reparenting] = []
    inner = set(chain.parents)
    lost = {problem.node: problem.id for problem in chain.tree.problems() if problem.kind == "missing-parent"}
    adopted: dict[str, int] = {}
    for node, parent in enumerate(chain.parents):
        if parent is not None or not chain.is_placed(node):
            continue
        relink: Reparenting | None
        if node in lost:
            if not chain.is_link(node) and node not in inner:
                continue  # progress that nothing hangs on
            relink = _adopted(chain, node, links, adopted.get(lost[node]))
            if relink is not None:
                adopted.setdefault(lost[node], relink.parent)
        else:
            relink = _rooted(chain, node, links) if _is_false_root(chain, node) else None
        if relink is not None:
            links[node] = relink.parent
            relinks.append(relink)
    return relinks


def _adopted(chain: Chain, node: int, links: Mapping[int, int | None], shared: int | None) -> Reparenting | None:
    """A parent for a line that lost its own; `shared` is that of another line that lost the same one."""
    if shared is not None and _first_apart(chain, [shared], {node}, links) is not None:
        return Reparenting(node, shared, "another line with the same lost parent is linked to it")
    near = _first_apart(chain, chain.iter_by_time(node, CLIENT_PATIENCE), {node}, links)
    if near is not None:
        return Reparenting(node, near, "it is the line before it in time, at most five seconds older")
    before = _stood_before(chain, node, {node}, links)
    if before is not None:
        return Reparenting(node, before, "it is the line of the same session that stands before it in the file")
    earlier = _first_apart(chain, chain.iter_by_time(node, inf), {node}, links)
    return None if earlier is None else Reparenting(node, earlier, "it is the line before it in time")


def _rooted(chain: Chain, node: int, links: Mapping[int, int | None]) -> Reparenting | None:
    before = _stood_before(chain, node, {node}, links)
    if before is None:
        return None
    return Reparenting(node, before, "a conversation does not begin anew in the middle of a file", rule="false-root")


def _is_false_root(chain: Chain, node: int) -> bool:
    """A root that neither a compaction nor a rewind to the first prompt made. Sub-agents have roots of their own."""
    if not chain.is_link(node) or chain.types[node] == "compaction" or chain.is_in_ring(node):
        return False
    facts = chain.facts(node)
    return not facts.is_summary and not facts.is_sidechain and not _is_rewind(chain, node)


def _is_rewind(chain: Chain, node: int) -> bool:
    """Whether the client says beside a line that the user went back: a pin that names nothing."""
    beside: list[int] = []
    for nodes in (range(node - 1, -1, -1), range(node + 1, len(chain))):
        for other in nodes:
            if chain.is_link(other):
                break
            if chain.types[other] == "last-prompt":
                beside.append(other)
    return any(fields.get("leafUuid") == NIL for fields in chain.lines.fields(beside))


def _stood_before(chain: Chain, node: int, seen: Collection[int], links: Mapping[int, int | None]) -> int | None:
    own = chain.facts(node)
    kin = (
        other
        for other in islice(chain.iter_links_before(node), _FARTHEST)
        if chain.facts(other).session == own.session and chain.facts(other).is_sidechain == own.is_sidechain
    )
    return _first_apart(chain, kin, seen, links)


def _first_apart(
    chain: Chain, candidates: Iterable[int], seen: Collection[int], links: Mapping[int, int | None]
) -> int | None:
    """The first candidate that does not itself hang on what was walked."""
    hanging: set[int] = set()
    for candidate in candidates:
        walked: set[int] = set()
        node: int | None = candidate
        while node is not None and node not in walked and node not in hanging and node not in seen:
            walked.add(node)
            node = links[node] if node in links else chain.parents[node]
        if node is None or node in walked:
            return candidate
        hanging |= walked
    return None
