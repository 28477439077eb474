"""What a run tells while it goes: a closed set of small values, in the order things happen.

    agent_start
        entry                                   the prompt is in the file
        turn_start
            thinking_delta* text_delta*         what comes of the answer
            retry*                              an attempt failed; what came of it does not count
            entry, usage                        the answer is in the file
            tool_start, tool_update*, approval, answered, entry, tool_end    of parallel calls, in any mixture
        turn_end
        compaction*                             before, between and after turns
    error?
    agent_end

An `entry` is told when it is in the file, never before. `agent_end` is always the last.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from sessiontree.agent.approval import Question, Reply
from sessiontree.agent.limits import RunUsage
from sessiontree.agent.tools.base import ToolOutput
from sessiontree.core.entries import Entry, MessageEntry
from sessiontree.core.jsonio import Value
from sessiontree.core.messages import Assistant, ToolCall, Usage

EndReason: TypeAlias = Literal["done", "interrupted", "limit", "error", "pending"]
"""Why a run ended: nothing is left to do, someone stopped it, a limit is reached, something failed, or calls from
before wait for a decision (see `resuming`)."""

Occasion: TypeAlias = Literal["before", "between", "after", "overflow"]
"""When a context was made smaller: before a prompt, between results and the next request, after the run, or because the
provider refused the request as too long."""


class EventBase(Value, frozen=True, tag_field="type", omit_defaults=False):
    """What happened."""


class AgentStart(EventBase, frozen=True, tag="agent_start"):
    session: str
    leaf: str | None
    model: str


class TurnStart(EventBase, frozen=True, tag="turn_start"):
    turn: int


class TextDelta(EventBase, frozen=True, tag="text_delta"):
    text: str


class ThinkingDelta(EventBase, frozen=True, tag="thinking_delta"):
    text: str


class Retry(EventBase, frozen=True, tag="retry"):
    """An attempt failed. The next one follows after `delay` seconds; deltas since `turn_start` are void."""

    attempt: int
    delay: float
    error: str


class Persisted(EventBase, frozen=True, tag="entry"):
    """An entry is in the file."""

    entry: Entry


class Used(EventBase, frozen=True, tag="usage"):
    """Something was used: by an answer, or while a call runs, by a sub-agent."""

    usage: Usage
    spent: RunUsage
    """The whole run so far."""


class ToolStart(EventBase, frozen=True, tag="tool_start"):
    call: ToolCall


class ToolUpdate(EventBase, frozen=True, tag="tool_update"):
    call_id: str
    text: str
    """What was printed since the last update; of much, the end."""


class ToolEnd(EventBase, frozen=True, tag="tool_end"):
    call: ToolCall
    output: ToolOutput


class ApprovalAsked(EventBase, frozen=True, tag="approval"):
    """A person is being asked. The approver that was given to the run puts the question."""

    question: Question


class ApprovalAnswered(EventBase, frozen=True, tag="answered"):
    call_id: str
    reply: Reply


class Compacting(EventBase, frozen=True, tag="compaction"):
    """The context is being made smaller, was, or could not be."""

    stage: Literal["start", "end", "failed"]
    occasion: Occasion
    how: Literal["compact", "prune", ""] = ""
    tokens_before: int = 0
    tokens_after: int = 0
    error: str = ""


class TurnEnd(EventBase, frozen=True, tag="turn_end"):
    turn: int
    stop_reason: str
    calls: int = 0


class Failed(EventBase, frozen=True, tag="error"):
    """The run cannot go on. `kind` is the name of the error's class."""

    kind: str
    message: str


class AgentEnd(EventBase, frozen=True, tag="agent_end"):
    reason: EndReason
    leaf: str | None
    spent: RunUsage
    text: str = ""
    """What the model said last."""
    why: str = ""
    """Which limit was reached, who interrupted, what failed."""


Event: TypeAlias = (
    AgentStart
    | TurnStart
    | TextDelta
    | ThinkingDelta
    | Retry
    | Persisted
    | Used
    | ToolStart
    | ToolUpdate
    | ToolEnd
    | ApprovalAsked
    | ApprovalAnswered
    | Compacting
    | TurnEnd
    | Failed
    | AgentEnd
)


def ends_request(event: Event) -> bool:
    """Whether a request is over, one way or the other: something may have been used that no entry tells."""
    match event:
        case Retry() | Compacting():
            return True
        case Persisted(entry=MessageEntry(message=Assistant())):
            return True
        case _:
            return False
