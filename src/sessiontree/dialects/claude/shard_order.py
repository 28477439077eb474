"""The order in which the client sends the lines of a path: the shards of each response together.

As measured with client 2.1.325, it first leaves out calls without a result (see `open_calls`), and then moves each
shard to the one of its response before it, past other answers, and past turns of the user that have a result. A prompt
or the output of a command without a result in its turn separates shards: they stay two messages.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from msgspec import Struct

from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.loose_lines import is_attachment
from sessiontree.dialects.claude.open_calls import find_lines_with_open_calls, find_unsent_lines


class ShardSpan(Struct, frozen=True):
    """A part of a path with lines of responses that may not be together."""

    start: int
    end: int
    shards: dict[int, int]
    """Shards -> the first shard of their response."""


class SentOrder(Struct, frozen=True):
    """The lines of a path, as the client orders them."""

    nodes: list[int]
    unsent: frozenset[int] | None = None
    """The lines that are not sent because of open calls; None if the order of `nodes` decides that."""
    moved: frozenset[int] = frozenset()
    """The shards that were moved past other answers, or past texts of the user."""


def order_shards(chain: Chain, nodes: list[int], spans: Sequence[ShardSpan], *, recovered: bool) -> SentOrder:
    """Put the shards of each response together, where lines that are sent separate them."""
    joined = _join_spans(chain, nodes, spans, frozenset())
    # Nearly all calls have a result near them, so that the whole path is searched only for a few sessions.
    parts = (nodes[span.start : span.end] for span in spans)
    if joined.nodes == nodes and not any(find_lines_with_open_calls(chain, part) for part in parts):
        return joined
    open_lines = set() if recovered else find_lines_with_open_calls(chain, nodes)
    unsent = frozenset(find_unsent_lines(chain, nodes, open_lines, joined.nodes))
    joined = _join_spans(chain, nodes, spans, unsent) if unsent else joined
    return SentOrder(joined.nodes, unsent, joined.moved)


def _join_spans(chain: Chain, nodes: list[int], spans: Sequence[ShardSpan], unsent: Container[int]) -> SentOrder:
    joined: list[int] = []
    moved: set[int] = set()
    done = 0
    for span in spans:
        joined += nodes[done : span.start]
        joined += _join_shards(chain, nodes[span.start : span.end], span.shards, unsent, moved)
        done = span.end
    return SentOrder([*joined, *nodes[done:]], None, frozenset(moved))


def _join_shards(
    chain: Chain, nodes: Sequence[int], shards: dict[int, int], unsent: Container[int], moved: set[int]
) -> Iterator[int]:
    types = chain.types
    answers: list[list[int]] = []
    reached: dict[int | str, tuple[list[int], int]] = {}
    """The answers that the next shards can be moved to, by response, and the number of `others` at the time."""
    others = 0
    """Number of answers and texts so far."""
    has_text = has_results = False
    """What the user's turn has, after the last answer that was not moved."""
    for node in nodes:
        if node in unsent:
            answers.append([node])
        elif node in shards or (types[node] == "message" and chain.summary(node).is_assistant):
            if has_text and not has_results:
                reached.clear()
            response = shards[node] if node in shards else chain.summary(node).response
            if response in reached:
                answer, before = reached[response]
                answer.append(node)
                if others > before:
                    moved.add(node)
                continue
            has_text = has_results = False
            others += 1
            answers.append([node])
            if response != "":
                reached[response] = (answers[-1], others)
        else:
            answers.append([node])
            if types[node] != "message" or chain.summary(node).results:
                has_results = has_results or types[node] == "message"
            elif not is_attachment(chain, node):
                has_text = True
                others += 1
    return (node for answer in answers for node in answer)
