"""Beginning an exploration: what is wanted is looked at first, and refused before anything is written.

async with explore(branch, prompts=[...], models=[...], tools=tools) as exploration:
    async for one in exploration:
        print(one.lane, one.event)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

import msgspec

from sessiontree.agent.approval import Approver
from sessiontree.agent.async_bridge import in_background, in_thread, uncancelled
from sessiontree.agent.loop import Prompt
from sessiontree.agent.pending import open_calls
from sessiontree.agent.tools.registry import Tools, load_tools
from sessiontree.compaction import Summarizer
from sessiontree.errors import UsageError
from sessiontree.explore.exploration import Exploration, text_of_prompt
from sessiontree.explore.fork_rules import Rules, check_rule
from sessiontree.explore.lane import Job, Lane
from sessiontree.explore.lane_hooks import LaneHook, SystemFor, ToolsFor, Work
from sessiontree.explore.lane_messages import Talking
from sessiontree.explore.leases import GOOD_FOR
from sessiontree.explore.records import Bounds, Plan, Rule, Wanted
from sessiontree.explore.worktrees import Copies
from sessiontree.models import Model, ThinkingLevel
from sessiontree.paths import home
from sessiontree.session.reader import CURRENT, Current
from sessiontree.session.session import Branch, Session
from sessiontree.settings import Settings


def explore(
    branch: Branch | Session,
    *,
    prompts: Sequence[Prompt],
    models: Sequence[Model],
    tools: ToolsFor | None = None,
    names: Sequence[str] = (),
    at: str | Current | None = CURRENT,
    parallel: int = 4,
    bounds: Bounds = Bounds(),  # noqa: B008 - a frozen value
    rules: Sequence[Rule] = (),
    check: str | None = None,
    worktrees: bool | None = None,
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
    """Let several lanes grow from one entry of a session: where the branch stands, or `at`.

    One prompt and several models make a lane for each model; several prompts make a lane each, and models take turns.
    At most `parallel` work at the same time. `check` is a command that is run at the end of each lane. A lane works in
    a copy of the project of its own when the project is in a git repository and its tools may change files, or as
    `worktrees` says; it goes at the end, and the work stays in git, unless `keep_worktrees`. Without `approver_for`,
    whatever has to be asked is denied; without `tools`, lanes have the built-in ones. `rules` say when lanes fork by
    themselves; without `hooks`, lanes can send each other messages.
    """
    session = branch if isinstance(branch, Session) else branch.session
    start = branch.leaf if isinstance(at, Current) else at
    check_can_explore(session)
    jobs = _jobs(prompts, models, names)
    _check_bounds(bounds, jobs, parallel)
    for rule in rules:
        check_rule(rule)
    session.node_of(start)
    plan = Plan(
        run=os.urandom(4).hex(),
        at=start,
        parallel=parallel,
        worktrees=False,
        bounds=bounds,
        rules=tuple(rules),
        check=check,
        wanted=tuple(
            Wanted(job.name or f"lane-{number}", text_of_prompt(job.prompt), job.model.name)
            for number, job in enumerate(jobs, 1)
        ),
    )
    work = Work(
        load_tools() if tools is None else tools,
        approver_for,
        settings,
        system,
        thinking,
        copies,
        hooks_with(hooks, Rules(rules, settings=settings)),
        summarizer=summarizer,
        keep_worktrees=keep_worktrees,
        good_for=good_for,
    )

    async def begin(exploration: Exploration) -> None:
        await uncancelled(in_thread(_check_nothing_is_open, session, start))
        exploration.plan, exploration.copies = await uncancelled(
            in_background(_with_copies, session, plan, work, worktrees)
        )
        if exploration.plan.worktrees and exploration.copies is not None:  # refuses what cannot be copied
            await uncancelled(in_background(exploration.copies.begin, exploration.run))
        exploration.note_standing()
        await uncancelled(in_thread(exploration.write_plan))
        for job in jobs:
            if not exploration.is_stopping:
                await exploration.make(job)
        for lane, job in zip(exploration.lanes, jobs, strict=False):
            exploration.start(lane, job.prompt if isinstance(job.prompt, str) else None)

    return Exploration(session, plan, work, begin)


def hooks_with(given: Sequence[LaneHook] | None, rules: Rules) -> tuple[LaneHook, ...]:
    """Who takes part in lanes: whoever was given, or else messages between them; and rules, unless others are given."""
    hooks: tuple[LaneHook, ...] = (Talking(),) if given is None else tuple(given)
    return (*hooks, rules) if rules.has_any and not any(isinstance(hook, Rules) for hook in hooks) else hooks


def check_can_explore(session: Session) -> None:
    """Refuse sessions whose format has no place for what lanes write."""
    if not session.dialect.one_line_per_entry:
        raise UsageError(
            f"{session.location}: sessions of {session.dialect.name} cannot hold several lanes; "
            "make a copy that can with `sessiontree fork --to native`, and explore that"
        )


def _jobs(prompts: Sequence[Prompt], models: Sequence[Model], names: Sequence[str]) -> list[Job]:
    if isinstance(prompts, str) or not prompts or not models:
        raise UsageError("an exploration needs a list of prompts and a list of models, at least one of each")
    count = len(models) if len(prompts) == 1 else len(prompts)
    if len(set(names)) < len(names) or len(names) > count:
        raise UsageError(f"{len(names)} names were given for {count} lanes; each lane has one name of its own")
    if len(models) > count:
        raise UsageError(
            f"{len(models)} models were given for {count} prompts, so some would do nothing; give a prompt for each, "
            "or fewer models"
        )
    given = [*names, *[""] * (count - len(names))]
    return [Job(prompts[at % len(prompts)], models[at % len(models)], given[at]) for at in range(count)]


def _check_bounds(bounds: Bounds, jobs: Sequence[Job], parallel: int) -> None:
    if parallel < 1:
        raise UsageError(f"{parallel} lanes at the same time are none; say at least 1")
    if len(jobs) > bounds.lanes:
        raise UsageError(
            f"{len(jobs)} lanes are wanted, and the limit is {bounds.lanes}; raise it (--max-lanes, or the bounds of "
            "`explore`), or ask for fewer"
        )
    check_prices(bounds, [job.model for job in jobs])


def check_prices(bounds: Bounds, models: Iterable[Model]) -> None:
    """Refuse a limit of cost that cannot be kept."""
    if bounds.cost is not None:
        unknown = sorted({model.name for model in models if not model.facts.prices.are_known})
        if unknown:
            raise UsageError(
                f"the prices of {', '.join(unknown)} are not known, so a limit of cost cannot be kept; limit tokens, "
                "or say the prices in the file of the setting `models`"
            )


def _check_nothing_is_open(session: Session, start: str | None) -> None:
    """Refuse to begin behind calls that have no result: no model could be asked there. For a thread."""
    calls = open_calls(session.branch(start).context().messages)
    if calls:
        names = ", ".join(dict.fromkeys(call.name for call in calls))
        raise UsageError(
            f"entry {start}: {len(calls)} calls have no result there ({names}); begin behind their results, or before "
            "the answer that made them. Calls that a program left open when it ended are settled in `sessiontree chat`"
        )


def _with_copies(session: Session, plan: Plan, work: Work, wanted: bool | None) -> tuple[Plan, Copies | None]:
    """The plan with what is decided about working copies. For a thread: git is asked."""
    if wanted is None and isinstance(work.tools, Tools) and all(tool.changes == "nothing" for tool in work.tools):
        return plan, work.copies
    if wanted is False:
        return plan, work.copies
    copies = work.copies or Copies(home(), session.id, session.cwd)
    why_not = copies.why_not()
    if wanted and why_not is not None:
        raise UsageError(why_not)
    return msgspec.structs.replace(plan, worktrees=why_not is None), copies
