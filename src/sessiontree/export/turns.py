"""The active branch as model requests: each answer with what was new in its request, its calls and their results.

For formats of traces and trajectories. A turn starts with a prompt of the user; one turn is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from sessiontree.core.entries import BranchSummary, Compaction, CustomMessage, MessageEntry, milliseconds
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    BranchSummaryText,
    CompactionSummary,
    CustomText,
    Message,
    System,
    ToolCall,
    ToolResult,
    User,
    blocks_of,
    tool_calls,
)
from sessiontree.export.source import Source


class Result(Struct, frozen=True):
    """The result of a call, and when it was written."""

    message: ToolResult
    time: int


class Step(Struct):
    """One message of a turn; for an answer, the results of its calls."""

    id: str
    message: Message
    started: int
    """Milliseconds since 1970: when the message before it was written."""
    ended: int
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tool_calls(self.message)


class Turn(Struct):
    """A prompt, and everything up to the next one."""

    steps: list[Step] = field(default_factory=list)


def iter_turns(source: Source) -> Iterator[Turn]:
    """The turns of the active branch. Results belong to the answer with their call; others are separate steps."""
    turn = Turn()
    calls: dict[str, Step] = {}
    now = milliseconds(source.session.header.timestamp) or 0
    for strand in source.strands[:1]:
        for _, entry in source.iter_entries(strand.nodes):
            before, now = now, max(now, milliseconds(entry.timestamp) or now)
            for message in _messages(entry):
                if isinstance(message, ToolResult) and message.tool_call_id in calls:
                    calls.pop(message.tool_call_id).results[message.tool_call_id] = Result(message, now)
                    continue
                if isinstance(message, User) and turn.steps and not _only_system(turn):
                    yield turn
                    turn, calls = Turn(), {}
                step = _find_beginning(turn, message)
                if step is None:
                    step = Step(entry.id, message, before, now)
                    turn.steps.append(step)
                else:
                    step.message, step.ended = _joined(step.message, message), now
                calls.update(dict.fromkeys((call.id for call in tool_calls(message)), step))
    if turn.steps:
        yield turn


def _find_beginning(turn: Turn, message: Message) -> Step | None:
    """The step with the beginning of the same answer: some clients write each of its blocks as an entry."""
    if not isinstance(message, Assistant) or not message.response_id:
        return None
    answers = (step for step in reversed(turn.steps) if isinstance(step.message, Assistant))
    found = next(answers, None)
    is_same = found is not None and getattr(found.message, "response_id", None) == message.response_id
    return found if is_same else None


def _joined(beginning: Message, rest: Message) -> Message:
    assert isinstance(beginning, Assistant)
    assert isinstance(rest, Assistant)
    return replace(rest, content=(*blocks_of(beginning.content), *blocks_of(rest.content)))


def _only_system(turn: Turn) -> bool:
    return all(isinstance(step.message, System) for step in turn.steps)


def _messages(entry: object) -> tuple[Message, ...]:
    """The messages of an entry; of summaries, those that a context has for them."""
    match entry:
        case MessageEntry():
            return tuple(entry.messages)
        case CustomMessage():
            return (CustomText(custom_type=entry.custom_type, content=entry.content),)
        case Compaction():
            return (CompactionSummary(summary=entry.summary, tokens_before=entry.tokens_before),)
        case BranchSummary():
            return (BranchSummaryText(summary=entry.summary, from_id=entry.from_id),)
        case _:
            return ()


def is_input(message: Message) -> bool:
    """Whether a message is part of what a model receives, and not an answer."""
    return not isinstance(message, Assistant | BashExecution) or (
        isinstance(message, BashExecution) and not message.exclude_from_context
    )
