"""Where a compaction cuts: what is summarised, what stays. Pure arithmetic over units (see `projection`), Pi's rules.

Walking back from the newest entry, estimates are added up until they reach what shall be kept; the cut is at the next
entry at which one may cut. One may cut at what a user or the model said, never at a result. If the cut falls inside a
turn, the part of the turn before it is summarised on its own, so that what is kept can be understood.

In one case we differ from Pi: where something stands between a call and its result (a message of an extension, say), Pi
may cut there; we go back to the call.
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
"""How many tokens stay as they are, when nothing else is said."""

Manner = Literal["recent", "turns", "nothing"]
"""What stays: the newest messages up to a number of tokens; whole turns only; nothing."""

_STARTS_TURN = (User, BashExecution, CustomText, BranchSummaryText, CompactionSummary)


class Cut(Struct, frozen=True):
    """Where units are cut: everything from `at` on stays."""

    at: int
    turn_start: int | None = None
    """Where the turn begins that the cut splits; None when it splits none."""


class Parts(Struct, frozen=True):
    """What becomes of the messages at a cut."""

    summarised: Sequence[Message]
    turn_prefix: Sequence[Message]
    kept: Sequence[Message]


def find_cut(units: Sequence[Unit], keep: int, manner: Manner = "recent", estimate: Estimator = PI) -> Cut | None:
    """Where to cut; None when there is nothing to cut."""
    if not units:
        return None
    match manner:
        case "recent":
            return _recent(units, keep, estimate)
        case "turns":
            return _whole_turns(units, keep, estimate)
        case "nothing":
            return Cut(_open_calls_from(units))


def parts_at(units: Sequence[Unit], cut: Cut) -> Parts:
    """The messages on each side of a cut. The system prompt is no part of a conversation: see `system`."""
    until = cut.at if cut.turn_start is None else cut.turn_start
    prefix = units[cut.turn_start : cut.at] if cut.turn_start is not None else ()
    return Parts(_said(units[:until]), _said(prefix), _said(units[cut.at :]))


def _said(units: Sequence[Unit]) -> Sequence[Message]:
    if isinstance(units, LazyUnits):
        return units.messages
    return tuple([message for unit in units for message in unit.messages if not isinstance(message, System)])


def _recent(units: Sequence[Unit], keep: int, estimate: Estimator) -> Cut:
    everywhere = range(len(units))
    first = _next_cut_point(units, everywhere)
    if first is None:
        return Cut(0)
    at, is_full = first, False
    kept = 0
    for place in reversed(everywhere):
        tokens = sum(map(estimate, units[place].messages))
        kept += tokens
        if tokens and kept >= keep:
            is_full = True
            point = _next_cut_point(units, everywhere[place:])
            if point is None:
                point = _next_cut_point(units, everywhere[place::-1])
            at = first if point is None else point
            break
    if is_full and _is_hidden_attempt(units[at + 1 :]):
        at += 1
    at = _past_silence(units, _back_to_calls(units, at))
    if at < len(units) and _starts_turn(units[at]):
        return Cut(at)
    return Cut(at, _turn_start(units, at))


def _whole_turns(units: Sequence[Unit], keep: int, estimate: Estimator) -> Cut:
    """The last turns that fit, and the last one in any case."""
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
    return Cut(_past_silence(units, _back_to_calls(units, at)))


def _next_cut_point(units: Sequence[Unit], places: Iterable[int]) -> int | None:
    return next((at for at in places if _is_cut_point(units[at])), None)


def _is_cut_point(unit: Unit) -> bool:
    return unit.kind != "compaction" and any(
        isinstance(message, (*_STARTS_TURN, Assistant)) for message in unit.messages
    )


def _starts_turn(unit: Unit) -> bool:
    return unit.kind != "compaction" and any(isinstance(message, _STARTS_TURN) for message in unit.messages)


def _turn_start(units: Sequence[Unit], at: int) -> int | None:
    return next((place for place in range(min(at, len(units) - 1), -1, -1) if _starts_turn(units[place])), None)


def _past_silence(units: Sequence[Unit], at: int) -> int:
    """Back over what says nothing right before a cut: labels, changes of model."""
    while at > 0 and units[at - 1].kind != "compaction" and not units[at - 1].messages:
        at -= 1
    return at


def _is_hidden_attempt(behind: Sequence[Unit]) -> bool:
    """Whether nothing but an attempt that failed and was edited out stands behind the last message."""
    omitted = {unit.id for unit in behind if unit.is_omitted}
    if any(unit.edits is not None and unit.edits not in omitted for unit in behind):
        return False
    is_closed = all(unit.kind != "compaction" and not unit.messages for unit in behind)
    return is_closed and any(unit.is_omitted and unit.is_answer for unit in behind)


def _back_to_calls(units: Sequence[Unit], at: int) -> int:
    """The cut, or the place before it of a call that something behind it answers."""
    called: set[str] = set()
    lost: set[str] = set()
    for unit in units[at:]:
        for message in unit.messages:
            called.update(call.id for call in tool_calls(message))
            if isinstance(message, ToolResult) and message.tool_call_id not in called:
                lost.add(message.tool_call_id)
    place = at
    while lost and place > 0:
        place -= 1
        found = {call.id for message in units[place].messages for call in tool_calls(message)} & lost
        lost -= found
        at = place if found else at
    return at


def _open_calls_from(units: Sequence[Unit]) -> int:
    """Behind everything; or, if calls still wait for their results, at the answer that made them."""
    for at in range(len(units) - 1, -1, -1):
        for message in reversed(units[at].messages):
            if isinstance(message, ToolResult):
                continue
            open_calls = {call.id for call in tool_calls(message)} - _answered(units[at:])
            # A result may stand anywhere; where it should, behind the call, is looked first.
            return at if open_calls and open_calls - _answered(units[:at]) else len(units)
    return len(units)


def _answered(units: Sequence[Unit]) -> set[str]:
    return {message.tool_call_id for unit in units for message in unit.messages if isinstance(message, ToolResult)}
