"""Calls that were written but never got a result, because the program ended while they ran.

    pending_calls(branch)                 the calls without a result, and whether each had begun
    resolve_pending(branch, decision)     "run" again, "skip", or `Answered("...")`: one decision for all, or one each

No call is run again automatically: it may have done its work before the program ended. A run that starts on a branch
with such calls ends immediately and reports them, unless it is given a decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from sessiontree.agent.branch_writer import SerializedBranch
from sessiontree.agent.live_context import live_context_of
from sessiontree.agent.result_messages import lost, result_message
from sessiontree.agent.tool_calls import ToolRunner
from sessiontree.agent.tools.base import ToolOutput
from sessiontree.core.entries import Entry
from sessiontree.core.messages import Assistant, Message, ToolCall, ToolResult, User, tool_calls
from sessiontree.errors import UsageError
from sessiontree.session.session import Branch, Session

_SNAPSHOTS = frozenset({"file_snapshot", "sessiontree:file_snapshot"})


class Answered(Struct, frozen=True):
    """A result written by the user."""

    text: str
    is_error: bool = False


Resolution: TypeAlias = Literal["run", "skip"] | Answered
Decision: TypeAlias = Resolution | Mapping[str, Resolution]
"""One resolution for all calls, or one per call id."""


class PendingCall(Struct, frozen=True):
    """A call without a result."""

    call: ToolCall
    had_begun: bool
    """Whether it is known to have begun changing files. False does not prove the opposite."""


def pending_calls(branch: Branch | Session) -> list[PendingCall]:
    """Find the calls at the end of a branch that have no result."""
    calls = open_calls(live_context_of(branch).messages())
    begun = set(_iter_begun(branch)) if calls else set()
    return [PendingCall(call, call.id in begun) for call in calls]


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls of the last answer that have no result; none if the user has written since."""
    answered: set[str] = set()
    for at in range(len(messages) - 1, -1, -1):
        match messages[at]:
            case ToolResult() as result:
                answered.add(result.tool_call_id)
            case Assistant() as answer:
                return [call for call in tool_calls(answer) if call.id not in answered]
            case User():
                return []
            case _:
                pass
    return []


def _iter_begun(branch: Branch | Session) -> Iterator[str]:
    """Ids of calls since the last answer with a checkpoint, which is written before files are changed."""
    session = branch if isinstance(branch, Session) else branch.session
    at = branch.leaf
    while at is not None:
        kind = session.type_of(at)
        if kind in _SNAPSHOTS:
            fields = session.fields(at)
            call = (fields.get("entry") or fields).get("call")
            if isinstance(call, str):
                yield call
        elif kind == "message" and session.fields(at).get("message", {}).get("role") == "assistant":
            return
        at = session.parent(at)


def decided(decision: Decision, call: ToolCall) -> Resolution:
    """The resolution of a call; `UsageError` if a mapping does not contain it."""
    if not isinstance(decision, Mapping):
        return decision
    if call.id not in decision:
        raise UsageError(f"no decision for the call {call.id} of {call.name}: choose run, skip, or an answer")
    return decision[call.id]


def result_without_running(pending: PendingCall, resolution: Resolution) -> ToolOutput:
    """The result of a call that is not run again."""
    if isinstance(resolution, Answered):
        return ToolOutput(resolution.text, resolution.is_error, {"answeredBy": "user"})
    return lost(had_begun=pending.had_begun)


async def resolve_pending(
    branch: Branch | Session, decision: Decision, runner: ToolRunner | None = None
) -> list[Entry]:
    """Write a result for each pending call and return the entries. `runner` is needed to run calls again."""
    waiting = [(pending, decided(decision, pending.call)) for pending in pending_calls(branch)]
    if runner is None and any(resolution == "run" for _, resolution in waiting):
        raise UsageError("running calls again needs a ToolRunner: pass `runner`")
    writer = SerializedBranch(branch, live_context_of(branch).add)
    written: list[Entry] = []
    for pending, resolution in waiting:
        if resolution == "run":
            assert runner is not None
            output = await runner.call(pending.call, branch=writer)
        else:
            output = result_without_running(pending, resolution)
        written.append(writer.append(result_message(pending.call, output)))
    return written
