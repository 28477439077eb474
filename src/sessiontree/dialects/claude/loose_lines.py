"""System lines and attachments that are off the path, and that the client sends anyway.

As measured with client 2.1.325:

* The path ends with a user or assistant line. All system lines and attachments after it are sent, without those that
  follow another user or assistant line: depth first, and siblings by time.
* Those that follow a shard or a result of a response with calls are sent with the response, in file order. They are
  loose: no user or assistant line descends from them, except for lines of the same response. One other line below it,
  and a line is sent only if it is on the path.

Progress lines count as their nearest ancestor of another type. Lines after a text, or after a prompt, are lost.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TypeAlias

from sessiontree.dialects.claude.boundaries import LoadedLines
from sessiontree.dialects.claude.chain import LINK_TYPES, Chain

_TYPES = LINK_TYPES - {"compaction"}

Links: TypeAlias = Mapping[int, int | None]


def find_trailing_lines(chain: Chain, turn: int, loaded: LoadedLines) -> list[int]:
    """Return the system lines and attachments after a user or assistant line, in the client's order."""
    found: dict[int, None] = {}
    pending = [turn]
    while pending:
        node = pending.pop()
        if node != turn:
            found[node] = None
        children = [
            child
            for child in dict.fromkeys(_iter_children(chain, node, loaded))
            if child in loaded and child not in found and child != turn and not chain.facts(child).is_turn
        ]
        pending += sorted(chain.in_order(children), key=lambda child: chain.facts(child).time or 0)[::-1]
    return list(found)


def _iter_children(chain: Chain, node: int, loaded: LoadedLines) -> Iterator[int]:
    links = loaded.links
    pending = [node]
    while pending:
        parent = pending.pop()
        for child in chain.children(parent):
            if links.get(child, parent) != parent:
                continue
            if chain.types[child] == "progress":
                pending.append(child)
            elif can_be_loose(chain, child):
                yield child
    yield from (child for child, parent in links.items() if parent == node and chain.is_link(child))


def find_loose_lines(
    chain: Chain, nodes: Sequence[int], links: Links, *, within_responses: bool = True
) -> dict[int, list[int]]:
    """Return the loose lines among some lines, by the line that they follow. `nodes` includes all their descendants.

    They follow a user or assistant line, or a system line or attachment that is not loose itself. `links` are new
    parents of lines (see `boundaries`). Without `within_responses`, those between lines of a response are left out.
    """
    beside = [node for node in nodes if not is_turn(chain, node) and can_be_loose(chain, node)]
    if not beside:
        return {}
    chain.load_facts(beside)
    candidates = {node for node in beside if not chain.facts(node).is_sidechain}
    loose = set(candidates)
    for node in nodes:
        if parent_of(chain, node, links) in candidates and node not in candidates and chain.is_link(node):
            above = _lines_above(chain, node, links, candidates)
            if not within_responses or not _is_same_response(chain, node, above[-1], links):
                loose.difference_update(above)
    found: dict[int, list[int]] = {}
    for node in sorted(loose):
        before = _lines_above(chain, node, links, loose)[-1]
        if before is not None:
            found.setdefault(before, []).append(node)
    return found


def _lines_above(chain: Chain, node: int, links: Links, lines: Container[int | None]) -> list[int | None]:
    """Return the lines above a line as long as they are some of these, and the first other one."""
    found: dict[int | None, None] = {}
    parent = parent_of(chain, node, links)
    while parent is not None and parent in lines and parent not in found:
        found[parent] = None
        parent = parent_of(chain, parent, links)
    return [*found, parent]


def _is_same_response(chain: Chain, node: int, other: int | None, links: Links) -> bool:
    response = "" if chain.facts(node).is_sidechain else _response_of(chain, node, links)
    return bool(response) and response == _response_of(chain, other, links)


def _response_of(chain: Chain, node: int | None, links: Links) -> str:
    """Return the id of the response that a shard or a result belongs to; empty for a prompt."""
    seen: set[int] = set()
    while node is not None and node not in seen:
        seen.add(node)
        if is_turn(chain, node):
            summary = chain.summary(node)
            if summary.is_assistant or not summary.results:
                return summary.response
        node = parent_of(chain, node, links)
    return ""


def can_be_loose(chain: Chain, node: int) -> bool:
    return chain.types[node] in _TYPES and chain.is_link(node)


def is_turn(chain: Chain, node: int) -> bool:
    """Whether a line is a user or assistant line."""
    if chain.types[node] != "message":
        return False
    summary = chain.summaries[node]
    # Only user and assistant lines have a summary with a message when a file is opened.
    return (summary is not None and summary.is_message) or chain.facts(node).is_turn


def parent_of(chain: Chain, node: int, links: Links) -> int | None:
    """Return the nearest line above a line that is not progress."""
    parent = links.get(node, chain.parents[node])
    while parent is not None and chain.types[parent] == "progress":
        parent = links.get(parent, chain.parents[parent])
    return parent
