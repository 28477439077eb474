"""Labels of lanes and sub-agents in trees and lists of branches: `lane 2 · gpt-5 · kept`, `task · find the callers`.

Most sessions have no lanes: the modules that read explorations are slow to import, so only functions that need them do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.branches.list import BranchFacts
    from sessiontree.explore.lane import LaneState
    from sessiontree.explore.state import ExplorationLog, TrackedLane
    from sessiontree.session.reader import Reader
    from sessiontree.views.branch_labels import Mark

_MAX_NAME, _MAX_MODEL = 16, 24
_TASK_SIZES = 28, 12
_RUN_SIZES = range(4, 9)
"""Characters of an exploration's id to show: the fewest that distinguish all explorations."""


def find_marks(session: Reader) -> dict[str, Mark]:
    """Labels by the first entries of the branches of lanes and sub-agents."""
    journal = session.journal
    if not journal.own_customs:
        return {}
    from sessiontree.dialects.side_branches import SideBranches

    sides = SideBranches(journal)
    starts = [journal.tree.ids[node] for node in journal.own_customs if sides.start_of(node) == node]
    return {**_label_tasks(session, starts), **_label_lanes(session)} if starts else {}


def find_branch_marks(session: Reader, branches: Sequence[BranchFacts]) -> dict[str, Mark]:
    """Labels by branch tip: the last label on the branch's own entries, or for the active branch, on its path."""
    marks = find_marks(session)
    if not marks:
        return {}
    from sessiontree.dialects.side_branches import SideBranches

    sides, ids = SideBranches(session.journal), session.journal.tree.ids
    found = {}
    for branch in branches:
        shared = () if branch.is_active else [*sides.starts_to(session.node_of(branch.ancestor))]
        own = (ids[start] for start in sides.starts_to(session.node_of(branch.leaf)) if start not in shared)
        mark = next((marks[start] for start in own if start in marks), None)
        if mark is not None:
            found[branch.leaf] = mark
    return found


def _label_tasks(session: Reader, starts: Sequence[str]) -> dict[str, Mark]:
    from sessiontree.branches.subagent_branches import parse_subagent
    from sessiontree.explore.lane_table import SEPARATOR
    from sessiontree.views.branch_labels import Mark
    from sessiontree.views.text import cut, one_line

    found = {}
    for id, entry in zip(starts, session.entries([*starts]), strict=True):
        record = parse_subagent(entry)
        if record is not None:
            about = one_line(record.description)
            texts = [f"task{SEPARATOR}{cut(about, size)}" for size in _TASK_SIZES] if about else []
            fields = {"description": record.description, "model": record.model, "call": record.call}
            found[id] = Mark((*texts, "task"), task=fields)
    return found


def _label_lanes(session: Reader) -> dict[str, Mark]:
    from sessiontree.explore.lane_table import cut_middle, shorten_models
    from sessiontree.explore.state import ExplorationLog, state_of
    from sessiontree.views.text import one_line

    log = ExplorationLog(session)
    log.refresh()
    found = {}
    for plan, run in _short_runs(log).items():
        lanes = [lane for lane in log.lanes.values() if lane.plan == plan]
        models = [one_line(lane.record.model) for lane in lanes]
        short = shorten_models(models, _MAX_MODEL) or [cut_middle(model, _MAX_MODEL) for model in models]
        for lane, model in zip(lanes, short, strict=True):
            found[lane.start] = _label_lane(lane, state_of(session, lane), run, model)
    return found


def _short_runs(log: ExplorationLog) -> dict[str, str]:
    """The shortened ids of explorations by their plans; empty if there is only one."""
    from sessiontree.views.text import cut, one_line

    plans = dict.fromkeys(lane.plan for lane in log.lanes.values())
    if len(plans) == 1:
        return dict.fromkeys(plans, "")
    runs = {plan: one_line(log.plans[plan].run) for plan in plans}
    size = next(
        (size for size in _RUN_SIZES if len({run[:size] for run in runs.values()}) == len(runs)), _RUN_SIZES[-1]
    )
    return {plan: cut(run[:size], _RUN_SIZES[-1]) for plan, run in runs.items()}


def _label_lane(lane: TrackedLane, state: LaneState, run: str, model: str) -> Mark:
    from sessiontree.explore.lane_table import SEPARATOR, lane_title
    from sessiontree.views.branch_labels import Mark
    from sessiontree.views.text import cut, one_line

    record = lane.record
    number = f"lane {run}/{record.number}" if run else f"lane {record.number}"
    # Lanes are often named after their models: such a name would only repeat the model.
    name = one_line(record.name)
    if name in (model, model.rpartition("/")[2]):
        name = f"lane-{record.number}"
    label = lane_title(record.number, name, model, record.origin).label(is_short=True)
    named = f"{number} {cut(label, _MAX_NAME)}".rstrip()
    verdict = lane.verdict.verdict if lane.verdict is not None else None
    outcome = verdict or (state if state != "done" else "")
    forms = [(named, model, outcome), (named, outcome), (number, outcome), (number,)]
    texts = dict.fromkeys(SEPARATOR.join(filter(None, form)) for form in forms)
    fields = {
        "run": record.run,
        "number": record.number,
        "name": record.name,
        "model": record.model,
        "state": state,
        "verdict": verdict,
    }
    return Mark(tuple(texts), lane=fields)
