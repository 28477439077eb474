"""What came of lanes, side by side: answer, files, check, tokens, cost, time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sessiontree.core.jsonio import Value
from sessiontree.errors import SessionTreeError
from sessiontree.explore.lane import Lane, LaneState
from sessiontree.explore.records import Plan, Verdict
from sessiontree.explore.worktrees import Copies
from sessiontree.git.trees import FileChange


class HasLanes(Protocol):
    """An exploration that goes on, or one that a file tells of."""

    @property
    def lanes(self) -> Sequence[Lane]: ...

    @property
    def plan(self) -> Plan: ...


class Result(Value, frozen=True, omit_defaults=False):
    """What came of one lane. Texts come from sessions and models: to be escaped by who shows them."""

    lane: int
    name: str
    model: str
    prompt: str
    state: LaneState
    why: str
    answer: str
    files: tuple[FileChange, ...] | None
    """What it changed in its working copy; None when it has none, or it cannot be looked at."""
    check: bool | None
    """Whether the check passed; None when there was none, or nobody knows."""
    check_output: str
    turns: int
    tokens: float
    cost: float
    seconds: float
    leaf: str | None
    verdict: Verdict | None
    origin: int | None = None
    """The lane it was forked from by a rule."""
    rule: str | None = None
    reason: str | None = None
    check_why: str = ""
    """Why the check neither passed nor failed, if there was one."""

    @property
    def added(self) -> int:
        """Lines."""
        return sum(one.added or 0 for one in self.files or ())

    @property
    def removed(self) -> int:
        return sum(one.removed or 0 for one in self.files or ())


def compare(exploration: HasLanes, copies: Copies | None) -> list[Result]:
    """What came of all lanes. Looks at their working copies: for a thread."""
    return [result_of(lane, copies) for lane in exploration.lanes]


def result_of(lane: Lane, copies: Copies | None) -> Result:
    files, note = _files(lane, copies)
    spent, record = lane.spent, lane.record
    return Result(
        lane=lane.number,
        name=lane.name,
        model=record.model,
        prompt=record.prompt,
        state=lane.state,
        why="; ".join(filter(None, (lane.why, note))),
        answer=lane.text,
        files=files,
        check=None if lane.check is None else lane.check.passed,
        check_output="" if lane.check is None else lane.check.output,
        turns=spent.turns,
        tokens=spent.tokens,
        cost=spent.cost,
        seconds=spent.seconds,
        leaf=lane.leaf,
        verdict=None if lane.verdict is None else lane.verdict.verdict,
        origin=record.origin,
        rule=record.rule,
        reason=record.reason,
        check_why="" if lane.check is None else lane.check.why,
    )


def _files(lane: Lane, copies: Copies | None) -> tuple[tuple[FileChange, ...] | None, str]:
    if lane.copy is None or copies is None:
        return None, ""
    try:
        return tuple(copies.files(lane.copy)), ""
    except SessionTreeError as error:  # the session came from elsewhere, or the repository is gone
        return None, f"its files cannot be compared: {error}"
