"""The order in which the client sends the lines of a path: the shards of each response together.

As measured with client 2.1.325, in this order:

* A result that precedes the shard with its call follows it, if no prompt is between the two, and if nothing separates
  the shards of that response: no prompt, no output of a command, and no other answer, not even one that is not sent.
* Calls without a result are left out (see `open_calls`).
* Each shard is moved to the one of its response before it, past other answers, and past turns of the user that have a
  result. A prompt or the output of a command without a result in its turn separates shards: they stay two messages. So
  does the prompt of an attachment in a response that is separated by anything else; in others it is moved past, even if
  the shard before it is left out. A turn goes on after answers that are not sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.loose_lines import is_attachment
from sessiontree.dialects.claude.open_calls import (
    find_empty_answers,
    find_last_turn,
    find_lines_with_open_calls,
    find_unsent_lines,
)


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
    has_late_results: bool = False
    """Whether results were moved to the calls after them; else there may be some that precede their call."""


def order_shards(
    chain: Chain,
    nodes: list[int],
    spans: Sequence[ShardSpan],
    *,
    recovered: bool,
    above: Sequence[int] = (),
    trailing: Sequence[int] = (),
) -> SentOrder:
    """Put the shards of each response together, where lines that are sent separate them.

    `above` are the lines before the boundary that the path starts with. Their results count for calls below it.
    `trailing` are the system lines and attachments that are sent after the path.
    """
    # In nearly all spans, the shards are together already, and all calls have a result.
    apart: list[ShardSpan] = []
    has_open_calls = bool(above)
    for span in spans:
        is_together, is_answered = _check_span(chain, nodes, span)
        has_open_calls = has_open_calls or not is_answered
        if not is_together:
            apart.append(span)
    if not apart and not has_open_calls:
        return SentOrder(nodes)
    nodes, apart = move_early_results(chain, nodes, apart)
    joined = _join_spans(chain, nodes, apart, frozenset())
    if not has_open_calls and not find_lines_with_open_calls(chain, find_last_turn(chain, nodes)):
        # only in the last turn does the order decide which open calls are sent
        return SentOrder(joined, has_late_results=True)
    open_lines = set() if recovered else find_lines_with_open_calls(chain, [*above, *nodes]).difference(above)
    unsent = frozenset(find_unsent_lines(chain, [*nodes, *trailing], open_lines, joined))
    joined = _join_spans(chain, nodes, apart, unsent) if unsent else joined
    return SentOrder(joined, unsent, has_late_results=True)


def move_early_results(chain: Chain, path: list[int], spans: list[ShardSpan]) -> tuple[list[int], list[ShardSpan]]:
    """Return a path on which results that precede the shard with their call follow it, where the client moves them.

    A repeated line or a bridged parent can put a result there. `spans` are parts of the path, and returned as they are
    then.
    """
    early = _find_early_results(chain, path)
    if not early:
        return path, spans
    moved = {node for results in early.values() for node in results}
    ordered = [line for node in path if node not in moved for line in (node, *early.get(node, ()))]
    places = {node: at for at, node in enumerate(ordered)}
    found: list[ShardSpan] = []
    for span in spans:
        # It starts with a shard, which stays. It ends before the next line that stays.
        following = next((node for node in path[span.end :] if node not in moved), None)
        end = len(ordered) if following is None else places[following]
        found.append(ShardSpan(places[path[span.start]], end, span.shards))
    return ordered, found


def _find_early_results(chain: Chain, path: Sequence[int]) -> dict[int, list[int]]:
    """Return the results that have to follow a shard, by shard."""
    early: dict[str, int] = {}
    """The results since the last prompt, by call."""
    after: dict[int, list[int]] = {}
    for node in path:
        if chain.types[node] != "message":
            continue
        summary = chain.summary(node)
        if summary.is_assistant:
            found = dict.fromkeys(early.pop(call) for call in summary.calls if call in early)
            if found:
                after[node] = list(found)
        elif summary.results:
            for call in summary.results:
                early.setdefault(call, node)
        elif summary.is_message:
            early.clear()
    divided = _find_divided_responses(chain, path) if after else set()
    return {node: results for node, results in after.items() if chain.summary(node).response not in divided}


def _find_divided_responses(chain: Chain, path: Sequence[int]) -> set[str]:
    """Return the ids of responses with a prompt, the output of a command or another answer between their shards."""
    response = ""
    """The response that the next shard continues, if it is of the same one."""
    ended: set[str] = set()
    divided: set[str] = set()
    for node in path:
        if chain.types[node] != "message":
            continue
        summary = chain.summary(node)
        if summary.is_assistant:
            if summary.response != response:
                ended.add(response)
                response = summary.response
            if response and response in ended:
                divided.add(response)
        elif summary.is_message and not summary.results and not is_attachment(chain, node):
            ended.add(response)
            response = ""
    return divided


def is_settled(chain: Chain, nodes: Sequence[int], span: ShardSpan) -> bool:
    """Whether `order_shards` has nothing to do for a span: its shards are together, and all calls have results."""
    return _check_span(chain, nodes, span) == (True, True)


def _check_span(chain: Chain, nodes: Sequence[int], span: ShardSpan) -> tuple[bool, bool]:
    """Whether all shards of a span are of one response and precede its other lines, and whether all calls have results.

    The second is only about results in the same span. Neither holds if a boundary is in it, where the path may be cut.
    """
    summaries, types, shards = chain.summaries, chain.types, span.shards
    first = shards.get(nodes[span.start])
    is_together, is_after_shards = first is not None, False
    calls: set[str] = set()
    answered: set[str] = set()
    for at in range(span.start, span.end):  # a hot loop: a long session can have many thousands of spans
        node = nodes[at]
        if types[node] != "message":
            if types[node] == "compaction":
                return False, False
            is_after_shards = True
            continue
        summary = summaries[node] or chain.summary(node)
        if summary.results:
            answered.update(summary.results)
        else:
            calls.update(summary.calls)
        if node not in shards:
            is_after_shards = True
        elif is_after_shards or shards[node] != first:
            is_together = False
    return is_together, answered.issuperset(calls)


def _join_spans(chain: Chain, nodes: list[int], spans: Sequence[ShardSpan], unsent: Collection[int]) -> list[int]:
    joined: list[int] = []
    done = 0
    for span in spans:
        joined += nodes[done : span.start]
        joined += _join_shards(chain, nodes[span.start : span.end], span.shards, unsent)
        done = span.end
    return [*joined, *nodes[done:]]


def _join_shards(chain: Chain, nodes: Sequence[int], shards: dict[int, int], unsent: Collection[int]) -> Iterator[int]:
    types, summaries = chain.types, chain.summaries
    divided = _find_divided_responses(chain, nodes)
    unsent = {*find_empty_answers(chain, nodes, unsent), *unsent}
    answers: list[list[int]] = []
    reached: dict[int | str, list[int]] = {}
    """The answers that the next shards can be moved to, by response."""
    left_out: dict[int | str, list[int]] = {}
    """Lines that are not sent, by response, with only attachments after them: those are moved past, too."""
    has_text = has_attachment = has_results = False
    """What the user's turn has, after the last answer that was not moved."""
    for node in nodes:
        summary = (summaries[node] or chain.summary(node)) if types[node] == "message" else None
        if node in unsent:
            answers.append([node])
            if summary is not None and summary.response not in divided:
                left_out.setdefault(shards.get(node, summary.response), answers[-1])
            continue
        if node in shards or (summary is not None and summary.is_assistant):
            # The prompt of an attachment separates only shards that something else separates, too.
            is_divided = summary is not None and summary.response in divided
            if (has_text or (has_attachment and is_divided)) and not has_results:
                reached.clear()
            response = shards[node] if node in shards or summary is None else summary.response
            if response != "" and response in left_out:
                reached.setdefault(response, left_out[response])
            if response in reached:
                reached[response].append(node)
                continue
            has_text = has_attachment = has_results = False
            answers.append([node])
            if response != "":
                reached[response] = answers[-1]
        else:
            answers.append([node])
            if summary is None:
                continue
            if not summary.results and is_attachment(chain, node):
                has_attachment = True
                continue
            left_out.clear()
            has_text = has_text or not summary.results
            has_results = has_results or bool(summary.results)
    return (node for answer in answers for node in answer)
