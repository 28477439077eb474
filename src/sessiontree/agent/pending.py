"""Calls that were made and never answered, because the program ended in the middle: the user decides what becomes of
them.

    pending_calls(branch)            what waits, and whether it had begun
    resolve_pending(branch, how)     "run" it again, "skip" it, or `Answered("...")` by hand: for all, or by call

Nothing is run again by itself: a call may have done its work before the program ended. A run that starts on a branch
with such calls ends at once and says so, unless it is told what to do with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from sessiontree.agent.branch_writer import SerializedBranch
from sessiontree.agent.live_context import live_of
from sessiontree.agent.result_messages import lost
from sessiontree.agent.tool_calls import Calls, result_message
from sessiontree.agent.tools.base import ToolOutput
from sessiontree.core.entries import Entry
from sessiontree.core.messages import Assistant, Message, ToolCall, ToolResult, User, tool_calls
from sessiontree.errors import UsageError
from sessiontree.session.session import Branch, Session

_SNAPSHOTS = frozenset({"file_snapshot", "sessiontree:file_snapshot"})


class Answered(Struct, frozen=True):
    """What the user says the result is."""

    text: str
    is_error: bool = False


How: TypeAlias = Literal["run", "skip"] | Answered
Decision: TypeAlias = How | Mapping[str, How]
"""One for all calls, or one for each call's id."""


class PendingCall(Struct, frozen=True):
    """A call without a result."""

    call: ToolCall
    had_begun: bool
    """Whether it is known to have begun to change files. If not, it may have all the same."""


def pending_calls(branch: Branch | Session) -> list[PendingCall]:
    """The calls at the end of a branch that nobody answered."""
    calls = open_calls(live_of(branch).look())
    begun = _begun(branch) if calls else set()
    return [PendingCall(call, call.id in begun) for call in calls]


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls of the last answer that have no result. Where the user has gone on since, none is open."""
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


def _begun(branch: Branch | Session) -> set[str]:
    """The calls of which a checkpoint says that they were about to change files."""
    session = branch if isinstance(branch, Session) else branch.session
    return set(_noted(session, branch.leaf))


def _noted(session: Session, leaf: str | None) -> Iterator[str]:
    at = leaf
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


def decided(how: Decision, call: ToolCall) -> How:
    """What becomes of a call; a call that a mapping does not name is an error, and nothing is done."""
    if not isinstance(how, Mapping):
        return how
    if call.id not in how:
        raise UsageError(f"nothing was decided about the call {call.id} of {call.name}: run, skip, or an answer")
    return how[call.id]


def result_without_running(pending: PendingCall, how: How) -> ToolOutput:
    """The result of a call that is not run again."""
    if isinstance(how, Answered):
        return ToolOutput(how.text, how.is_error, {"answeredBy": "user"})
    return lost(had_begun=pending.had_begun)


async def resolve_pending(branch: Branch | Session, how: Decision, calls: Calls | None = None) -> list[Entry]:
    """Give each pending call its result, and write it; `calls` is needed to run some again. The entries written."""
    waiting = [(pending, decided(how, pending.call)) for pending in pending_calls(branch)]
    if calls is None and any(one == "run" for _, one in waiting):
        raise UsageError("to run calls again, tools are needed")
    hand = SerializedBranch(branch, live_of(branch).hear)
    written: list[Entry] = []
    for pending, one in waiting:
        if one == "run":
            assert calls is not None
            output = await calls.call(pending.call, branch=hand)
        else:
            output = result_without_running(pending, one)
        written.append(hand.append(result_message(pending.call, output)))
    return written
