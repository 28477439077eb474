"""Events of a run: a closed set of small values, in the order in which they are emitted.

    agent_start
        entry                                   the prompt was written
        turn_start
            thinking_delta* text_delta*         parts of the answer
            retry*                              an attempt failed; its deltas are void
            entry, usage                        the answer was written
            tool_start, tool_update*, approval, answered, entry, tool_end    interleaved for parallel calls
        turn_end
        compaction*                             before, between and after turns
    error?
    agent_end

An `entry` event is sent after the entry is in the file, never before. `agent_end` is always the last event.
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
"""Why a run ended: it is complete, was interrupted, reached a limit, failed, or found calls of an earlier run that need
a decision (see `tool_calls`)."""

Occasion: TypeAlias = Literal["before", "between", "after", "overflow"]
"""When a compaction happened: before a prompt, between results and the next request, after the run, or because the
provider refused a request as too long."""


class EventBase(Value, frozen=True, tag_field="type", omit_defaults=False):
    """Base class of events."""


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
    """An attempt failed; the next one starts after `delay` seconds. Deltas since `turn_start` are void."""

    attempt: int
    delay: float
    error: str


class Persisted(EventBase, frozen=True, tag="entry"):
    """An entry was written."""

    entry: Entry


class Used(EventBase, frozen=True, tag="usage"):
    """Usage of an answer, or of a sub-agent during a call."""

    usage: Usage
    spent: RunUsage
    """Usage of the entire run so far."""


class ToolStart(EventBase, frozen=True, tag="tool_start"):
    call: ToolCall


class ToolUpdate(EventBase, frozen=True, tag="tool_update"):
    call_id: str
    text: str
    """Output since the last update; if it is long, its end."""


class ToolEnd(EventBase, frozen=True, tag="tool_end"):
    call: ToolCall
    output: ToolOutput


class ApprovalAsked(EventBase, frozen=True, tag="approval"):
    """The user is asked. The run's approver presents the question."""

    question: Question


class ApprovalAnswered(EventBase, frozen=True, tag="answered"):
    call_id: str
    reply: Reply


class Compacting(EventBase, frozen=True, tag="compaction"):
    """Auto-compaction starts, has ended, or failed."""

    stage: Literal["start", "end", "failed"]
    occasion: Occasion
    how: Literal["compact", "prune", ""] = ""
    tokens_before: int = 0
    tokens_after: int = 0
    error: str = ""
    report: str = ""
    """A problem that did not prevent the compaction, such as a summary that needed the fallback."""


class TurnEnd(EventBase, frozen=True, tag="turn_end"):
    turn: int
    stop_reason: str
    calls: int = 0


class Failed(EventBase, frozen=True, tag="error"):
    """The run cannot continue. `kind` is the name of the error class."""

    kind: str
    message: str


class AgentEnd(EventBase, frozen=True, tag="agent_end"):
    reason: EndReason
    leaf: str | None
    spent: RunUsage
    text: str = ""
    """The text of the last answer."""
    why: str = ""
    """Details: the limit, the cause of the interrupt, or the error."""


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
    """Whether a request has ended, successfully or not: there may be usage that no entry records."""
    match event:
        case Retry() | Compacting():
            return True
        case Persisted(entry=MessageEntry(message=Assistant())):
            return True
        case _:
            return False
