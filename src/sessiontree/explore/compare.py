"""Compare lanes: answer, files, check, tokens, cost and time of each."""

from __future__ import annotations

from sessiontree.core.jsonio import Value
from sessiontree.errors import SessionTreeError
from sessiontree.explore.lane import Lane, LaneState
from sessiontree.explore.records import Verdict
from sessiontree.explore.state import ExplorationLike
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.git.trees import FileChange


class Result(Value, frozen=True, omit_defaults=False):
    """The result of one lane. Its texts come from sessions and models: escape them before printing."""

    lane: int
    name: str
    model: str
    prompt: str
    state: LaneState
    why: str
    answer: str
    files: tuple[FileChange, ...] | None
    """Changes in its worktree; None if it has none or git cannot read it."""
    check: bool | None
    """Whether the check passed; None if there was none, or it was stopped early."""
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
    """Why the check neither passed nor failed."""

    @property
    def added(self) -> int:
        """Lines added in all files."""
        return sum(file.added or 0 for file in self.files or ())

    @property
    def removed(self) -> int:
        return sum(file.removed or 0 for file in self.files or ())


def compare(exploration: ExplorationLike, worktrees: LaneWorktrees | None) -> list[Result]:
    """The results of all lanes. Reads their worktrees: blocking."""
    return [lane_result(lane, *changed_files(lane, worktrees)) for lane in exploration.lanes]


def lane_result(lane: Lane, files: tuple[FileChange, ...] | None, problem: str = "") -> Result:
    """The result of a lane so far, given the changes in its worktree, or why they are not known."""
    spent, record = lane.spent, lane.record
    return Result(
        lane=lane.number,
        name=lane.name,
        model=record.model,
        prompt=record.prompt,
        state=lane.state,
        why="; ".join(filter(None, (lane.why, problem))),
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


def changed_files(lane: Lane, worktrees: LaneWorktrees | None) -> tuple[tuple[FileChange, ...] | None, str]:
    """The changes in the worktree of a lane, or None and the reason. Blocking."""
    if lane.worktree is None or worktrees is None:
        return None, ""
    try:
        return tuple(worktrees.files(lane.worktree)), ""
    except SessionTreeError as error:  # the session came from another machine, or the repository is gone
        return None, f"its files cannot be compared: {error}"
