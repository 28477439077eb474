"""Calls without a result that the client does not send.

As measured with client 2.1.325, it leaves out every line whose calls all have no result, together with any text on that
line. A line with several calls is sent as soon as one of them has a result. Two exceptions, because the calls may still
be running:

* the last answer of the history, if no prompt follows it;
* the whole turn since the last prompt, if the history without such lines ends with a result, or with a prompt that
  attachments follow.

The first is decided with the shards of all responses together, and the second before (see `shard_order`). Both keep
only lines after the last prompt. Output of local commands counts for neither, and attachments only for the second.
`ReadOptions.recovered` sends all calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import Assistant, RedactedThinking, Text, Thinking, blocks_of
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.loose_lines import is_attachment, is_turn
from sessiontree.dialects.claude.messages import is_blank_text, is_from_client


def find_lines_with_open_calls(chain: Chain, path: Sequence[int]) -> set[int]:
    """Return the lines of a path that have calls, and none of them with a result on the path."""
    answered: set[str] = set()
    with_calls: list[tuple[int, Sequence[str]]] = []
    types, summaries = chain.types, chain.summaries
    for node in path:  # a hot loop
        if types[node] == "message":
            summary = summaries[node] or chain.summary(node)
            if summary.calls:
                with_calls.append((node, summary.calls))
            elif summary.results:
                answered.update(summary.results)
    return {node for node, calls in with_calls if answered.isdisjoint(calls)}


def find_unsent_lines(
    chain: Chain, path: Sequence[int], open_lines: Collection[int], ordered: Sequence[int] | None = None
) -> set[int]:
    """Return the lines of a path that the client leaves out.

    `open_lines` are those that have calls, all of them without a result. `ordered` is the path with the shards of each
    response together, if it has another order. Of attachments at the end of the path, `ordered` needs none.
    """
    found = set(open_lines)
    if not found:
        return found
    turn = find_last_turn(chain, path)
    if _is_interrupted(chain, path, found):
        return found.difference(turn)
    return found.difference(_last_answer(chain, path if ordered is None else ordered, found).intersection(turn))


def _is_interrupted(chain: Chain, path: Sequence[int], open_lines: Collection[int]) -> bool:
    """Whether a path without the lines with open calls ends with a result, or with attachments after a prompt."""
    has_attachments = False
    for node in reversed(path):
        if node in open_lines or chain.types[node] not in ("message", "attachment"):
            continue
        if not is_turn(chain, node):
            has_attachments = has_attachments or not chain.facts(node).is_system
        elif not _is_empty(chain, path, node, open_lines):
            summary = chain.summary(node)
            return bool(summary.results) or (has_attachments and not summary.is_assistant)
    return has_attachments


def _last_answer(chain: Chain, path: Sequence[int], open_lines: Collection[int]) -> set[int]:
    """Return the shards of the last answer on a path, without those before another message of the same response."""
    found: set[int] = set()
    response = ""
    for node in reversed(path):
        if chain.types[node] != "message" or (node not in open_lines and _is_empty(chain, path, node, open_lines)):
            continue
        summary = chain.summary(node)
        if not summary.is_assistant:
            if found and not summary.results and not is_attachment(chain, node):
                break
        elif not found or (response and summary.response == response):
            found.add(node)
            response = summary.response
        else:
            break
    return found


def _is_empty(chain: Chain, path: Sequence[int], node: int, left_out: Collection[int]) -> bool:
    """Whether a line is blank, and so are all lines of its response on a path. Few lines are, so each searches."""
    if not _is_blank(chain, node):
        return False
    response = chain.summary(node).response
    others = (other for other in path if chain.types[other] == "message" and other not in left_out)
    return not response or all(chain.summary(other).response != response or _is_blank(chain, other) for other in others)


def find_last_turn(chain: Chain, path: Sequence[int]) -> list[int]:
    """Return the answers and results after the last prompt."""
    turn: list[int] = []
    for node in reversed(path):
        if chain.types[node] != "message":
            continue
        if not chain.summary(node).is_prompt:
            turn.append(node)
        elif chain.facts(node).is_turn:  # not the output of a local command
            break
    return turn[::-1]


def find_empty_answers(chain: Chain, path: Sequence[int], left_out: Collection[int]) -> Iterator[int]:
    """Iterate over the lines of answers that are not sent: notes about failed requests, and responses of which all
    lines on the path are without text and calls.

    `left_out` are lines that are not sent either. The turn of the user goes on after all of these.
    """
    answers: dict[int | str, list[int]] = {}
    with_calls: set[int | str] = set()
    for node in path:
        if chain.types[node] != "message" or node in left_out:
            continue
        summary = chain.summary(node)
        if summary.is_assistant:
            answers.setdefault(summary.response or node, []).append(node)
            if summary.calls:
                with_calls.add(summary.response or node)
    for response, lines in answers.items():
        if response not in with_calls and all(_is_note(chain, node) or _is_blank(chain, node) for node in lines):
            yield from lines


def _is_note(chain: Chain, node: int) -> bool:
    """Whether a line is a note about a failed request."""
    (entry,) = chain.entries([node])
    return isinstance(entry, MessageEntry) and is_from_client(entry.message)


def _is_blank(chain: Chain, node: int) -> bool:
    """Whether a line is an answer of the model with neither text nor calls."""
    (entry,) = chain.entries([node])
    message = entry.message if isinstance(entry, MessageEntry) else None
    if not isinstance(message, Assistant) or not message.content or is_from_client(message):
        return False
    return all(
        isinstance(block, Thinking | RedactedThinking) or (isinstance(block, Text) and is_blank_text(block.text))
        for block in blocks_of(message.content)
    )
