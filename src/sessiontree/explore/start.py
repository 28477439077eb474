"""Start an exploration: options, hooks, and the checks that run before anything is written.

async with explore(session, prompts=[...], models=[...], tools=tools) as exploration:
    async for event in exploration:
        print(event.lane, event.event)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.agent.approval import Approver
from sessiontree.agent.async_bridge import in_background, in_thread, uncancelled
from sessiontree.agent.events import Event
from sessiontree.agent.loop import Prompt, Run
from sessiontree.agent.tool_calls import PendingDecision
from sessiontree.agent.tools.base import Tool, Tools
from sessiontree.compaction import Summarizer
from sessiontree.errors import UsageError
from sessiontree.explore.exploration import Exploration, text_of_prompt
from sessiontree.explore.fork_rules import ForkRules, check_rule
from sessiontree.explore.lane import Job, Lane
from sessiontree.explore.lane_messages import LaneMessages
from sessiontree.explore.leases import LEASE_SECONDS
from sessiontree.explore.records import Bounds, Plan, PlannedLane, Rule
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.models import Model, ThinkingLevel
from sessiontree.paths import home
from sessiontree.session.pending_calls import open_calls
from sessiontree.session.reader import CURRENT, Current
from sessiontree.session.session import Branch, Session
from sessiontree.settings import Settings

ToolsFor: TypeAlias = "Callable[[Lane], Tools] | Tools"
SystemFor: TypeAlias = "Callable[[str], str] | str | None"
"""The system prompt; a function is called with the folder that the lane works in."""


class LaneHook(Protocol):
    """An extension of lanes: rules that fork, messages between lanes.

    All methods are called in the event loop and must not block it. An exception ends the lane as failed.
    """

    def tools(self, exploration: Exploration, lane: Lane) -> Sequence[Tool]:
        """Additional tools for a lane."""
        ...

    async def before_request(self, exploration: Exploration, lane: Lane, run: Run) -> None:
        """Called before each request to the model, while nothing else writes to the lane.

        Entries appended through its branch become part of the request.
        """
        ...

    async def handle_event(self, exploration: Exploration, lane: Lane, event: Event) -> None:
        """Called with each event of the run, before the caller gets it."""
        ...

    async def after_end(self, exploration: Exploration, lane: Lane) -> Sequence[Job]:
        """Called when the end of a lane is in the file; returns lanes to add."""
        ...


class ExploreOptions(Struct, frozen=True, kw_only=True):
    """Options of `explore` and `resume`."""

    tools: ToolsFor | None = None
    """Default: the built-in tools."""
    parallel: int = 4
    """Lanes that run at the same time. `resume` uses the plan's."""
    bounds: Bounds | None = None
    """Limits of all lanes together, including earlier usage. Default: none; in `resume`, those in the file."""
    rules: Sequence[Rule] = ()
    """When lanes fork automatically. `resume` uses the plan's, except commands (see `trusted`)."""
    check: str | None = None
    """Command that is run when a lane ends. `resume` never runs the one in the file: the file may not be yours."""
    worktrees: bool | None = None
    """Whether each lane has its own git worktree. Default: if there is a repository and tools may change files."""
    lane_worktrees: LaneWorktrees | None = None
    """Where worktrees are. Default: in the home folder of sessions."""
    keep_worktrees: bool = False
    """Keep the folders of lanes that have ended. Their work is in git either way."""
    approver_for: Callable[[Lane], Approver] | None = None
    """Default: everything that needs approval is denied."""
    settings: Settings | None = None
    system: SystemFor = None
    thinking: ThinkingLevel | None = None
    hooks: Sequence[LaneHook] | None = None
    """Default: lanes can send each other messages."""
    summarizer: Summarizer | None = None
    pending: PendingDecision | None = "skip"
    """What happens to calls that an earlier run left without a result: `skip` answers them with what is known, and
    sub-agents continue; `run` runs them again; None ends such lanes as `pending`."""
    lease_seconds: float = LEASE_SECONDS
    """Seconds without a heartbeat after which other processes may take a lane over."""


def merge_options(options: ExploreOptions | None, keywords: dict[str, Any]) -> ExploreOptions:
    """Options with some of them replaced by keyword arguments."""
    unknown = keywords.keys() - set(ExploreOptions.__struct_fields__)
    if unknown:
        raise TypeError(f"unknown option {sorted(unknown)[0]!r}; see ExploreOptions")
    return msgspec.structs.replace(options or ExploreOptions(), **keywords)


def explore(
    branch: Branch | Session,
    *,
    prompts: Sequence[Prompt],
    models: Sequence[Model],
    names: Sequence[str] = (),
    at: str | Current | None = CURRENT,
    options: ExploreOptions | None = None,
    **keywords: Any,
) -> Exploration:
    """Run several lanes that start from one entry of a session: the branch's leaf, or `at`.

    One prompt and several models make a lane for each model. Several prompts make a lane each, and models take turns.
    Keywords are fields of `ExploreOptions`.
    """
    options = merge_options(options, keywords)
    session = branch if isinstance(branch, Session) else branch.session
    start = branch.leaf if isinstance(at, Current) else at
    bounds = options.bounds or Bounds()
    check_can_explore(session)
    jobs = _jobs(prompts, models, names)
    _check_bounds(bounds, jobs, options.parallel)
    for rule in options.rules:
        check_rule(rule)
    session.node_of(start)
    plan = Plan(
        run=os.urandom(4).hex(),
        at=start,
        parallel=options.parallel,
        worktrees=False,
        bounds=bounds,
        rules=tuple(options.rules),
        check=options.check,
        planned=tuple(
            PlannedLane(job.name or f"lane-{number}", text_of_prompt(job.prompt), job.model.name)
            for number, job in enumerate(jobs, 1)
        ),
    )

    async def begin(exploration: Exploration) -> None:
        await uncancelled(in_thread(_check_no_open_calls, session, start))
        exploration.worktrees = await uncancelled(in_background(_open_worktrees, session, options))
        if exploration.worktrees is not None:
            # Refuses a project that is too large before the first lane is created.
            await uncancelled(in_background(exploration.worktrees.begin, exploration.run))
            exploration.plan = msgspec.structs.replace(plan, worktrees=True)
        exploration.remember_leaf()
        await uncancelled(in_thread(exploration.write_plan))
        for job in jobs:
            if not exploration.is_stopping:
                await exploration.make(job)
        for lane, job in zip(exploration.lanes, jobs, strict=False):
            exploration.start(lane, job.prompt if isinstance(job.prompt, str) else None)

    hooks = add_rules(options.hooks, ForkRules(options.rules, settings=options.settings))
    return Exploration(session, plan, options, hooks, begin)


def add_rules(hooks: Sequence[LaneHook] | None, rules: ForkRules) -> list[LaneHook]:
    """The hooks of an exploration, with rules unless the caller passed its own."""
    chosen: list[LaneHook] = [LaneMessages()] if hooks is None else list(hooks)
    return [*chosen, rules] if rules.has_any and not any(isinstance(hook, ForkRules) for hook in chosen) else chosen


def check_can_explore(session: Session) -> None:
    """Refuse sessions whose format cannot hold the records of lanes."""
    if not session.dialect.traits.one_line_per_entry:
        raise UsageError(
            f"{session.location}: {session.dialect.name} sessions cannot hold lanes; explore a copy made with "
            "`sessiontree fork SESSION --to native`"
        )


def _jobs(prompts: Sequence[Prompt], models: Sequence[Model], names: Sequence[str]) -> list[Job]:
    if isinstance(prompts, str) or not prompts or not models:
        raise UsageError("an exploration needs a list of prompts and a list of models, at least one of each")
    count = len(models) if len(prompts) == 1 else len(prompts)
    if len(set(names)) < len(names) or len(names) > count:
        raise UsageError(f"{len(names)} names for {count} lanes; names have to be unique, at most one per lane")
    if len(models) > count:
        raise UsageError(
            f"{len(models)} models for {count} prompts: some models would be unused; give more prompts or fewer models"
        )
    all_names = [*names, *[""] * (count - len(names))]
    return [Job(prompts[at % len(prompts)], models[at % len(models)], all_names[at]) for at in range(count)]


def _check_bounds(bounds: Bounds, jobs: Sequence[Job], parallel: int) -> None:
    if parallel < 1:
        raise UsageError(f"{parallel} lanes at the same time; at least 1 is needed")
    if len(jobs) > bounds.lanes:
        raise UsageError(
            f"{len(jobs)} lanes requested, the limit is {bounds.lanes}; raise it (--max-lanes, or `bounds`) or ask for "
            "fewer lanes"
        )
    check_prices(bounds, [job.model for job in jobs])


def check_prices(bounds: Bounds, models: Iterable[Model]) -> None:
    """Refuse a cost limit that cannot be enforced."""
    if bounds.cost is not None:
        unknown = sorted({model.name for model in models if not model.facts.prices.are_known})
        if unknown:
            raise UsageError(
                f"a cost limit needs prices, and those of {', '.join(unknown)} are unknown; limit tokens, or add "
                "prices to the file named by the setting `models`"
            )


def _check_no_open_calls(session: Session, start: str | None) -> None:
    # A provider rejects a conversation in which calls have no results. Blocking.
    calls = open_calls(session.branch(start).context().messages)
    if calls:
        names = ", ".join(dict.fromkeys(call.name for call in calls))
        number = f"{len(calls)} tool call has" if len(calls) == 1 else f"{len(calls)} tool calls have"
        raise UsageError(
            f"entry {start}: {number} no result there ({names}); start after the results or before the calls. "
            "`sessiontree chat` settles calls that were left open"
        )


def _open_worktrees(session: Session, options: ExploreOptions) -> LaneWorktrees | None:
    """The worktrees of the session's lanes; None if lanes share the project's folder. Blocking."""
    wanted, tools = options.worktrees, options.tools
    if wanted is False:
        return None
    if wanted is None and isinstance(tools, Tools) and all(tool.changes == "nothing" for tool in tools):
        return None
    worktrees = options.lane_worktrees or LaneWorktrees(home(), session.id, session.cwd)
    why_not = worktrees.why_not()
    if wanted and why_not is not None:
        raise UsageError(why_not)
    return worktrees if why_not is None else None
