"""Calls without a result that the client does not send.

As measured with client 2.1.325, it leaves out every line whose calls all have no result, together with any text on that
line. A line with several calls is sent as soon as one of them has a result. Two exceptions, because the calls may still
be running:

* the last response of the history, if nothing follows it;
* the whole turn since the last prompt, if the history without such lines ends with a result.

Output of local commands and attachments count for neither. `ReadOptions.recovered` sends all calls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import Assistant, RedactedThinking, Text, Thinking, blocks_of
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.messages import is_blank_text, is_from_client


def find_unsent_lines(chain: Chain, path: Sequence[int], open_calls: Collection[str]) -> set[int]:
    """Return the lines of a path that the client leaves out. `open_calls` are the ids of the calls without a result."""
    messages = [node for node in path if chain.types[node] == "message"]
    found = {
        node for node in messages if (calls := chain.summary(node).calls) and all(map(open_calls.__contains__, calls))
    }
    if not found:
        return found
    turn = _last_turn(chain, messages)
    answers = [node for node in turn if node in found or not _is_blank(chain, node)]
    sent = [node for node in answers if node not in found]
    if sent and chain.summary(sent[-1]).results:
        return found.difference(turn)
    if not answers:
        return found
    response = chain.summary(answers[-1]).response
    return {
        node for node in found if node != answers[-1] and (not response or chain.summary(node).response != response)
    }


def _last_turn(chain: Chain, messages: Sequence[int]) -> list[int]:
    """Return the answers and results after the last prompt."""
    turn: list[int] = []
    for node in reversed(messages):
        if not chain.summary(node).is_prompt:
            turn.append(node)
        elif chain.facts(node).is_turn:  # not the output of a local command
            break
    return turn[::-1]


def _is_blank(chain: Chain, node: int) -> bool:
    """Whether a line is an answer that is not sent because it has neither text nor calls."""
    (entry,) = chain.entries([node])
    message = entry.message if isinstance(entry, MessageEntry) else None
    if not isinstance(message, Assistant) or not message.content or is_from_client(message):
        return False
    return all(
        isinstance(block, Thinking | RedactedThinking) or (isinstance(block, Text) and is_blank_text(block.text))
        for block in blocks_of(message.content)
    )
