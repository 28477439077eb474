"""Find the cut point of a compaction: what is summarized and what is kept. Pure arithmetic on units, by Pi's rules.

From the newest entry backwards, estimates are added up until they reach the number of tokens to keep. The cut is at the
next possible entry. A cut can be at a user or assistant message, never at a tool result. If the cut splits a turn, the
first part of that turn is summarized separately, so that the kept part can be understood.

There is one difference from Pi. If another message (such as one of an extension) is between a call and its result, Pi
may cut there. We move the cut back to the call, because providers reject a result without its call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from sessiontree.compaction.context_units import LazyUnits, Unit
from sessiontree.compaction.token_estimate import PI, Estimator
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    BranchSummaryText,
    CompactionSummary,
    CustomText,
    Message,
    System,
    ToolResult,
    User,
    tool_calls,
)

KEEP_RECENT = 20_000
"""Default number of tokens to keep."""

KeepRule = Literal["recent", "turns", "nothing"]
"""What is kept: the newest messages up to a number of tokens; only complete turns; nothing."""

_STARTS_TURN = (User, BashExecution, CustomText, BranchSummaryText, CompactionSummary)


class Cut(Struct, frozen=True):
    """A cut: everything from unit `at` on is kept."""

    at: int
    turn_start: int | None = None
    """First unit of the turn that the cut splits; None if it splits none."""


class Parts(Struct, frozen=True):
    """The messages on both sides of a cut."""

    summarized: Sequence[Message]
    turn_prefix: Sequence[Message]
    kept: Sequence[Message]


def find_cut(units: Sequence[Unit], keep: int, rule: KeepRule = "recent", estimate: Estimator = PI) -> Cut | None:
    """Find the cut; None when there are no units."""
    if not units:
        return None
    match rule:
        case "recent":
            return _recent(units, keep, estimate)
        case "turns":
            return _complete_turns(units, keep, estimate)
        case "nothing":
            return Cut(_open_calls_from(units))


def parts_at(units: Sequence[Unit], cut: Cut) -> Parts:
    """Split the messages at a cut, without system prompts (see `system_prompt`)."""
    until = cut.at if cut.turn_start is None else cut.turn_start
    prefix = units[cut.turn_start : cut.at] if cut.turn_start is not None else ()
    return Parts(_messages(units[:until]), _messages(prefix), _messages(units[cut.at :]))


def _messages(units: Sequence[Unit]) -> Sequence[Message]:
    if isinstance(units, LazyUnits):
        return units.messages
    return tuple([message for unit in units for message in unit.messages if not isinstance(message, System)])


def _recent(units: Sequence[Unit], keep: int, estimate: Estimator) -> Cut:
    indexes = range(len(units))
    first = _next_cut_point(units, indexes)
    if first is None:
        return Cut(0)
    at, is_full = first, False
    kept = 0
    for index in reversed(indexes):
        tokens = sum(map(estimate, units[index].messages))
        kept += tokens
        if tokens and kept >= keep:
            is_full = True
            point = _next_cut_point(units, indexes[index:])
            if point is None:
                point = _next_cut_point(units, indexes[index::-1])
            at = first if point is None else point
            break
    if is_full and _is_hidden_attempt(units[at + 1 :]):
        at += 1
    at = _skip_empty_back(units, _back_to_calls(units, at))
    if at < len(units) and _starts_turn(units[at]):
        return Cut(at)
    return Cut(at, _turn_start(units, at))


def _complete_turns(units: Sequence[Unit], keep: int, estimate: Estimator) -> Cut:
    """Keep the last turns that fit, and at least the last one."""
    kept, at = 0, None
    end = len(units)
    for start in range(len(units) - 1, -1, -1):
        if not _starts_turn(units[start]):
            continue
        kept += sum(estimate(message) for unit in units[start:end] for message in unit.messages)
        if kept > keep and at is not None:
            break
        at = end = start
    if at is None:
        return Cut(_back_to_calls(units, 0))
    return Cut(_skip_empty_back(units, _back_to_calls(units, at)))


def _next_cut_point(units: Sequence[Unit], indexes: Iterable[int]) -> int | None:
    return next((at for at in indexes if _is_cut_point(units[at])), None)


def _is_cut_point(unit: Unit) -> bool:
    return unit.kind != "compaction" and any(
        isinstance(message, (*_STARTS_TURN, Assistant)) for message in unit.messages
    )


def _starts_turn(unit: Unit) -> bool:
    return unit.kind != "compaction" and any(isinstance(message, _STARTS_TURN) for message in unit.messages)


def _turn_start(units: Sequence[Unit], at: int) -> int | None:
    return next((index for index in range(min(at, len(units) - 1), -1, -1) if _starts_turn(units[index])), None)


def _skip_empty_back(units: Sequence[Unit], at: int) -> int:
    """Move a cut back over entries without messages: labels, model changes."""
    while at > 0 and units[at - 1].kind != "compaction" and not units[at - 1].messages:
        at -= 1
    return at


def _is_hidden_attempt(after: Sequence[Unit]) -> bool:
    """Whether only a failed attempt that was edited out follows the last message."""
    omitted = {unit.id for unit in after if unit.is_omitted}
    if any(unit.edits is not None and unit.edits not in omitted for unit in after):
        return False
    is_closed = all(unit.kind != "compaction" and not unit.messages for unit in after)
    return is_closed and any(unit.is_omitted and unit.is_answer for unit in after)


def _back_to_calls(units: Sequence[Unit], at: int) -> int:
    """Move a cut back to the call of each result that would be kept without it."""
    called: set[str] = set()
    lost: set[str] = set()
    for unit in units[at:]:
        for message in unit.messages:
            called.update(call.id for call in tool_calls(message))
            if isinstance(message, ToolResult) and message.tool_call_id not in called:
                lost.add(message.tool_call_id)
    index = at
    while lost and index > 0:
        index -= 1
        found = {call.id for message in units[index].messages for call in tool_calls(message)} & lost
        lost -= found
        at = index if found else at
    return at


def _open_calls_from(units: Sequence[Unit]) -> int:
    """Cut after everything; or, if calls have no results yet, at the assistant message with these calls."""
    for at in range(len(units) - 1, -1, -1):
        for message in reversed(units[at].messages):
            if isinstance(message, ToolResult):
                continue
            open_calls = {call.id for call in tool_calls(message)} - _answered(units[at:])
            # A result may be anywhere, so the units before the call are checked too, but only if needed.
            return at if open_calls and open_calls - _answered(units[:at]) else len(units)
    return len(units)


def _answered(units: Sequence[Unit]) -> set[str]:
    return {message.tool_call_id for unit in units for message in unit.messages if isinstance(message, ToolResult)}
