"""Notes of the client that are off the path, and that the client sends anyway.

As measured with client 2.1.325:

* The path ends with a user or assistant line. All system lines and attachments after it are sent, without those that
  follow another user or assistant line: depth first, and siblings by time.
* In a response with calls, notes are system lines, attachments, and prompts with `isMeta`. Those that follow a shard or
  a result are sent with the response, in file order. Those that follow a note on the path are sent directly after it,
  row by row. They are loose: no user or assistant line descends from them, except for lines of the same response. One
  other line below it, or two notes after the same one, and a line is sent only if it is on the path.

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


def find_loose_lines(
    chain: Chain, nodes: Sequence[int], links: Links, *, within_responses: bool = True
) -> dict[int, list[int]]:
    """Return the loose lines among some lines, by the line that they follow, row by row.

    They follow a shard or a result, or a note that is not loose itself. `nodes` includes all their descendants. `links`
    are new parents of lines (see `boundaries`). Without `within_responses`, those between lines of a response are left
    out.
    """
    beside = [node for node in nodes if is_note(chain, node)]
    if not beside:
        return {}
    chain.load_facts(beside)
    candidates = {node for node in beside if not chain.facts(node).is_sidechain}
    rows = _Rows(chain, links, candidates)
    loose = set(candidates)
    followed: set[int] = set()
    """The lines with a note after them."""
    for node in nodes:
        parent = rows.parent(node)
        if parent not in candidates or not chain.is_link(node):
            continue
        if node in candidates:
            is_end = parent in followed
            followed.add(parent)
        else:
            is_end = not within_responses or not rows.is_same_response(node, rows.line_above(node))
        # The rest of a row above a line that is not loose was removed with that line.
        while is_end and parent is not None and parent in loose:
            loose.discard(parent)
            parent = rows.parent(parent)
    return _find_rows(chain, links, loose)


def _find_rows(chain: Chain, links: Links, loose: set[int]) -> dict[int, list[int]]:
    """Return loose lines by the line that they follow. Each has at most one of them after it, so they form rows."""
    rows = _Rows(chain, links, loose)
    below = {rows.parent(node): node for node in loose if rows.parent(node) in loose}
    found: dict[int, list[int]] = {}
    for node in chain.in_order(loose):
        before = rows.parent(node)
        if before is None or before in loose:
            continue
        row = found.setdefault(before, [])
        at: int | None = node
        while at is not None:
            row.append(at)
            at = below.get(at)
    return found


class _Rows:
    """Lines that follow each other, and the line above each row of them.

    A transcript can have thousands of them in a row, so what was found for a line is used by all lines below it.
    """

    def __init__(self, chain: Chain, links: Links, lines: Container[int]) -> None:
        self._chain = chain
        self._links = links
        self._lines = lines
        self._above: dict[int, int | None] = {}
        self._above_progress: dict[int, int | None] = {}
        self._responses: dict[int, str] = {}

    def parent(self, node: int) -> int | None:
        return parent_of(self._chain, node, self._links, self._above_progress)

    def line_above(self, node: int) -> int | None:
        """Return the nearest line above a line that is not one of the lines."""
        row: dict[int, None] = {}
        at = self.parent(node)
        while at is not None and at in self._lines and at not in row:
            if at in self._above:
                at = self._above[at]
                break
            row[at] = None
            at = self.parent(at)
        self._above.update(dict.fromkeys(row, at))
        return at

    def is_same_response(self, node: int, other: int | None) -> bool:
        """Whether two lines are shards or results of one response."""
        response = "" if self._chain.facts(node).is_sidechain else self._response_of(node)
        return bool(response) and response == self._response_of(other)

    def _response_of(self, node: int | None) -> str:
        """Return the id of the response that a shard or a result belongs to; empty for a prompt."""
        walked: dict[int, None] = {}
        response = ""
        while node is not None and node not in walked:
            if node in self._responses:
                response = self._responses[node]
                break
            walked[node] = None
            if is_turn(self._chain, node) and not is_meta_prompt(self._chain, node):
                summary = self._chain.summary(node)
                if summary.is_assistant or not summary.results:
                    response = summary.response
                    break
            node = self.parent(node)
        self._responses.update(dict.fromkeys(walked, response))
        return response


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
