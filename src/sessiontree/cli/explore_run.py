"""Beginning an exploration, or going on with one, and watching it to its end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from sessiontree.agent.async_bridge import in_background, uncancelled
from sessiontree.agent.tools.registry import load_tools
from sessiontree.app.models import find_lane_model, no_model_error
from sessiontree.app.system_prompt import build_system_prompt
from sessiontree.chat.lane_prompts import Questions
from sessiontree.chat.lane_view import Choosing, Watching, is_left_open
from sessiontree.chat.terminal import Screen
from sessiontree.cli import output, stderr
from sessiontree.cli.explore_cleanup import say_tidied, take_away
from sessiontree.cli.explore_common import copies_of, home_of, plain, print_results, session_words, told_of
from sessiontree.cli.lane_options import APPROVAL, MAX_DEPTH, MAX_LANES, PARALLEL
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import remember_session
from sessiontree.cli.summaries import build_summary_request, find_configured_summarizer, load_session_settings
from sessiontree.errors import NotFoundError, SessionTreeError, UsageError, WriteError
from sessiontree.explore import decisions, explore, resume
from sessiontree.explore.cleanup import has_died, is_worked_on
from sessiontree.explore.compare import HasLanes, compare
from sessiontree.explore.decisions import Decided
from sessiontree.explore.events import LaneEvent
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.fork_rules import Rules, trusted
from sessiontree.explore.lane import Lane
from sessiontree.explore.lane_messages import Talking
from sessiontree.explore.plan_parser import parse_bounds, parse_prompts, plan_lanes
from sessiontree.explore.records import Bounds, Rule
from sessiontree.explore.state import ExplorationState, find_exploration
from sessiontree.explore.task_tool import TaskTool
from sessiontree.explore.worktrees import Copies
from sessiontree.models import Model
from sessiontree.session.reader import CURRENT
from sessiontree.session.session import Session
from sessiontree.settings import Settings
from sessiontree.views.text import one_line


async def explore_lanes(session: Session, options: Options) -> int:
    """Begin or resume, watch to the end, tell what came of it, and let it be decided.

    However it ends, short of being killed, the folders of lanes that have ended go.
    """
    if options.resume is not None:
        told = told_of(session, options.resume or options.which)
        if not _can_go_on(session, told, options):
            return _only_tidy(session, told, options)
    screen = Screen(sys.stderr)
    can_ask = not options.json and screen.is_terminal and sys.stdin is not None and sys.stdin.isatty()
    questions = Questions(screen, sys.stdin) if can_ask else None
    watching = Watching(screen, questions)
    exploration, models = _prepare(session, options, watching)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        _end_on(number)
    was_stopped, is_tidy = None, True
    try:
        was_stopped = await _watch(exploration, watching, questions, options)
        if was_stopped is None:
            stderr.print_error(f"ended before all lanes had come to their end; {_again(exploration, options)}")
            code = stderr.INTERRUPTED
        else:
            code = await _tell(session, exploration, questions, screen, options)
    except asyncio.CancelledError:  # told to end while it told what came of the lanes: all of that is in the file
        code = stderr.INTERRUPTED
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            is_tidy = await uncancelled(_tidy(session, exploration, models, options, has_ended=was_stopped is not None))
        session.close()
    if was_stopped:
        return stderr.INTERRUPTED
    return code if is_tidy else code or stderr.FAILED


def _resume(exploration: Exploration, options: Options) -> str:
    return f"sessiontree explore {session_words(exploration.session, options)} --resume {exploration.run}"


def _again(exploration: Exploration, options: Options) -> str:
    return f"`{_resume(exploration, options)}` goes on with them"


async def _tell(
    session: Session, exploration: Exploration, questions: Questions | None, screen: Screen, options: Options
) -> int:
    """Tell what came of the lanes, and let it be decided; the exit code."""
    remember_session(session.location, session.cwd, options)
    told = await in_background(_as_it_stands, session, exploration)
    results = await in_background(compare, told, exploration.copies)
    print_results(session, told, results, options)
    sys.stdout.flush()
    if any(lane.state == "lost" for lane in told.lanes):
        stderr.print_line(f"some lanes have no end: {_again(exploration, options)}")
    if any(lane.state == "limit" for lane in told.lanes):
        more = f"{_resume(exploration, options)} --budget N"
        stderr.print_line(f"lanes that reached a limit go on with `{more}`, N being more than before")
    if any(lane.state == "running" for lane in told.lanes):
        words = session_words(session, options)
        stderr.print_line(
            f"another process works on some lanes; `sessiontree explore {words} --compare` shows how far they are"
        )
        return 0
    decided = None
    if questions is not None:
        decided = await _choose(session, told, exploration.copies, questions, screen, options)
    if not options.json and is_left_open(told.lanes, decided):
        words = session_words(session, options)
        stderr.print_line(f"decide with `sessiontree explore {words}` and --keep, --merge, --drop or --diff LANE")
    return 0 if any(lane.state == "done" for lane in told.lanes) else stderr.FAILED


def _as_it_stands(session: Session, exploration: Exploration) -> HasLanes:
    """The lanes of this process as it knows them, and those that others may have worked on as the file tells them."""
    own = {lane.number: lane for lane in exploration.lanes if lane.lease is not None}
    if len(own) == len(exploration.lanes):
        return exploration
    session.refresh()
    told = find_exploration(session, exploration.run)
    return msgspec.structs.replace(told, lanes=[own.get(lane.number, lane) for lane in told.lanes])


async def _tidy(
    session: Session, exploration: Exploration, models: Sequence[Model], options: Options, *, has_ended: bool
) -> bool:
    """Let models go, and the folders of lanes that have ended; whether all could be tidied up.

    When it was left before its end, rules may not have looked at those folders yet: then they are for who resumes it.
    """
    for model in models:
        await model.close()
    if options.keep_worktrees or (exploration.plan.rules and not has_ended):
        return True
    lanes = decisions.closed(exploration.lanes)
    if exploration.holding.maker is None and exploration.plan_id and is_worked_on(session, exploration):
        lanes = [lane for lane in lanes if lane.lease is not None]  # another process may look at the others
    tidied = await in_background(decisions.tidy, lanes, exploration.copies)
    with contextlib.suppress(OSError):  # nobody is there to hear it
        say_tidied(tidied)
    return not tidied.failed


def _end_on(number: signal.Signals) -> None:
    """Let a signal end what this task does, so that it can tidy up."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(number, this.cancel)


def _only_tidy(session: Session, told: ExplorationState, options: Options) -> int:
    """There is nothing to go on with: take away what a process that died has left."""
    _say_untrusted(told, options)
    is_tidy = take_away(session, told, options)
    print_results(session, told, compare(told, copies_of(session, options)), options)
    session.close()
    return 0 if is_tidy else stderr.FAILED


async def _watch(
    exploration: Exploration, watching: Watching, questions: Questions | None, options: Options
) -> bool | None:
    """Go through all that happens; whether a person stopped it, None when the program was told to end."""
    loop = asyncio.get_running_loop()
    interrupt = exploration.stop if options.json else partial(_interrupt, watching, questions)
    if options.resume is None and not options.again:  # else lanes of before would be stopped that nobody has seen yet
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        async with watching.begun(exploration):
            loop.add_signal_handler(signal.SIGINT, interrupt)
            if options.json:
                async for event in exploration:
                    _print_event(exploration, event, options)
                return all(lane.state == "stopped" for lane in exploration.lanes)
            with questions.quiet() if questions is not None else contextlib.nullcontext():
                await watching.watch(exploration)
            return watching.was_stopped
    except asyncio.CancelledError:
        return None
    finally:
        _end_on(signal.SIGINT)


def _print_event(exploration: Exploration, event: LaneEvent, options: Options) -> None:
    """Tell who reads along. If nobody does any more, or the disk is full, nobody wants lanes to go on unseen."""
    try:
        output.print_json({"type": "event", **plain(event)})
        sys.stdout.flush()
    except OSError as error:
        raise WriteError(
            f"standard output: {error.strerror}; ended before all lanes had come to their end; "
            f"{_again(exploration, options)}"
        ) from error


def _interrupt(watching: Watching, questions: Questions | None) -> None:
    """Ctrl-C ends the question that is open; when there is none, it is about the lanes."""
    if questions is None or not questions.interrupt():
        watching.interrupt()


async def _choose(
    session: Session,
    told: HasLanes,
    copies: Copies | None,
    questions: Questions,
    screen: Screen,
    options: Options,
) -> Decided | None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, questions.interrupt)
    summary = build_summary_request(session, options)
    keeps = options.keep_worktrees
    choosing = Choosing(screen, questions, session, told, copies, summary=summary, keep_copies=keeps)
    try:
        return await choosing.choose()
    except asyncio.CancelledError:  # the terminal is gone, or the program is told to end: it is decided later
        return None
    finally:
        _end_on(signal.SIGINT)


def _prepare(session: Session, options: Options, watching: Watching) -> tuple[Exploration, Sequence[Model]]:
    """The exploration that was asked for, not begun yet, and the models that it uses."""
    settings = load_session_settings(session, options)
    _check_approval(session, options)
    models: list[Model] = []

    def find_model(name: str, number: int = 1) -> Model:
        models.append(find_lane_model(name, number, settings.models))
        return models[-1]

    tools = load_tools()
    tools.add(TaskTool(find_model=find_model, home=home_of(options)))
    shared: dict[str, Any] = {
        "tools": tools,
        "approver_for": watching.approver_for(options.approval or APPROVAL, tools),
        "settings": settings,
        "system": build_system_prompt,
        "copies": copies_of(session, options),
        "summarizer": find_configured_summarizer(settings),
        "keep_worktrees": True,  # until everything is told: see `_tidy`
    }
    if options.resume is not None or options.again:
        told = told_of(session, options.resume or options.which)
        bounds = _bounds_from_now(told, options)
        _say_untrusted(told, options)
        again = trusted(told.plan.rules, [options.fork_on] if options.fork_on else [])
        hooks = (Talking(), Rules(again, find_model=find_model, settings=settings))
        wanted = {"again": options.again or (), "bounds": bounds, "check": options.check}
        return resume(session, told.run, find_model=find_model, hooks=hooks, **wanted, **shared), models
    prompts = _prompts(options)
    plans = plan_lanes(prompts, options.model or [_usual_model(session, settings)], options.n, find_model)
    rules = _rules(options)
    exploration = explore(
        session,
        prompts=plans.prompts,
        models=plans.models,
        names=plans.names,
        at=CURRENT if options.at is None else session.find_entry(options.at),
        parallel=PARALLEL if options.parallel is None else options.parallel,
        bounds=_bounds(options),
        rules=rules,
        check=options.check,
        worktrees=not options.no_worktrees,
        hooks=(Talking(), Rules(rules, find_model=find_model, settings=settings)),
        **shared,
    )
    return exploration, models


def _bounds_from_now(told: ExplorationState, options: Options) -> Bounds | None:
    """What all lanes may use, when a budget is given; what it does not name stays as it was."""
    if not options.budget:
        return None
    given, before = _bounds(options), told.plan.bounds
    changed = {name: getattr(given, name) for name in ("tokens", "cost", "seconds") if getattr(given, name) is not None}
    return msgspec.structs.replace(before, **changed)


def _can_go_on(session: Session, told: ExplorationState, options: Options) -> bool:
    """Whether lanes were left open, were not made yet, or a rule was not asked about them."""
    at_limit = [lane for lane in told.lanes if lane.state == "limit" and lane.verdict is None]
    if told.open_lanes or (at_limit and options.budget):
        return True
    if is_worked_on(session, told):
        return False
    is_all_made = len(told.lanes) >= len(told.plan.wanted)
    rules = trusted(told.plan.rules, [options.fork_on] if options.fork_on else [])
    died = has_died(session, told)
    return not is_all_made or any(_is_unasked(rule, lane, told, died=died) for rule in rules for lane in told.lanes)


def _is_unasked(rule: Rule, lane: Lane, told: ExplorationState, *, died: bool) -> bool:
    """Whether a rule may still have something to say of a lane, as its process ended before that was done.

    What a judge said is not written down, and judges are not asked twice.
    """
    if lane.state not in ("done", "limit", "failed") or lane.verdict is not None or rule.kind == "judge":
        return False
    if any(one.record.origin == lane.number and one.record.rule == rule.kind for one in told.lanes):
        return False
    if rule.kind == "check" and (lane.check is None or lane.check.command != rule.command):
        return True
    return died and (rule.kind != "check" or (lane.check is not None and lane.check.passed is False))


def _bounds(options: Options) -> Bounds:
    lanes = MAX_LANES if options.max_lanes is None else options.max_lanes
    return parse_bounds(options.budget, lanes, MAX_DEPTH if options.max_depth is None else options.max_depth)


def _usual_model(session: Session, settings: Settings) -> str:
    """The model that answers when none is named: who answered last if that one can be asked here, else the setting."""
    told = session.context().state.model
    name = f"{told.provider}:{told.model_id}" if told is not None and told.provider else None
    if name is not None:
        try:
            find_lane_model(name, 1, settings.models)
        except SessionTreeError:
            name = None
    name = name or settings.model
    if name is None:
        raise no_model_error()
    return name


def _prompts(options: Options) -> list[str]:
    """What lanes are told: the text for all, or each its own out of a file."""
    if (options.prompt is None) == (options.prompts is None):
        raise UsageError("explore: what shall lanes do? A TEXT for all of them, or --prompts FILE with one for each")
    if options.prompts is None:
        if not options.prompt.strip():
            raise UsageError("explore: the TEXT is empty")
        return [options.prompt]
    if options.prompts == "-" and sys.stdin is None:
        raise UsageError("--prompts -: there is no standard input to read them from; name a file")
    try:
        if options.prompts == "-":
            text = sys.stdin.read().removeprefix("\ufeff")
        else:
            with open(options.prompts, encoding="utf-8-sig") as file:
                text = file.read()
    except FileNotFoundError:
        raise NotFoundError(f"{options.prompts}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{options.prompts}: cannot be read as text: {error}") from None
    found = parse_prompts(text)
    if not found:
        raise UsageError(
            f"{options.prompts}: has no prompt; one on each line, or blocks between lines of three hyphens"
        )
    return found


def _rules(options: Options) -> list[Rule]:
    rules = [Rule("check", command=options.fork_on)] if options.fork_on else []
    rules += [Rule("denied")] if options.fork_on_denied else []
    if options.fork_on_repeats is not None:
        rules.append(Rule("repeats", count=options.fork_on_repeats))
    if options.fork_below is not None:
        rules.append(Rule("judge", threshold=options.fork_below))
    return rules


def _check_approval(session: Session, options: Options) -> None:
    """A session may say by itself that less is asked; that holds only if it is said here, too."""
    if session.config.approval_mode == "yolo" and options.approval != "yolo":
        raise UsageError(
            f"{session.location}: the session itself lets everything pass without asking; say --approval yolo if you "
            "want that, or take it back with `/mode default` in `sessiontree chat`"
        )


def _say_untrusted(told: ExplorationState, options: Options) -> None:
    """Commands that stand in a file are not run because they stand there."""

    for rule in told.plan.rules:
        if rule.kind == "check" and rule.command != options.fork_on:
            stderr.print_line(
                f"its rule is left out unless you say it again: --fork-on {one_line(rule.command or '')!r}"
            )
    if told.plan.check is not None and told.plan.check != options.check:
        stderr.print_line(f"its check is left out unless you say it again: --check {one_line(told.plan.check)!r}")
