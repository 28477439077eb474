"""Where the session stands.

Today's client goes by file order: the last line of the chain, followed down to its leaf. A `last-prompt` line pins a
line; the session stands there unless the last line belongs to the pinned branch. An explicit pin counts only what was
written after it. Clients up to 2.1.87 took the leaf with the newest time and knew no pins.
"""

from __future__ import annotations

from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.path import find_trail
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions


def find_leaf(chain: Chain, read_options: ReadOptions) -> int | None:
    if read_options.as_of == "timestamps":
        return _newest_leaf(chain)
    last = _last_line(chain)
    if last is None:
        return None
    pin, pinned, is_explicit = _pin(chain)
    candidate = _followed_down(chain, last)
    if pinned is None or pinned == candidate:
        return candidate
    if (last > pin or not is_explicit) and _belongs(chain, candidate, pinned):
        return candidate
    return pinned


def is_pinned_elsewhere(chain: Chain, id: str | None) -> bool:
    """Whether the last pin would keep the session where it is, when a line is written behind another one."""
    _, pinned, _ = _pin(chain)
    node = None if id is None else chain.node(id)
    while node is not None and node != pinned:  # the tree has no rings
        node = chain.parents[node]
    return pinned is not None and node is None


def _last_line(chain: Chain) -> int | None:
    """The last line that counts. A boundary with nothing behind it compacted nothing."""
    fallback: int | None = None
    for node in chain.iter_links_before(len(chain)):
        if not chain.counts(node):
            continue
        if chain.types[node] != "compaction":
            return node
        if fallback is None:
            fallback = node
        if node in chain.parents:
            return node
    return fallback


def _followed_down(chain: Chain, node: int) -> int:
    """A line may stand behind its children in the file."""
    seen: set[int] = set()
    while node not in seen:
        seen.add(node)
        node = max((child for child in chain.children(node) if chain.counts(child)), default=node)
    return node


def _pin(chain: Chain) -> tuple[int, int | None, bool]:
    """The last pin: its own node, the line it names if that is there, and whether it is explicit."""
    for node in range(len(chain) - 1, -1, -1):
        if chain.types[node] == "last-prompt":
            (fields,) = chain.lines.fields([node])
            return node, chain.node(fields.get("leafUuid")), fields.get("explicit") is True
    return -1, None, False


def _belongs(chain: Chain, candidate: int, pinned: int) -> bool:
    """Whether a line descends from the pinned one, or shares a response with it."""
    node: int | None = candidate
    while node is not None:  # the tree has no rings
        if node == pinned:
            return True
        node = chain.parents[node]
    nodes = find_trail(chain, candidate, AS_CLIENT).nodes
    if pinned in nodes:
        return True
    response = chain.speech(pinned).response
    return bool(response) and any(chain.speech(other).response == response for other in nodes)


def _newest_leaf(chain: Chain) -> int | None:
    links = [node for node in range(len(chain)) if chain.is_link(node)]
    chain.load(links)
    counting = [node for node in links if chain.counts(node)]
    inner = {_link_above(chain, node) for node in counting}
    leaves = [node for node in counting if node not in inner]
    return max(leaves, key=lambda node: (_time(chain, node), node), default=None)


def _link_above(chain: Chain, node: int) -> int | None:
    parent = chain.parents[node]
    while parent is not None and chain.types[parent] == "progress":
        parent = chain.parents[parent]
    return parent


def _time(chain: Chain, node: int) -> float:
    time = chain.facts(node).time
    return float("-inf") if time is None else time
