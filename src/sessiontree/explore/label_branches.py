"""The marks of lanes and sub-agents, made of what the file says of them: clean, and short."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sessiontree.explore.lane import LaneState
from sessiontree.explore.state import ExplorationLog, TrackedLane, state_of
from sessiontree.explore.subagent_sessions import started_of
from sessiontree.explore.table_layout import BETWEEN, cut_middle, short_models, who_is
from sessiontree.session.reader import Reader
from sessiontree.views.branch_labels import Mark
from sessiontree.views.text import cut, one_line

_LONGEST_NAME, _LONGEST_MODEL = 16, 24
_LONGEST_TASK, _SHORT_TASK = 28, 12
_RUN = range(4, 9)
"""Characters of the id of a run: as few of these as tell all runs apart."""


def mark_tasks(session: Reader, starts: Sequence[str]) -> dict[str, Mark]:
    """The marks of those entries that branches of sub-agents begin with."""
    found = {}
    for id, entry in zip(starts, session.entries([*starts]), strict=True):
        started = started_of(entry)
        if started is not None:
            about = one_line(started.description)
            texts = [f"task{BETWEEN}{cut(about, size)}" for size in (_LONGEST_TASK, _SHORT_TASK)] if about else []
            fields = {"description": started.description, "model": started.model, "call": started.call}
            found[id] = Mark((*texts, "task"), task=fields)
    return found


def mark_lanes(session: Reader) -> dict[str, Mark]:
    """The marks of all lanes, by their first entries."""
    book = ExplorationLog(session)
    book.look()
    found = {}
    for plan, run in _short_runs(book).items():
        lanes = [lane for lane in book.lanes.values() if lane.plan == plan]
        models = [one_line(lane.record.model) for lane in lanes]
        short = short_models(models, _LONGEST_MODEL) or [cut_middle(model, _LONGEST_MODEL) for model in models]
        for lane, model in zip(lanes, short, strict=True):
            found[lane.start] = _mark(lane, state_of(session, lane), run, model)
    return found


def _short_runs(book: ExplorationLog) -> dict[str, str]:
    """By plans that have lanes, how these are told apart from lanes of others; nothing if there are no others."""
    plans = dict.fromkeys(lane.plan for lane in book.lanes.values())
    if len(plans) == 1:
        return dict.fromkeys(plans, "")
    runs = {plan: one_line(book.plans[plan].run) for plan in plans}
    size = next((size for size in _RUN if len({run[:size] for run in runs.values()}) == len(runs)), _RUN[-1])
    return {plan: cut(run[:size], _RUN[-1]) for plan, run in runs.items()}


def _mark(lane: TrackedLane, state: LaneState, run: str, model: str) -> Mark:
    record = lane.record
    number = f"lane {run}/{record.number}" if run else f"lane {record.number}"
    who = who_is(record.number, record.name, model, record.origin)
    if who.name in (model, model.rpartition("/")[2]):  # lanes are often named after their models
        who = msgspec.structs.replace(who, name=f"lane-{record.number}")
    named = f"{number} {cut(who.named(is_short=True), _LONGEST_NAME)}".rstrip()
    verdict = lane.verdict.verdict if lane.verdict is not None else None
    outcome = verdict or (state if state != "done" else "")
    forms = [(named, model, outcome), (named, outcome), (number, outcome), (number,)]
    texts = dict.fromkeys(BETWEEN.join(filter(None, form)) for form in forms)
    fields = {
        "run": record.run,
        "number": record.number,
        "name": record.name,
        "model": record.model,
        "state": state,
        "verdict": verdict,
    }
    return Mark(tuple(texts), lane=fields)
