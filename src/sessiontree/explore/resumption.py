"""Going on with an exploration whose process ended: each lane where it stood, nothing twice.

A lane without an end is taken over if nobody works on it any more (see `leases`). Calls that have no result are not run
again by themselves: they get the result that it is not known whether they were done, unless it is said otherwise. A
lane that has ended goes on only if that is wanted: a record says so before anyone works on it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from sessiontree.agent.approval import Approver
from sessiontree.agent.async_bridge import in_background, in_thread, uncancelled
from sessiontree.agent.limits import RunUsage
from sessiontree.agent.loop import overhead_tokens, tool_definitions
from sessiontree.agent.pending import Decision, PendingCall, open_calls, result_without_running
from sessiontree.agent.result_messages import result_message
from sessiontree.agent.tools.registry import load_tools
from sessiontree.compaction import Summarizer
from sessiontree.core.entries import MessageEntry
from sessiontree.errors import SessionTreeError, UsageError
from sessiontree.explore.budget import Budget
from sessiontree.explore.cleanup import clear_unmade
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.fork_rules import Rules, trusted
from sessiontree.explore.lane import ENDED, Job, Lane, LaneState
from sessiontree.explore.lane_hooks import LaneHook, SystemFor, ToolsFor, Work
from sessiontree.explore.leases import GOOD_FOR, forget, is_free, take
from sessiontree.explore.records import Again, Bounded, Bounds, Lease, write
from sessiontree.explore.start import check_can_explore, check_prices, hooks_with
from sessiontree.explore.state import ExplorationState, find_exploration
from sessiontree.explore.task_tool import TaskTool
from sessiontree.explore.unbilled_requests import find_under_way, spent_on
from sessiontree.explore.worktrees import Copies
from sessiontree.models import Model, ThinkingLevel
from sessiontree.paths import home
from sessiontree.session.session import Branch, Session
from sessiontree.settings import Settings

_UNFINISHED: frozenset[LaneState] = frozenset({"failed", "limit", "stopped"})
"""The lanes that go on again when that is said, and those that were set aside before they had an end."""
_UNDER_WAY = "requests that may have been under way when a process died"
_TRIES = 3
"""How often a lane is wanted anew when others write to it meanwhile."""


def resume(
    session: Session,
    run: str | None = None,
    *,
    find_model: Callable[[str], Model],
    tools: ToolsFor | None = None,
    again: Collection[int | str] = (),
    bounds: Bounds | None = None,
    pending: Decision | None = "skip",
    check: str | None = None,
    approver_for: Callable[[Lane], Approver] | None = None,
    settings: Settings | None = None,
    system: SystemFor = None,
    thinking: ThinkingLevel | None = None,
    copies: Copies | None = None,
    hooks: Sequence[LaneHook] | None = None,
    summarizer: Summarizer | None = None,
    keep_worktrees: bool = False,
    good_for: float = GOOD_FOR,
) -> Exploration:
    """Go on with an exploration, by default the last one: every lane without an end that nobody works on.

    `again` names lanes that go on although they failed, were stopped or reached a limit. `bounds` is what all lanes may
    use from now on, what they have used included: with it, every lane goes on that ended because of a limit.

    `find_model` gives a model by the name in a lane's record. `pending` says what becomes of calls without a result:
    `skip` (they are answered with what is known, and sub-agents go on where they stood), `run`, or answers by hand;
    with None such lanes end as `pending`. Without `tools`, lanes have the built-in ones.
    What was used before counts for the limits. `check` is run at the end of each lane: the one that the file names is
    a command out of a file, and is not run unless it is said again. So are those of rules: give `Rules` among `hooks`
    for them to be run; without, the other rules of the file are kept. `hooks` are else as in `explore`.
    """
    check_can_explore(session)
    told = find_exploration(session, run)
    if copies is None and told.plan.worktrees:
        copies = Copies(home(), session.id, session.cwd)
    work = Work(
        load_tools() if tools is None else tools,
        approver_for,
        settings,
        system,
        thinking,
        copies,
        hooks_with(hooks, Rules(trusted(told.plan.rules), find_model=find_model, settings=settings)),
        summarizer=summarizer,
        pending=pending,
        keep_worktrees=keep_worktrees,
        good_for=good_for,
    )

    async def begin(exploration: Exploration) -> None:
        await uncancelled(in_thread(session.refresh))
        reopened: list[Lane] = []
        if again or bounds is not None:
            now = await uncancelled(in_thread(find_exploration, session, told.run, exploration.book))
            reopened = _to_reopen(now, again, bounds)
        looks_back = any(isinstance(hook, Rules) and hook.looks_back for hook in work.hooks)
        if not reopened and not looks_back and await in_thread(_is_over, exploration):
            await uncancelled(in_background(clear_unmade, session, told, told.run, copies))
            for lane in told.lanes:
                exploration.adopt(lane)
            return
        if bounds is not None and bounds.cost is not None:
            check_prices(bounds, [find_model(name) for name in sorted({lane.record.model for lane in told.lanes})])
        await _take_plan(exploration, must_be_alone=bool(reopened) or bounds is not None)
        if reopened or bounds is not None:
            await uncancelled(in_thread(_reopen, exploration, [lane.start for lane in reopened], bounds))
        # Only now: others may have written until they knew that this process goes on.
        now = await uncancelled(in_thread(find_exploration, session, told.run, exploration.book))
        for lane in now.lanes:
            exploration.adopt(lane)
        taken = await _take_lanes(exploration, find_model)
        if exploration.holding.maker is not None:
            if copies is not None:  # of lanes that were about to be made
                known = [lane.copy for lane in now.lanes if lane.copy is not None]
                await uncancelled(in_background(copies.clear_orphans, known, told.run))
            taken += await _make_missing(exploration, find_model)
        for lane in taken:
            if pending is not None:
                await uncancelled(in_thread(_answer_hidden_calls, session, lane))
            exploration.start(lane, await in_thread(_what_to_say, session, lane))
        ended = next((lane for lane in now.lanes if lane.state in ENDED and lane.verdict is None), None)
        if looks_back and not taken and ended is not None and exploration.holding.maker is not None:
            exploration.follow(ended)

    plan = msgspec.structs.replace(told.plan, check=check, bounds=told.plan.bounds if bounds is None else bounds)
    return Exploration(session, plan, work, begin, plan_id=told.plan_id, seconds_before=told.seconds)


def take_over(exploration: Exploration, start: str) -> tuple[Lease | None, str]:
    """Write a lease of our own on a lane or a plan, if it is free: it and its entry, if it counts. For a thread."""
    session, book = exploration.session, exploration.book
    for _ in range(_TRIES):
        book.look()
        noted = book.noted[start]
        is_over = noted.end is not None or noted.verdict is not None
        if is_over or not is_free(noted.lease, session.entry(noted.leaf).timestamp):
            break
        lease = take(exploration.work.good_for)
        entry = write(Branch(session, noted.leaf), lease)
        book.look()  # the write has read everything that stands before it
        if noted.lease_id == entry.id:
            return lease, entry.id
        forget(lease)
    return None, ""


async def _take_plan(exploration: Exploration, *, must_be_alone: bool) -> None:
    """Become the process that makes lanes, if nobody else is; where lanes share a limit there can be no other one."""
    exploration.holding.maker, _ = await uncancelled(in_thread(take_over, exploration, exploration.plan_id))
    if exploration.holding.maker is None and (must_be_alone or exploration.budget.is_limited):
        raise UsageError(
            f"exploration {exploration.run}: another process works on it, and one alone keeps what all lanes may use; "
            "go on when that has ended"
        )


async def _take_lanes(exploration: Exploration, find_model: Callable[[str], Model]) -> list[Lane]:
    """The lanes without an end that nobody works on, now held by this process, with their models and folders."""
    taken, died = [], []
    for lane in exploration.lanes:
        if lane.state in ENDED or lane.verdict is not None:
            continue
        before = exploration.book.noted[lane.start].lease
        lease, leaf = await uncancelled(in_thread(take_over, exploration, lane.start))
        if lease is not None:
            lane.take_over(lease, leaf)
            taken.append(lane)
            died += [lane] if before is not None and before.good_for > 0 else []
    exploration.note_standing()
    ready: list[Lane] = []
    failed: list[tuple[Lane, SessionTreeError]] = []
    for lane in taken:
        try:
            lane.model = find_model(lane.record.model)
            if lane.copy is not None and exploration.copies is not None:
                await uncancelled(in_background(exploration.copies.restore, lane.copy))
        except SessionTreeError as error:
            failed.append((lane, error))
        else:
            ready.append(lane)
    for lane, why in failed:  # what stands in the way of one stops none of the others
        await exploration.let_go(lane, str(why))
    if failed and not ready:
        raise failed[0][1]
    for lane in ready:
        if exploration.budget.is_counting and lane in died:
            await _count_under_way(exploration, lane, find_model)
    return ready


async def _count_under_way(exploration: Exploration, lane: Lane, find_model: Callable[[str], Model]) -> None:
    """Count what the process that died may have asked for on a lane."""
    tools = exploration.tools_of(lane)
    home = next((tool.home for tool in tools if isinstance(tool, TaskTool)), None)

    def find() -> RunUsage:
        sent = find_under_way(lane.branch, lane.record.model, home)
        if not sent:
            return RunUsage()
        return spent_on(
            sent, overhead_tokens(exploration.system_in(exploration.folder(lane)), tool_definitions(tools)), find_model
        )

    spent = await in_background(find)
    noted = exploration.book.noted[lane.start]
    lane.spent = lane.spent.combine(spent)
    lane.settled += noted.expected
    exploration.budget.count(lane.number, lane.spent)
    await exploration.pay(lane, _UNDER_WAY, spent.combine(noted.under_way))


def _is_over(exploration: Exploration) -> bool:
    """Whether there is nothing to go on with. For a thread."""
    exploration.book.look()
    lanes = [lane for lane in exploration.book.lanes.values() if lane.plan == exploration.plan_id]
    return len(lanes) >= len(exploration.plan.wanted) and all(
        lane.end is not None or lane.verdict is not None for lane in lanes
    )


def _to_reopen(told: ExplorationState, again: Collection[int | str], bounds: Bounds | None) -> list[Lane]:
    """The lanes that go on although they have ended."""
    chosen = {lane.number: lane for lane in map(told.lane, again)}
    for lane in chosen.values():
        if lane.state not in _UNFINISHED and (lane.state != "lost" or lane.verdict is None):
            raise UsageError(
                f"lane {lane.number} is {lane.state}: a lane goes on again that failed, was stopped, reached a limit, "
                "or was set aside before its end"
            )
    if bounds is not None:
        chosen |= {lane.number: lane for lane in told.lanes if lane.state == "limit" and lane.verdict is None}
    if chosen:
        budget = Budget(told.plan.bounds if bounds is None else bounds, told.seconds)
        for lane in told.lanes:
            budget.count(lane.number, lane.spent)
        why = budget.reached()
        if why is not None:
            raise UsageError(f"exploration {told.run}: {why} by what was used before; say a larger one to go on")
    return list(chosen.values())


def _reopen(exploration: Exploration, starts: Sequence[str], bounds: Bounds | None) -> None:
    """Write that lanes go on, and what all may use. For a thread, in the one process that makes lanes."""
    session, book = exploration.session, exploration.book
    if bounds is not None:
        write(Branch(session, book.noted[exploration.plan_id].leaf), Bounded(bounds))
    for start in starts:
        write(Branch(session, book.noted[start].leaf), Again())
    book.look()


async def _make_missing(exploration: Exploration, find_model: Callable[[str], Model]) -> list[Lane]:
    """Make the lanes of the plan that a crash has prevented."""
    there = {lane.number for lane in exploration.lanes}
    return [
        await exploration.make(Job(wanted.prompt, find_model(wanted.model), wanted.name), number)
        for number, wanted in enumerate(exploration.plan.wanted, 1)
        if number not in there
    ]


def _what_to_say(session: Session, lane: Lane) -> str | None:
    """The prompt of a lane if it was not said yet. For a thread."""
    ids = session.path_ids(lane.leaf)
    own = [id for id in ids[ids.index(lane.start) :] if session.type_of(id) == "message"]
    return None if own else lane.record.prompt


def _answer_hidden_calls(session: Session, lane: Lane) -> None:
    """Answer calls without a result where contexts leave such calls out, as oh-my-pi's: the model would never hear of
    them, and the lane seem to have ended. For a thread."""
    ids = session.path_ids(lane.leaf)
    own = session.entries([id for id in ids[ids.index(lane.start) :] if session.type_of(id) == "message"])
    calls = open_calls([entry.message for entry in own if isinstance(entry, MessageEntry)])
    if calls and not open_calls(lane.branch.context().messages):
        for call in calls:
            lost = result_without_running(PendingCall(call, had_begun=False), "skip")
            lane.branch.append(result_message(call, lost))
