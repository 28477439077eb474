"""Decide about the lanes of an exploration: keep one, merge some, drop some. Undoing restores files and verdicts."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeAlias

from sessiontree.app.actions.contract import ActionPlan, Description, Done, unchanged
from sessiontree.branches.summarize import SummaryOptions
from sessiontree.core.jsonio import JsonObject
from sessiontree.explore import decisions
from sessiontree.explore.decisions import DecisionResult
from sessiontree.explore.lane_table import draw_files
from sessiontree.explore.records import Verdict, VerdictRecord
from sessiontree.explore.state import ExplorationLog, ExplorationState, find_exploration
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.session.session import Session
from sessiontree.views.text import plural, short_entry_id

Verdicts: TypeAlias = Mapping[int, VerdictRecord | None]

_MAX_WIDTH = 160


class LanePlan(ActionPlan[DecisionResult]):
    """A decision about lanes. The files that it will change in the project are known in advance."""

    verdict: ClassVar[Verdict]
    verb: ClassVar[str]

    def __init__(
        self,
        session: Session,
        exploration: ExplorationState,
        lanes: Sequence[int],
        worktrees: LaneWorktrees,
        summary: SummaryOptions | None = None,
    ) -> None:
        """`summary` has the options of a merge."""
        self._files = decisions.preview(session, exploration, lanes, self.verdict, worktrees)
        super().__init__(unchanged(session))
        self._session, self._exploration, self._worktrees = session, exploration, worktrees
        self._lanes, self._summary = list(lanes), summary

    @abstractmethod
    def _effects(self) -> list[str]:
        """What happens besides the changes of files."""

    @abstractmethod
    def _decide(self) -> DecisionResult: ...

    def describe(self) -> Description:
        named = ", ".join(f"{number} ({self._exploration.lane(number).name})" for number in self._lanes)
        changes = [f"{plural(len(self._files), 'file')} of the project will change:"] if self._files else []
        return Description(
            self.action,
            f"{self.verb} {'lane' if len(self._lanes) == 1 else 'lanes'} {named}",
            (*self._effects(), *changes, *draw_files(self._files, _MAX_WIDTH)),
            data={
                "run": self._exploration.run,
                "lanes": list(self._lanes),
                "files": [file.path for file in self._files],
            },
        )

    def _carry_out(self) -> Done[DecisionResult]:
        session, exploration = self._session, self._exploration
        before: Verdicts = {lane.number: lane.verdict for lane in exploration.lanes}
        leaf = session.leaf
        result = self._decide()
        return Done(result, LaneRevertPlan(session, exploration, before, leaf, self._worktrees, result), session)


class KeepLanePlan(LanePlan):
    action, verdict, verb = "keep-lane", "kept", "keep"

    def _effects(self) -> list[str]:
        left = [
            lane.number for lane in self._exploration.lanes if lane.verdict is None and lane.number not in self._lanes
        ]
        others = [f"left, to be decided about later: {', '.join(map(str, left))}"] if left else []
        return ["the lane becomes the current branch", *others]

    def _decide(self) -> DecisionResult:
        return decisions.keep(self._session, self._exploration, self._lanes[0], self._worktrees)


class MergeLanesPlan(LanePlan):
    action, verdict, verb = "merge-lanes", "merged", "merge"

    def _effects(self) -> list[str]:
        return ["the lanes are summarized on the current branch"]

    def _decide(self) -> DecisionResult:
        return decisions.merge(self._session, self._exploration, self._lanes, self._worktrees, summary=self._summary)


class DropLanesPlan(LanePlan):
    action, verdict, verb = "drop-lanes", "dropped", "drop"

    def _effects(self) -> list[str]:
        return ["the lanes stay in the tree, and their work in git"]

    def _decide(self) -> DecisionResult:
        return decisions.drop(self._session, self._exploration, self._lanes, self._worktrees)


class LaneRevertPlan(ActionPlan[DecisionResult]):
    """Take back a decision about lanes."""

    action = "undo"

    def __init__(
        self,
        session: Session,
        exploration: ExplorationState,
        before: Verdicts,
        leaf: str | None,
        worktrees: LaneWorktrees,
        result: DecisionResult,
    ) -> None:
        super().__init__(unchanged(session))
        self._session, self._exploration, self._before, self._leaf = session, exploration, before, leaf
        self._worktrees, self._result = worktrees, result

    def describe(self) -> Description:
        lanes = ", ".join(map(str, self._result.lanes))
        where = (
            "before the first entry" if self._leaf is None else short_entry_id(self._leaf, self._session.id_prefixes)
        )
        files = [f"{plural(len(self._result.files), 'file')} of the project will be as before"]
        data: JsonObject = {"run": self._exploration.run, "lanes": list(self._result.lanes), "leaf": self._leaf}
        title = f"undo {self._result.verdict} {lanes}: switch back to {where}"
        return Description(self.action, title, tuple(files if self._result.files else ()), data=data)

    def _carry_out(self) -> Done[DecisionResult]:
        session = self._session
        result = decisions.revert(session, self._exploration, self._before, self._leaf, self._worktrees)
        return Done(result, None, session)


def plan_decision(
    kind: type[LanePlan],
    session: Session,
    home: str,
    lanes: Sequence[str],
    run: str | None = None,
    summary: SummaryOptions | None = None,
) -> LanePlan:
    """Plan a decision about lanes of an exploration, by default of the last one. `home` is our home folder."""
    session.refresh()
    exploration = find_exploration(session, run)
    numbers = list(dict.fromkeys(exploration.lane(lane).number for lane in lanes))
    return kind(session, exploration, numbers, find_worktrees(session, home), summary)


def find_worktrees(session: Session, home: str) -> LaneWorktrees:
    """Where the worktrees of a session's lanes are, by its project's folder."""
    return LaneWorktrees(home, session.id, session.cwd or os.getcwd())


def why_no_lanes(session: Session) -> str | None:
    """Why there is nothing to decide about; None if the session has an exploration."""
    log = ExplorationLog(session)
    log.refresh()
    return None if log.plans else "this session has no exploration"
