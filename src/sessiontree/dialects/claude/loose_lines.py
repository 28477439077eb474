"""Notes of the client that are off the path, and that the client sends anyway.

As measured with client 2.1.325:

* The path ends with a user or assistant line. All system lines and attachments after it are sent, without those that
  follow another user or assistant line: depth first, and siblings by time.
* In a response with calls, notes are system lines, attachments, and prompts with `isMeta`. Those that follow a shard or
  a result are sent with the response, in file order. Those that follow a note on the path are sent directly after it,
  row by row, even if that note belongs to the response only because its missing parent was bridged.
* Such notes are loose: no user or assistant line follows them, except for those that are sent with the same response or
  with one before it. One other line after it, or two notes after the same one, and a line is sent only if it is on the
  path. Other rows after the same shard or result are sent all the same.

Progress lines count as their nearest ancestor of another type. Lines after a text, or after a prompt, are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from sessiontree.dialects.claude.boundaries import LoadedLines
from sessiontree.dialects.claude.chain import LINK_TYPES, Chain

_TYPES = LINK_TYPES - {"compaction"}

Links: TypeAlias = Mapping[int, int | None]


def find_trailing_lines(chain: Chain, turn: int, loaded: LoadedLines) -> list[int]:
    """Return the system lines and attachments after a user or assistant line, in the client's order."""
    linked: dict[int | None, list[int]] = {}
    for child, parent in loaded.links.items():
        linked.setdefault(parent, []).append(child)
    found: dict[int, None] = {}
    pending = [turn]
    while pending:
        node = pending.pop()
        if node != turn:
            found[node] = None
        below = [*_iter_children(chain, node, loaded.links), *filter(chain.is_link, linked.get(node, ()))]
        children = [
            child
            for child in dict.fromkeys(below)
            if child in loaded and child not in found and child != turn and not chain.facts(child).is_turn
        ]
        pending += sorted(chain.in_order(children), key=lambda child: chain.facts(child).time or 0)[::-1]
    return list(found)


def _iter_children(chain: Chain, node: int, links: Links) -> Iterator[int]:
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


class LooseLines(Struct, frozen=True):
    """Notes that may be sent although they are off the path."""

    rows: dict[int, list[list[int]]] = {}
    """Rows, by the line that they follow: a shard or a result, or a note that is not one of them."""
    followers: dict[int, list[int]] = {}
    """By note: the shards and results after it. The note is sent only if all of them are sent before it or with it."""


def find_loose_lines(chain: Chain, nodes: Sequence[int], links: Links, *, within_responses: bool = True) -> LooseLines:
    """Return the loose lines among some lines. `nodes` includes all their descendants.

    `links` are new parents of lines (see `boundaries`). Without `within_responses`, notes that shards or results follow
    are left out.
    """
    beside = [node for node in nodes if is_note(chain, node)]
    if not beside:
        return LooseLines()
    chain.load_facts(beside)
    candidates = {node for node in beside if not chain.facts(node).is_sidechain}
    above_progress: dict[int, int | None] = {}

    def find_parent(node: int) -> int | None:
        return parent_of(chain, node, links, above_progress)

    loose = set(candidates)
    followed: set[int] = set()
    """The lines with a note after them."""
    followers: dict[int, list[int]] = {}
    for node in nodes:
        parent = find_parent(node)
        if parent is None or parent not in candidates or not chain.is_link(node):
            continue
        if node in candidates:
            is_end = parent in followed
            followed.add(parent)
        else:
            is_end = not within_responses or not _can_be_sent_with_response(chain, node)
            followers.setdefault(parent, []).append(node)
        # The rest of a row above a line that is not loose was removed with that line.
        at: int | None = parent
        while is_end and at is not None and at in loose:
            loose.discard(at)
            at = find_parent(at)
    return LooseLines(_find_rows(chain, find_parent, loose), followers)


def _can_be_sent_with_response(chain: Chain, node: int) -> bool:
    """Whether a line is a shard or a result, and not of a sub-agent."""
    if not is_turn(chain, node):
        return False
    summary = chain.summary(node)
    return (summary.is_assistant or bool(summary.results)) and not chain.facts(node).is_sidechain


def _find_rows(chain: Chain, find_parent: Callable[[int], int | None], loose: set[int]) -> dict[int, list[list[int]]]:
    """Return loose lines by the line that they follow. Each has at most one of them after it, so they form rows."""
    below = {parent: node for node in loose if (parent := find_parent(node)) in loose}
    found: dict[int, list[list[int]]] = {}
    for node in chain.in_order(loose):
        before = find_parent(node)
        if before is None or before in loose:
            continue
        row: list[int] = []
        found.setdefault(before, []).append(row)
        at: int | None = node
        while at is not None:
            row.append(at)
            at = below.get(at)
    return found


def can_be_loose(chain: Chain, node: int) -> bool:
    return chain.types[node] in _TYPES and chain.is_link(node)


def is_note(chain: Chain, node: int) -> bool:
    """Whether a line is a note in a response with calls: a system line, an attachment, or a prompt with `isMeta`."""
    return can_be_loose(chain, node) and (not is_turn(chain, node) or is_meta_prompt(chain, node))


def is_meta_prompt(chain: Chain, node: int) -> bool:
    """Whether a line is a prompt that the client wrote by itself."""
    if chain.types[node] != "message":
        return False
    summary = chain.summaries[node]
    if summary is not None:
        return summary.is_meta
    facts = chain.facts(node)
    return facts.is_turn and facts.is_meta and chain.summary(node).is_prompt


def is_turn(chain: Chain, node: int) -> bool:
    """Whether a line is a user or assistant line."""
    if chain.types[node] != "message":
        return False
    summary = chain.summaries[node]
    # Only user and assistant lines have a summary with a message when a file is opened.
    return (summary is not None and summary.is_message) or chain.facts(node).is_turn


def is_attachment(chain: Chain, node: int) -> bool:
    """Whether a line is an attachment with a prompt, and not a line of the user, an answer or a command's output."""
    return not is_turn(chain, node) and not chain.facts(node).is_system


def parent_of(chain: Chain, node: int, links: Links, known: dict[int, int | None] | None = None) -> int | None:
    """Return the nearest line above a line that is not progress.

    `known` remembers it for the progress lines that were passed: a transcript can have thousands of them in a row.
    """
    known = {} if known is None else known
    progress: list[int] = []
    parent = links.get(node, chain.parents[node])
    while parent is not None and chain.types[parent] == "progress":
        if parent in known:
            parent = known[parent]
            break
        progress.append(parent)
        parent = links.get(parent, chain.parents[parent])
    known.update(dict.fromkeys(progress, parent))
    return parent
