"""Which messages a path gives, in which order, and from which lines each is made.

The shards of a response are one message. Of most lines it is known what they say (`speech`), so that planning needs no
bodies; the others are read. What the messages are is found out when they are looked at, by the rules of `spoken`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from sessiontree.core.messages import Assistant, Message, ToolResult, User, tool_calls
from sessiontree.dialects.claude.chain import Chain, read_entries
from sessiontree.dialects.claude.context_messages import (
    NO_CONTENT,
    SPEAKING_TYPES,
    joined,
    messages_of,
    settled,
    without_usage,
)
from sessiontree.dialects.claude.line_summary import is_blank
from sessiontree.dialects.claude.path import Trail
from sessiontree.dialects.contract import IndexedLines
from sessiontree.errors import ReplacedError


class Plan(Struct):
    """The messages of a path, not decoded yet."""

    tools: dict[str, str]
    """The name of the tool that a call is for, by the id of the call."""

    kept: frozenset[int]
    """The nodes that a compaction kept."""

    nodes: list[int] = []
    """The node behind each message."""

    shards: dict[int, list[int]] = {}
    """The other shards of messages that are responses in several."""

    numbers: dict[int, int] = {}
    """Which message of its node's entry a message is, where it is not the first."""

    stand_ins: set[int] = set()
    """Which of the messages are words in place of a line of which nothing is sent."""

    def take_over(self, other: Plan, at: int) -> None:
        """Add a message of another plan behind those that are here."""
        position = len(self.nodes)
        self.nodes.append(other.nodes[at])
        if at in other.shards:
            self.shards[position] = other.shards[at]
        if at in other.numbers:
            self.numbers[position] = other.numbers[at]


def plan_messages(chain: Chain, trail: Trail) -> Plan:
    """The messages of a path.

    The client does not send a result whose call is not there, nor do `providers`. It stays among the messages for those
    who look, and where a line held nothing else, the client sends words in its place.
    """
    draft = _Draft(chain, trail)
    plan = draft.plan
    silent = _silent(chain, plan, draft.unsure)
    strays = {at for at, call in draft.answers.items() if call not in plan.tools}
    if not silent and not strays:
        return plan
    settled_plan = Plan(plan.tools, plan.kept)
    heard = {node for at, node in enumerate(plan.nodes) if at not in strays}
    for at, node in enumerate(plan.nodes):
        if at not in silent:
            settled_plan.take_over(plan, at)
        if node not in heard:
            heard.add(node)
            settled_plan.stand_ins.add(len(settled_plan.nodes))
            settled_plan.take_over(plan, at)
    return settled_plan


def _silent(chain: Chain, plan: Plan, unsure: Collection[int]) -> set[int]:
    """Which of some messages are not sent."""
    positions = sorted(unsure)
    found = zip(positions, _read_whole(chain.lines, chain.tree.ids, plan, positions), strict=True)
    return {at for at, message in found if settled(message, plan.tools) is None}


class _Draft:
    """What the lines of a path say, in their order; some of it may turn out to be nothing."""

    def __init__(self, chain: Chain, trail: Trail) -> None:
        self.plan = Plan({}, trail.kept)
        self._nodes = self.plan.nodes
        self.answers: dict[int, str] = {}
        """Messages that are results, and the calls they answer."""
        self.unsure: set[int] = set()
        """Messages that may say nothing at all."""
        self._response = ""
        """The response that the next shard may belong to: nothing but results came after it."""
        self._response_at = -1
        noted, types = chain.noted, chain.types
        unknown = [node for node in trail.nodes if noted.get(node) is None and types[node] in SPEAKING_TYPES]
        entries = dict(zip(unknown, chain.entries(unknown), strict=True))
        tools = self.plan.tools
        for node in trail.nodes:  # one step costs what a long session has many thousands of
            speech = noted.get(node)
            if speech is None:
                if node in entries:
                    self._add_messages(node, messages_of(entries[node]))
            elif speech.is_assistant:
                self._add_answer(node, speech.response, False)
                for call, tool in zip(speech.calls, speech.tools, strict=True):
                    tools[call] = tool
            elif speech.answers:
                for number, call in enumerate(speech.answers):
                    self._add_result(node, number, call)
            elif speech.is_message:
                self._add_prompt(node, 0)

    def _add_messages(self, node: int, messages: Sequence[Message]) -> None:
        for number, message in enumerate(messages):
            match message:
                case ToolResult():
                    self._add_result(node, number, message.tool_call_id)
                case Assistant():
                    self._add_answer(node, message.response_id or "", is_blank(message.content))
                    self.plan.tools.update((call.id, call.name) for call in tool_calls(message))
                case _:
                    self._add_prompt(node, number)

    def _add_result(self, node: int, number: int, call: str) -> None:
        at = len(self._nodes)
        self._nodes.append(node)
        self.answers[at] = call
        if number:
            self.plan.numbers[at] = number

    def _add_answer(self, node: int, response: str, may_be_silent: bool) -> None:
        if response and response == self._response:
            self.plan.shards.setdefault(self._response_at, []).append(node)
            if not may_be_silent:
                self.unsure.discard(self._response_at)
            return
        self._response, self._response_at = response, len(self._nodes)
        if may_be_silent:
            self.unsure.add(self._response_at)
        self._nodes.append(node)

    def _add_prompt(self, node: int, number: int) -> None:
        self._response = ""
        if number:
            self.plan.numbers[len(self._nodes)] = number
        self._nodes.append(node)


def read_messages(lines: IndexedLines, ids: Sequence[str], plan: Plan, positions: Sequence[int]) -> list[Message]:
    """Some messages of a plan. `ids` are those the plan was made with: the file may be another one by now."""
    found: list[Message] = []
    for at, message in zip(positions, _read_whole(lines, ids, plan, positions), strict=True):
        sent = User(message.timestamp, NO_CONTENT) if at in plan.stand_ins else settled(message, plan.tools)
        if sent is None:
            raise _replaced(lines)
        found.append(sent)
    return found


def _read_whole(lines: IndexedLines, ids: Sequence[str], plan: Plan, positions: Sequence[int]) -> list[Message]:
    """Some messages as they were said, with all their shards."""
    parts = [(plan.nodes[at], *plan.shards.get(at, ())) for at in positions]
    nodes = sorted({node for part in parts for node in part})
    said: dict[int, Sequence[Message]] = {}
    for node, entry in zip(nodes, read_entries(lines, nodes), strict=True):
        if entry.id and entry.id != ids[node]:
            raise _replaced(lines)
        messages = messages_of(entry)
        said[node] = [without_usage(message) for message in messages] if node in plan.kept else messages
    try:
        return [
            joined([said[node][plan.numbers.get(at, 0)] for node in part])
            for at, part in zip(positions, parts, strict=True)
        ]
    except IndexError:
        raise _replaced(lines) from None


def sizes_of(lines: IndexedLines, plan: Plan, positions: range) -> list[int]:
    """How many bytes the lines of some messages have."""
    sizes = lines.sizes()
    found = [sizes[node] for node in plan.nodes]
    for at, shards in plan.shards.items():
        found[at] += sum([sizes[shard] for shard in shards])
    return found[positions.start : positions.stop]


def _replaced(lines: IndexedLines) -> ReplacedError:
    return ReplacedError(f"{lines.location}: was rewritten while its messages were being read. Open it again.")
