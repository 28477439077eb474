"""Resume an exploration whose process ended: each lane continues from its last entry, and nothing is repeated.

A lane without an end is taken over if no process works on it (see `leases`). Tool calls without a result are not run
again: they get the result "unknown whether it ran", unless the caller decides otherwise. A lane that has ended
continues only on request; a record of that is written before any work on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from sessiontree.agent.async_bridge import in_background, in_thread, uncancelled
from sessiontree.agent.limits import RunUsage
from sessiontree.agent.loop import overhead_tokens, tool_definitions
from sessiontree.agent.tool_calls import PendingCall, result_without_running
from sessiontree.agent.tool_output import result_message
from sessiontree.core.entries import MessageEntry
from sessiontree.errors import SessionTreeError, UsageError
from sessiontree.explore.budget import Budget
from sessiontree.explore.cleanup import remove_partial_worktrees
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.fork_rules import ForkRules, trusted
from sessiontree.explore.lane import ENDED, Job, Lane, LaneState
from sessiontree.explore.leases import forget, is_free, new_lease
from sessiontree.explore.records import Bounds, BoundsChange, Lease, Reopened, write
from sessiontree.explore.start import ExploreOptions, add_rules, check_can_explore, check_prices, merge_options
from sessiontree.explore.state import ExplorationState, find_exploration
from sessiontree.explore.task_tool import TaskTool
from sessiontree.explore.unbilled_requests import estimate_usage, find_unbilled
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.models import Model
from sessiontree.paths import home
from sessiontree.session.pending_calls import open_calls
from sessiontree.session.session import Branch, Session

_UNFINISHED: frozenset[LaneState] = frozenset({"failed", "limit", "stopped"})
"""States of lanes that can be reopened, besides lanes that got a verdict before they ended."""
_UNBILLED = "requests that may have been in flight when a process died"
_ATTEMPTS = 3
"""Attempts to take over a lane while other processes write to it."""


def resume(
    session: Session,
    run: str | None = None,
    *,
    find_model: Callable[[str], Model],
    again: Collection[int | str] = (),
    options: ExploreOptions | None = None,
    **keywords: Any,
) -> Exploration:
    """Resume an exploration, by default the last: every lane without an end that no process works on.

    `again` names lanes to continue although they failed, were stopped or reached a limit; with `bounds`, so does every
    lane that reached a limit. `find_model` opens a model by the name in a lane's record. Other keywords are fields of
    `ExploreOptions`.

    Commands in the file are not trusted: pass `check`, and for rules with a command `ForkRules` among `hooks`.
    """
    check_can_explore(session)
    state = find_exploration(session, run)
    options = merge_options(options, keywords)
    bounds, worktrees = options.bounds, options.lane_worktrees
    if worktrees is None and state.plan.worktrees:
        worktrees = LaneWorktrees(home(), session.id, session.cwd)
        options = msgspec.structs.replace(options, lane_worktrees=worktrees)
    rules = ForkRules(trusted(state.plan.rules), find_model=find_model, settings=options.settings)
    hooks = add_rules(options.hooks, rules)

    async def begin(exploration: Exploration) -> None:
        await uncancelled(in_thread(session.refresh))
        reopened: list[Lane] = []
        if again or bounds is not None:
            current = await uncancelled(in_thread(find_exploration, session, state.run, exploration.log))
            reopened = _lanes_to_reopen(current, again, bounds)
        has_missed_rules = any(isinstance(hook, ForkRules) and hook.checks_earlier_lanes for hook in hooks)
        if not reopened and not has_missed_rules and await in_thread(_is_complete, exploration):
            await uncancelled(in_background(remove_partial_worktrees, session, state, worktrees))
            for lane in state.lanes:
                exploration.adopt(lane)
            return
        if bounds is not None and bounds.cost is not None:
            check_prices(bounds, [find_model(name) for name in sorted({lane.record.model for lane in state.lanes})])
        await _take_plan(exploration, must_be_alone=bool(reopened) or bounds is not None)
        if reopened or bounds is not None:
            await uncancelled(in_thread(_reopen, exploration, [lane.start for lane in reopened], bounds))
        # Read the lanes only now: other processes could write until they saw our lease on the plan.
        current = await uncancelled(in_thread(find_exploration, session, state.run, exploration.log))
        for lane in current.lanes:
            exploration.adopt(lane)
        taken = await _take_lanes(exploration, find_model)
        if exploration.leases.plan_lease is not None:
            if worktrees is not None:  # of lanes that were being created
                known = [lane.worktree for lane in current.lanes if lane.worktree is not None]
                await uncancelled(in_background(worktrees.remove_orphans, known, state.run))
            taken += await _make_missing(exploration, find_model)
        for lane in taken:
            if options.pending is not None:
                await uncancelled(in_thread(_answer_hidden_calls, session, lane))
            exploration.start(lane, await in_thread(_missing_prompt, session, lane))
        ended = next((lane for lane in current.lanes if lane.state in ENDED and lane.verdict is None), None)
        if has_missed_rules and not taken and ended is not None and exploration.leases.plan_lease is not None:
            exploration.follow_up(ended)

    plan = msgspec.structs.replace(state.plan, check=options.check, bounds=bounds or state.plan.bounds)
    return Exploration(session, plan, options, hooks, begin, plan_id=state.plan_id, seconds_before=state.seconds)


def take_over(exploration: Exploration, start: str) -> tuple[Lease | None, str]:
    """Write our lease on a lane or plan if it is free. Returns the lease and its entry if it is valid. Blocking."""
    session, log = exploration.session, exploration.log
    for _ in range(_ATTEMPTS):
        log.refresh()
        tracked = log.tracked[start]
        is_over = tracked.end is not None or tracked.verdict is not None
        if is_over or not is_free(tracked.lease, session.entry(tracked.leaf).timestamp):
            break
        lease = new_lease(exploration.options.lease_seconds)
        entry = write(Branch(session, tracked.leaf), lease)
        # The append has read every line before it, so the log now knows whether another lease came first.
        log.refresh()
        if tracked.lease_id == entry.id:
            return lease, entry.id
        forget(lease)
    return None, ""


async def _take_plan(exploration: Exploration, *, must_be_alone: bool) -> None:
    """Become the process that creates lanes, if no other is. Shared limits need a single process."""
    exploration.leases.plan_lease, _ = await uncancelled(in_thread(take_over, exploration, exploration.plan_id))
    if exploration.leases.plan_lease is None and (must_be_alone or exploration.budget.is_limited):
        raise UsageError(
            f"exploration {exploration.run}: another process is working on it, and only one can enforce the limits; "
            "resume when it has ended"
        )


async def _take_lanes(exploration: Exploration, find_model: Callable[[str], Model]) -> list[Lane]:
    """Take over the lanes that no process works on, with their models and folders."""
    taken, orphaned = [], []
    for lane in exploration.lanes:
        if lane.state in ENDED or lane.verdict is not None:
            continue
        before = exploration.log.tracked[lane.start].lease
        lease, leaf = await uncancelled(in_thread(take_over, exploration, lane.start))
        if lease is not None:
            lane.take_over(lease, leaf)
            taken.append(lane)
            orphaned += [lane] if before is not None and before.seconds > 0 else []
    exploration.remember_leaf()
    ready: list[Lane] = []
    failed: list[tuple[Lane, SessionTreeError]] = []
    for lane in taken:
        try:
            lane.model = find_model(lane.record.model)
            if lane.worktree is not None and exploration.worktrees is not None:
                await uncancelled(in_background(exploration.worktrees.restore, lane.worktree))
        except SessionTreeError as error:
            failed.append((lane, error))
        else:
            ready.append(lane)
    for lane, why in failed:  # one broken lane must not stop the others
        await exploration.release_lane(lane, str(why))
    if failed and not ready:
        raise failed[0][1]
    for lane in ready:
        if exploration.budget.is_counting and lane in orphaned:
            await _count_unbilled(exploration, lane, find_model)
    return ready


async def _count_unbilled(exploration: Exploration, lane: Lane, find_model: Callable[[str], Model]) -> None:
    """Count the requests that a dead process may have had in flight for a lane."""
    tools = exploration.tools_for(lane)
    home = next((tool.home for tool in tools if isinstance(tool, TaskTool)), None)

    def find() -> RunUsage:
        requests = find_unbilled(lane.branch, lane.record.model, home)
        if not requests:
            return RunUsage()
        overhead = overhead_tokens(exploration.system_for(exploration.folder(lane)), tool_definitions(tools))
        return estimate_usage(requests, overhead, find_model)

    usage = await in_background(find)
    tracked = exploration.log.tracked[lane.start]
    lane.spent = lane.spent.combine(usage)
    lane.settled += tracked.estimates
    exploration.budget.count(lane.number, lane.spent)
    await lane.write_usage(_UNBILLED, usage.combine(tracked.in_flight))


def _is_complete(exploration: Exploration) -> bool:
    """Whether every lane of the plan exists and has ended. Blocking."""
    exploration.log.refresh()
    lanes = [lane for lane in exploration.log.lanes.values() if lane.plan == exploration.plan_id]
    return len(lanes) >= len(exploration.plan.planned) and all(
        lane.end is not None or lane.verdict is not None for lane in lanes
    )


def _lanes_to_reopen(state: ExplorationState, again: Collection[int | str], bounds: Bounds | None) -> list[Lane]:
    chosen = {lane.number: lane for lane in map(state.lane, again)}
    for lane in chosen.values():
        if lane.state not in _UNFINISHED and (lane.state != "lost" or lane.verdict is None):
            raise UsageError(
                f"lane {lane.number} is {lane.state}; only lanes that failed, were stopped, reached a limit or were "
                "set aside before their end can continue"
            )
    if bounds is not None:
        chosen |= {lane.number: lane for lane in state.lanes if lane.state == "limit" and lane.verdict is None}
    if chosen:
        budget = Budget(state.plan.bounds if bounds is None else bounds, state.seconds)
        for lane in state.lanes:
            budget.count(lane.number, lane.spent)
        why = budget.reached()
        if why is not None:
            raise UsageError(f"exploration {state.run}: {why} by earlier usage; pass a larger limit to continue")
    return list(chosen.values())


def _reopen(exploration: Exploration, starts: Sequence[str], bounds: Bounds | None) -> None:
    """Record that lanes continue, and the new limits. Blocking; only in the process that holds the plan."""
    session, log = exploration.session, exploration.log
    if bounds is not None:
        write(Branch(session, log.tracked[exploration.plan_id].leaf), BoundsChange(bounds))
    for start in starts:
        write(Branch(session, log.tracked[start].leaf), Reopened())
    log.refresh()


async def _make_missing(exploration: Exploration, find_model: Callable[[str], Model]) -> list[Lane]:
    """Create the planned lanes that a crash prevented."""
    existing = {lane.number for lane in exploration.lanes}
    return [
        await exploration.make(Job(planned.prompt, find_model(planned.model), planned.name), number)
        for number, planned in enumerate(exploration.plan.planned, 1)
        if number not in existing
    ]


def _own_messages(session: Session, lane: Lane) -> list[str]:
    ids = session.path_ids(lane.leaf)
    return [id for id in ids[ids.index(lane.start) :] if session.type_of(id) == "message"]


def _missing_prompt(session: Session, lane: Lane) -> str | None:
    """The prompt of a lane that has no message yet. Blocking."""
    return None if _own_messages(session, lane) else lane.record.prompt


def _answer_hidden_calls(session: Session, lane: Lane) -> None:
    """Answer calls without a result where the format's contexts omit such calls. Blocking.

    oh-my-pi's do: the model would never learn of them, and the lane would look complete.
    """
    messages = [
        entry.message for entry in session.entries(_own_messages(session, lane)) if isinstance(entry, MessageEntry)
    ]
    calls = open_calls(messages)
    if calls and not open_calls(lane.branch.context().messages):
        for call in calls:
            unknown = result_without_running(PendingCall(call, had_begun=False), "skip")
            lane.branch.append(result_message(call, unknown))
