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


def order_shards(chain: Chain, nodes: list[int], spans: Sequence[ShardSpan], *, recovered: bool) -> SentOrder:
    """Put the shards of each response together, where lines that are sent separate them."""
    ordered = _join_spans(chain, nodes, spans, frozenset())
    # Nearly all calls have a result near them, so that the whole path is searched only for a few sessions.
    parts = (nodes[span.start : span.end] for span in spans)
    if ordered == nodes and not any(find_lines_with_open_calls(chain, part) for part in parts):
        return SentOrder(nodes)
    open_lines = set() if recovered else find_lines_with_open_calls(chain, nodes)
    unsent = frozenset(find_unsent_lines(chain, nodes, open_lines, ordered))
    return SentOrder(_join_spans(chain, nodes, spans, unsent) if unsent else ordered, unsent)


def _join_spans(chain: Chain, nodes: list[int], spans: Sequence[ShardSpan], unsent: Container[int]) -> list[int]:
    ordered: list[int] = []
    done = 0
    for span in spans:
        ordered += nodes[done : span.start]
        ordered += _join_shards(chain, nodes[span.start : span.end], span.shards, unsent)
        done = span.end
    return [*ordered, *nodes[done:]]


def _join_shards(chain: Chain, nodes: Sequence[int], shards: dict[int, int], unsent: Container[int]) -> Iterator[int]:
    types = chain.types
    answers: list[list[int]] = []
    reached: dict[int | str, list[int]] = {}
    """The answers that the next shards can be moved to, by response."""
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
                reached[response].append(node)
                continue
            has_text = has_results = False
            answers.append([node])
            if response != "":
                reached[response] = answers[-1]
        else:
            answers.append([node])
            if not has_results and types[node] == "message":
                has_results = bool(chain.summary(node).results)
                # Asked only for the few lines before the results, because it may read the line.
                has_text = has_text or (not has_results and not is_attachment(chain, node))
    return (node for answer in answers for node in answer)
