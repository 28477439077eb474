"""The context of a path: its messages, decoded on first access, and the state at its end.

A plan lists the messages of a path in order, and the lines of each. Line summaries suffice for that, so bodies are read
only for lines without a summary. The plan also joins the shards of a response into one message. Of calls without
results, the client sends those of an interrupted turn (see `open_calls`); `providers` completes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from msgspec import Struct

from sessiontree.core.context import Context, ModelRef, State
from sessiontree.core.messages import Assistant, LazyMessages, Message, ToolResult, User, tool_calls
from sessiontree.dialects.claude.boundaries import find_preserved
from sessiontree.dialects.claude.chain import Chain, read_entries
from sessiontree.dialects.claude.messages import (
    NO_CONTENT,
    SENT_TYPES,
    context_messages,
    is_blank,
    join_shards,
    prepare_message,
    with_calls_last,
    without_usage,
)
from sessiontree.dialects.claude.open_calls import find_empty_answers, find_lines_with_open_calls, find_unsent_lines
from sessiontree.dialects.claude.path import Path
from sessiontree.dialects.claude.records import SYNTHETIC, object_in, string_in
from sessiontree.dialects.claude.shard_order import move_early_results
from sessiontree.dialects.contract import IndexedLines, ReadOptions
from sessiontree.errors import ReplacedError

_MODEL_WINDOW = 256
"""Number of lines before a boundary to search for a model."""

_MODE_FIELDS = {"mode": "mode", "permission-mode": "permissionMode"}


def build_context(chain: Chain, path: Path, read_options: ReadOptions) -> Context:
    """Return the messages a model receives for a path, and the state at its end."""
    ids = chain.tree.ids
    plan = _plan_messages(chain, path, read_options)
    messages = _planned_messages(chain, plan)
    return Context(_ids(ids, path.nodes), messages, _ids(ids, plan.nodes), _state(chain, path, messages))


def build_messages(chain: Chain, nodes: list[int], read_options: ReadOptions) -> Sequence[Message]:
    """Return the messages a model receives for a path, or for a part of one."""
    is_compacted = bool(nodes) and chain.types[nodes[0]] == "compaction"
    path = Path(nodes, find_preserved(chain, nodes[0]).nodes) if is_compacted else Path(nodes)
    return _planned_messages(chain, _plan_messages(chain, path, read_options))


def _planned_messages(chain: Chain, plan: _Plan) -> LazyMessages:
    lines, ids = chain.lines, chain.tree.ids
    return LazyMessages(
        len(plan.nodes),
        lambda positions: _read_messages(lines, ids, plan, positions),
        lambda positions: _message_sizes(lines, plan, positions),
    )


def _ids(ids: Sequence[str], nodes: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(ids.__getitem__, nodes))


def _state(chain: Chain, path: Path, messages: Sequence[Message]) -> State:
    models = (message.model for message in reversed(messages) if isinstance(message, Assistant))
    model = next((name for name in models if _is_model(name)), None)
    if model is None and path.nodes:
        # After a compaction that preserved no assistant message, the model is that of the last one before it.
        _, model = find_model_before(chain.lines, path.nodes[0]) or (None, None)
    ref = ModelRef("anthropic", model) if model else None
    return State(model=ref, models={"default": f"anthropic/{model}"} if model else {}, mode=_find_mode(chain))


def _is_model(name: str | None) -> bool:
    return bool(name) and name != SYNTHETIC


def find_model_before(lines: IndexedLines, boundary: int) -> tuple[int, str] | None:
    """Return the last line before a boundary that names a model, and the model."""
    window = range(max(0, boundary - _MODEL_WINDOW), boundary)
    nodes = [node for node in window if lines.types[node] == "message"]
    for node, line in zip(reversed(nodes), reversed(lines.fields(nodes)), strict=True):
        model = string_in(object_in(line, "message"), "model")
        if model and _is_model(model) and line.get("isSidechain") is not True:
            return node, model
    return None


def _find_mode(chain: Chain) -> str:
    for node in range(len(chain) - 1, -1, -1):
        key = _MODE_FIELDS.get(chain.types[node])
        if key is not None:
            (line,) = chain.lines.fields([node])
            return string_in(line, key) or "none"
    return "none"


# The plan


class _Plan(Struct):
    """The messages of a path, not decoded yet. Positions count messages."""

    tools: dict[str, str]
    """The tool name of each call id."""

    preserved: frozenset[int]
    """The nodes that a compaction preserved."""

    nodes: list[int] = []
    """The node of each message."""

    shards: dict[int, list[int]] = {}
    """The other shards of a response, by position."""

    indexes: dict[int, int] = {}
    """The index of a message within its entry, by position, where it is not the first."""

    placeholders: set[int] = set()
    """The positions of messages that the client replaces by `(no content)`."""

    def copy_message(self, other: _Plan, at: int) -> None:
        """Append a message of another plan."""
        position = len(self.nodes)
        self.nodes.append(other.nodes[at])
        if at in other.shards:
            self.shards[position] = other.shards[at]
        if at in other.indexes:
            self.indexes[position] = other.indexes[at]


def _plan_messages(chain: Chain, path: Path, read_options: ReadOptions) -> _Plan:
    draft = _Draft(chain, path, frozenset())
    if draft.strays and not path.has_late_results:  # few paths have any
        nodes, _ = move_early_results(chain, path.nodes, [])
        path = Path(nodes, path.preserved, path.unsent, has_late_results=True)
        draft = _Draft(chain, path, frozenset())
    unsent: Collection[int] = ()
    if not read_options.recovered and draft.plan.tools.keys() - draft.answered:
        if path.unsent is not None:
            unsent = path.unsent
        else:
            unsent = find_unsent_lines(chain, path.nodes, find_lines_with_open_calls(chain, path.nodes))
        draft = _Draft(chain, path, unsent) if unsent else draft
    if draft.strays and not read_options.recovered:
        # Answers that are not sent do not separate a result from its call.
        empty = frozenset(find_empty_answers(chain, path.nodes, unsent))
        draft = _Draft(chain, path, empty.union(unsent)) if empty else draft
    plan = draft.plan
    blank = _find_blank(chain, plan, draft.maybe_blank)
    # The client does not send a result without its call, and sends `(no content)` where nothing else is left between
    # two answers.
    strays = set() if read_options.recovered else draft.strays
    if not blank and not strays:
        return plan
    final = _Plan(plan.tools, plan.preserved)
    placeholders = _find_placeholders(chain, plan, blank, strays)
    for at in range(len(plan.nodes)):
        if at not in blank and at not in strays:
            final.copy_message(plan, at)
        if at in placeholders:
            final.placeholders.add(len(final.nodes))
            final.copy_message(plan, at)
    return final


def _find_placeholders(chain: Chain, plan: _Plan, blank: set[int], strays: set[int]) -> set[int]:
    """Return the last stray result of each turn of the user that consists of nothing else."""
    found: set[int] = set()
    turn: list[int] = []
    for at, node in [*enumerate(plan.nodes), (-1, -1)]:
        if at in blank:
            continue
        if node >= 0 and not chain.summary(node).is_assistant:
            turn.append(at)
            continue
        if turn and strays.issuperset(turn):
            found.add(turn[-1])
        turn = []
    return found


def _find_blank(chain: Chain, plan: _Plan, maybe_blank: Collection[int]) -> set[int]:
    """Return the positions of messages that are not sent because they are blank."""
    positions = sorted(maybe_blank)
    found = zip(positions, _read_joined(chain.lines, chain.tree.ids, plan, positions), strict=True)
    return {at for at, message in found if prepare_message(message, plan.tools) is None}


class _Draft:
    """A plan under construction; some of its messages may turn out to be blank."""

    def __init__(self, chain: Chain, path: Path, left_out: Collection[int]) -> None:
        self.plan = _Plan({}, path.preserved)
        self.answered: set[str] = set()
        """The calls with a result anywhere on the path."""
        self.strays: set[int] = set()
        """The positions of results whose call is not in the answer before them."""
        self.maybe_blank: set[int] = set()
        self._nodes = self.plan.nodes
        self._response = ""
        """The response that the next shard may belong to: only results came after it."""
        self._response_at = -1
        self._calls: set[str] = set()
        """The calls of the last response. The client sends a result only after the response with its call."""
        summaries, types, tools = chain.summaries, chain.types, self.plan.tools
        nodes = [node for node in path.nodes if node not in left_out] if left_out else path.nodes
        unknown = [node for node in nodes if summaries[node] is None and types[node] in SENT_TYPES]
        entries = dict(zip(unknown, chain.entries(unknown), strict=True))
        for node in nodes:  # a hot loop: it runs many thousands of times for a long session
            summary = summaries[node]
            if summary is None:
                if node in entries:
                    self._add_messages(node, context_messages(entries[node]))
            elif summary.is_assistant:
                self._add_shard(node, summary.response, False)
                for call, tool in zip(summary.calls, summary.tools, strict=True):
                    tools[call] = tool
                    self._calls.add(call)
            elif summary.results:
                for index, call in enumerate(summary.results):
                    self._add_result(node, index, call)
            elif summary.is_message:
                self._add_prompt(node, 0)

    def _add_messages(self, node: int, messages: Sequence[Message]) -> None:
        for index, message in enumerate(messages):
            match message:
                case ToolResult():
                    self._add_result(node, index, message.tool_call_id)
                case Assistant():
                    # For an answer without any content the client sends `(no content)`, so that one is not blank.
                    may_be_blank = message.content != () and is_blank(message.content)
                    self._add_shard(node, message.response_id or "", may_be_blank)
                    for call in tool_calls(message):
                        self.plan.tools[call.id] = call.name
                        self._calls.add(call.id)
                case _:
                    self._add_prompt(node, index)

    def _add_result(self, node: int, index: int, call: str) -> None:
        at = len(self._nodes)
        self._nodes.append(node)
        self.answered.add(call)
        if call not in self._calls:
            self.strays.add(at)
        if index:
            self.plan.indexes[at] = index

    def _add_shard(self, node: int, response: str, may_be_blank: bool) -> None:
        if response and response == self._response:
            self.plan.shards.setdefault(self._response_at, []).append(node)
            if not may_be_blank and self._response_at in self.maybe_blank:
                self.maybe_blank.discard(self._response_at)
                self._calls = set()
            return
        self._response, self._response_at = response, len(self._nodes)
        if may_be_blank:  # then it is not sent, and results may belong to the answer before it
            self.maybe_blank.add(self._response_at)
        else:
            self._calls = set()
        self._nodes.append(node)

    def _add_prompt(self, node: int, index: int) -> None:
        self._response = ""
        if index:
            self.plan.indexes[len(self._nodes)] = index
        self._nodes.append(node)


# Reading planned messages


def _read_messages(lines: IndexedLines, ids: Sequence[str], plan: _Plan, positions: Sequence[int]) -> list[Message]:
    """Decode some messages of a plan. `ids` date from its creation, to detect that the file has changed since."""
    found: list[Message] = []
    for at, message in zip(positions, _read_joined(lines, ids, plan, positions), strict=True):
        is_placeholder = at in plan.placeholders
        sent = User(message.timestamp, NO_CONTENT) if is_placeholder else prepare_message(message, plan.tools)
        if sent is None:
            raise _replaced(lines)
        found.append(sent)
    return found


def _read_joined(lines: IndexedLines, ids: Sequence[str], plan: _Plan, positions: Sequence[int]) -> list[Message]:
    shards = [(plan.nodes[at], *plan.shards.get(at, ())) for at in positions]
    nodes = sorted({node for part in shards for node in part})
    by_node: dict[int, Sequence[Message]] = {}
    for node, entry in zip(nodes, read_entries(lines, nodes), strict=True):
        if entry.id and entry.id != ids[node]:
            raise _replaced(lines)
        messages = context_messages(entry)
        # Token counts from before a compaction would make the context look full again; the client clears them, too.
        by_node[node] = [without_usage(message) for message in messages] if node in plan.preserved else messages
    try:
        return [
            with_calls_last(join_shards([by_node[node][plan.indexes.get(at, 0)] for node in part]))
            for at, part in zip(positions, shards, strict=True)
        ]
    except IndexError:
        raise _replaced(lines) from None


def _message_sizes(lines: IndexedLines, plan: _Plan, positions: range) -> list[int]:
    found = lines.sizes(plan.nodes[positions.start : positions.stop])
    shards = [(at - positions.start, plan.shards[at]) for at in positions if at in plan.shards]
    sizes = iter(lines.sizes([node for _, nodes in shards for node in nodes]))  # one call: each has a cost of its own
    for at, nodes in shards:
        found[at] += sum(islice(sizes, len(nodes)))
    return found


def _replaced(lines: IndexedLines) -> ReplacedError:
    return ReplacedError(f"{lines.location}: was rewritten while its messages were being read. Open it again.")
