"""Start and resume explorations from options, the same way for every front end."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

import msgspec
from msgspec import Struct

from sessiontree.agent.approval import Approvals, Approver, Question, Reply
from sessiontree.agent.recorded_choices import recorded_model
from sessiontree.agent.tools.base import Tools, load_tools
from sessiontree.app.demo import DEMO
from sessiontree.app.start import build_system_prompt, find_lane_model, no_model_error
from sessiontree.core.entries import ApprovalMode
from sessiontree.errors import UsageError
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.fork_rules import ForkRules, trusted
from sessiontree.explore.lane import Lane
from sessiontree.explore.lane_messages import LaneMessages
from sessiontree.explore.plan_parser import parse_bounds, plan_lanes
from sessiontree.explore.records import Bounds, Rule
from sessiontree.explore.resumption import resume
from sessiontree.explore.start import ExploreOptions, explore
from sessiontree.explore.state import ExplorationState, has_crashed, is_active
from sessiontree.explore.task_tool import TaskTool
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.models import Model
from sessiontree.session.reader import CURRENT, Current
from sessiontree.session.session import Session
from sessiontree.settings import Settings
from sessiontree.views.text import one_line


class LaneOptions(Struct, frozen=True, kw_only=True):
    """How the lanes of an exploration work, new or resumed."""

    home: str
    settings: Settings
    cwd: str
    """The folder of the project."""
    approver_for: Callable[[ApprovalMode, Tools], Callable[[Lane], Approver]]
    """The front end's approvers, given the mode and the tools of the lanes."""
    approval: ApprovalMode = "autoEdit"
    tools: Tools | None = None
    """Default: the built-in and installed ones, with sub-agents."""
    added: Sequence[str] = ()
    """More folders that tools may use."""
    check: str | None = None
    """A command that is run when a lane ends."""
    rules: Sequence[Rule] = ()
    """When lanes fork automatically. For a resumed exploration, only the commands: its file cannot grant them."""


class LaneApprover:
    """Approves or denies what a lane wants to do.

    With `autoEdit`, files in the lane's own worktree may be changed; with `yolo`, commands may also be run. Anything
    outside the worktree needs approval in every mode, and is denied if there is no user to ask.
    """

    def __init__(
        self, lane: Lane, mode: ApprovalMode, tools: Tools, ask: Callable[[Question], Awaitable[Reply]] | None
    ) -> None:
        self._lane, self._mode, self._tools, self._ask = lane, mode, tools, ask

    async def ask(self, question: Question) -> Reply:
        # `may_always` is false for questions that have to be asked each time, such as files outside the worktree.
        if question.may_always and (self._mode == "yolo" or (self._mode == "autoEdit" and self._is_own(question))):
            return Reply("once")
        if self._ask is None:
            return Reply("no", f"there is no user to ask for approval ({question.reasons[0]})")
        title = f"lane {self._lane.number} ({self._lane.name}) · {question.title}"
        return await self._ask(msgspec.structs.replace(question, title=title, may_always=False))

    def _is_own(self, question: Question) -> bool:
        tool = self._tools.find(question.tool)
        return self._lane.worktree is not None and tool is not None and tool.changes == "files"


class OpenedExploration:
    """An exploration, and the models that it opened. Always `close` it."""

    def __init__(self, exploration: Exploration, models: Sequence[Model]) -> None:
        self.exploration = exploration
        self._models = models

    async def close(self) -> None:
        for model in self._models:
            await model.close()


def start_exploration(
    session: Session,
    options: LaneOptions,
    prompts: Sequence[str],
    *,
    models: Sequence[str] = (),
    count: int | None = None,
    at: str | Current | None = CURRENT,
    parallel: int = 4,
    bounds: Bounds | None = None,
    worktrees: bool | None = None,
) -> OpenedExploration:
    """Prepare lanes from an entry: one for each prompt, or for one prompt `count` lanes or one for each model.

    Without models, the one that answered last is used, or the one of the settings. Nothing is written before the
    exploration is entered.
    """
    opened: list[Model] = []
    find_model = _opener(options.settings, opened)
    shared = _shared_options(session, options, find_model)
    names = models or [default_model(session, options.settings)]
    plans = plan_lanes(prompts, names, count, find_model)
    rules = ForkRules(options.rules, find_model=find_model, settings=options.settings)
    exploration = explore(
        session,
        prompts=plans.prompts,
        models=plans.models,
        names=plans.names,
        at=at,
        options=shared,
        parallel=parallel,
        bounds=bounds,
        rules=tuple(options.rules),
        worktrees=worktrees,
        hooks=(LaneMessages(), rules),
    )
    return OpenedExploration(exploration, opened)


def find_refused_models(state: ExplorationState, settings: Settings, models: Sequence[str] = ()) -> list[str]:
    """The models that only the session file names, and that unfinished lanes need."""
    named = {lane.record.model for lane in state.open_lanes} | {lane.model for lane in state.plan.planned}
    return sorted(named - _allowed_models(settings, models))


def resume_command(words: str, run: str, models: Iterable[str]) -> str:
    """The command that resumes an exploration, as it can be typed: the file alone does not choose models."""
    return " ".join([f"sessiontree explore resume {words} --run {run}", *_model_options(models)])


def _model_options(models: Iterable[str]) -> list[str]:
    """The options that name some models. A name in a session file may be any text, such as a second command."""
    return [f"--model {shlex.quote(one_line(name))}" for name in dict.fromkeys(models)]


def _allowed_models(settings: Settings, models: Sequence[str]) -> set[str]:
    return {DEMO, *models, *filter(None, [settings.model])}


def resume_exploration(
    session: Session,
    options: LaneOptions,
    state: ExplorationState,
    *,
    again: Sequence[str] = (),
    bounds: Bounds | None = None,
    models: Sequence[str] = (),
) -> OpenedExploration:
    """Prepare to continue the lanes that did not finish, and the ended ones that `again` names.

    `models` are those that may be used besides the one in the settings: the file names one for each lane.
    """
    allowed = _allowed_models(options.settings, models)
    if refused := find_refused_models(state, options.settings, models):
        choice = " ".join(_model_options(refused))
        raise UsageError(f"the session file names models that are not in your settings; pass {choice} to use them")
    opened: list[Model] = []
    find_model = _only(allowed, _opener(options.settings, opened))
    rules = ForkRules(trusted_rules(state, options.rules), find_model=find_model, settings=options.settings)
    exploration = resume(
        session,
        state.run,
        find_model=find_model,
        again=again,
        options=_shared_options(session, options, find_model),
        bounds=bounds,
        hooks=(LaneMessages(), rules),
    )
    return OpenedExploration(exploration, opened)


def _opener(settings: Settings, opened: list[Model]) -> Callable[..., Model]:
    def find_model(name: str, number: int = 1) -> Model:
        opened.append(find_lane_model(name, number, settings.models))
        return opened[-1]

    return find_model


def _shared_options(session: Session, options: LaneOptions, find_model: Callable[..., Model]) -> ExploreOptions:
    if Approvals(session).mode == "yolo" and options.approval != "yolo":
        raise UsageError(
            f"{session.location}: the session approves everything; pass approval yolo to allow that, or reset it "
            "with `/mode default` in `sessiontree chat`"
        )
    tools = options.tools
    if tools is None:
        tools = load_tools()
        tools.add(TaskTool(find_model=find_model, home=options.home))
    return ExploreOptions(
        tools=tools,
        check=options.check,
        approver_for=options.approver_for(options.approval, tools),
        settings=options.settings,
        system=lambda folder: build_system_prompt(folder, options.added),
        lane_worktrees=LaneWorktrees(options.home, session.id, options.cwd),
        keep_worktrees=True,  # removed once the results were shown, or the user has decided
    )


def default_model(session: Session, settings: Settings) -> str:
    """The model in the user's settings. The session names the last one, but anyone may have written that."""
    if settings.model is not None:
        return settings.model
    raise no_model_error(recorded_model(session))


def _only(names: Collection[str], find_model: Callable[..., Model]) -> Callable[..., Model]:
    """Open only models that the user has named: those in a session file may be anyone's choice."""

    def find(name: str, number: int = 1) -> Model:
        if name not in names:
            raise UsageError(f"the session file names the model {name}; pass --model {name} to use it")
        return find_model(name, number)

    return find


def raised_bounds(state: ExplorationState, budget: Sequence[str]) -> Bounds | None:
    """The limits of an exploration with those of a budget replaced; None without a budget."""
    if not budget:
        return None
    before = state.plan.bounds
    given = parse_bounds(budget, before.lanes, before.depth)
    changed = {name: getattr(given, name) for name in ("tokens", "cost", "seconds") if getattr(given, name) is not None}
    return msgspec.structs.replace(before, **changed)


def trusted_rules(state: ExplorationState, given: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules in the file, with commands only if the user gives them again."""
    return trusted(state.plan.rules, [rule.command for rule in given if rule.command])


def can_resume(session: Session, state: ExplorationState, rules: Sequence[Rule], *, raises_limits: bool) -> bool:
    """Whether there are open or missing lanes, or lanes that rules were not applied to."""
    at_limit = [lane for lane in state.lanes if lane.state == "limit" and lane.verdict is None]
    if state.open_lanes or (at_limit and raises_limits):
        return True
    if is_active(session, state):
        return False
    if len(state.lanes) < len(state.plan.planned):
        return True
    crashed, known = has_crashed(session, state), trusted_rules(state, rules)
    return any(_is_unapplied(rule, lane, state, crashed=crashed) for rule in known for lane in state.lanes)


def _is_unapplied(rule: Rule, lane: Lane, state: ExplorationState, *, crashed: bool) -> bool:
    """Whether a process ended before it applied a rule to a lane. Judges leave no record, and are not asked twice."""
    if lane.state not in ("done", "limit", "failed") or lane.verdict is not None or rule.kind == "judge":
        return False
    if any(other.record.origin == lane.number and other.record.rule == rule.kind for other in state.lanes):
        return False
    if rule.kind == "check" and (lane.check is None or lane.check.command != rule.command):
        return True
    return crashed and (rule.kind != "check" or (lane.check is not None and lane.check.passed is False))
