"""Start or resume an exploration, and watch it until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial

import msgspec

from sessiontree.agent.async_bridge import in_background, uncancelled
from sessiontree.app.event_json import encode_event
from sessiontree.app.exploration import (
    LaneOptions,
    OpenedExploration,
    can_resume,
    raised_bounds,
    resume_command,
    resume_exploration,
    start_exploration,
)
from sessiontree.chat.lane_prompts import LanePrompts
from sessiontree.chat.lane_view import LaneChooser, LaneDecider, LaneView, is_undecided
from sessiontree.chat.terminal import Screen
from sessiontree.cli import output, stderr
from sessiontree.cli.explore_cleanup import print_cleanup, remove_leftovers
from sessiontree.cli.explore_common import (
    home_of,
    lane_worktrees,
    load_exploration,
    print_results,
    session_words,
)
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import remember_session
from sessiontree.cli.summaries import build_summary_request, load_session_settings
from sessiontree.errors import NotFoundError, UsageError, WriteError
from sessiontree.explore.compare import compare
from sessiontree.explore.decisions import DecisionResult
from sessiontree.explore.events import LaneEvent
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.plan_parser import parse_bounds, parse_prompts
from sessiontree.explore.records import Rule
from sessiontree.explore.state import ExplorationLike, ExplorationState, find_exploration
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.session.reader import CURRENT
from sessiontree.session.session import Session
from sessiontree.views.text import one_line


async def run_lanes(session: Session, options: Options) -> int:
    """Start or resume lanes, watch them, print the results, and ask which to keep.

    However it ends, short of being killed, the folders of lanes that have ended are removed.
    """
    is_resume = options.subcommand == "resume"
    if is_resume and not options.again:
        state = load_exploration(session, options)
        if not can_resume(session, state, _check_rules(options), raises_limits=bool(options.budget)):
            return _clean_up_only(session, state, options)
    screen = Screen(sys.stderr)
    can_ask = not options.json and screen.is_terminal and sys.stdin is not None and sys.stdin.isatty()
    prompts = LanePrompts(screen, sys.stdin) if can_ask else None
    view = LaneView(screen, prompts)
    opened = (_resume if is_resume else _start)(session, options, view)
    exploration = opened.exploration
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        _cancel_on(number)
    was_stopped, is_clean = None, True
    try:
        was_stopped = await _watch(exploration, view, prompts, options)
        if was_stopped is None:
            stderr.print_error(f"ended before all lanes had finished; {_resume_hint(exploration, options)}")
            code = stderr.INTERRUPTED
        else:
            code = await _report(session, exploration, prompts, screen, options)
    except asyncio.CancelledError:  # a signal while results were printed: everything is in the file
        code = stderr.INTERRUPTED
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            has_ended = was_stopped is not None
            is_clean = await uncancelled(_clean_up(opened, options, has_ended=has_ended))
        session.close()
    if was_stopped:
        return stderr.INTERRUPTED
    return code if is_clean else code or stderr.FAILED


def _resume_command(exploration: Exploration, options: Options) -> str:
    return resume_command(session_words(exploration.session, options), exploration.run, options.model)


def _resume_hint(exploration: Exploration, options: Options) -> str:
    return f"continue them with `{_resume_command(exploration, options)}`"


async def _report(
    session: Session, exploration: Exploration, prompts: LanePrompts | None, screen: Screen, options: Options
) -> int:
    """Print the results and let the user decide; returns the exit code."""
    remember_session(session.location, session.cwd, options)
    state = await in_background(_read_state, session, exploration)
    results = await in_background(compare, state, exploration.worktrees)
    print_results(session, state, results, options)
    sys.stdout.flush()
    if any(lane.state == "lost" for lane in state.lanes):
        stderr.print_line(f"some lanes did not finish; {_resume_hint(exploration, options)}")
    if any(lane.state == "limit" for lane in state.lanes):
        command = f"{_resume_command(exploration, options)} --budget N"
        stderr.print_line(f"some lanes reached a limit; continue them with `{command}` and a larger N")
    words = session_words(session, options)
    if any(lane.state == "running" for lane in state.lanes):
        stderr.print_line(
            f"another process is working on some lanes; `sessiontree explore compare {words}` shows their progress"
        )
        return 0
    result = None
    if prompts is not None:
        result = await _choose(session, state, exploration.worktrees, prompts, screen, options)
    if not options.json and is_undecided(state.lanes, result):
        stderr.print_line(f"decide with `sessiontree explore keep {words} LANE`, or with merge, drop or diff")
    return 0 if any(lane.state == "done" for lane in state.lanes) else stderr.FAILED


def _read_state(session: Session, exploration: Exploration) -> ExplorationLike:
    """This process's own lanes as it knows them, and those of other processes as recorded in the file."""
    own = {lane.number: lane for lane in exploration.lanes if lane.lease is not None}
    if len(own) == len(exploration.lanes):
        return exploration
    session.refresh()
    state = find_exploration(session, exploration.run)
    return msgspec.structs.replace(state, lanes=[own.get(lane.number, lane) for lane in state.lanes])


async def _clean_up(opened: OpenedExploration, options: Options, *, has_ended: bool) -> bool:
    """Close models and remove the folders of lanes that have ended; returns whether all could be removed."""
    await opened.close()
    exploration = opened.exploration
    # After an early end, rules may still have to look at the folders when the exploration is resumed.
    if options.keep_worktrees or (exploration.plan.rules and not has_ended):
        return True
    result = await in_background(exploration.remove_worktrees)
    with contextlib.suppress(OSError):  # the terminal is gone
        print_cleanup(result)
    return not result.failed


def _cancel_on(number: signal.Signals) -> None:
    """Cancel this task on a signal, so that it can clean up."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def _clean_up_only(session: Session, state: ExplorationState, options: Options) -> int:
    _print_untrusted(state, options)
    is_clean = remove_leftovers(session, state, options)
    print_results(session, state, compare(state, lane_worktrees(session, options)), options)
    session.close()
    return 0 if is_clean else stderr.FAILED


async def _watch(
    exploration: Exploration, view: LaneView, prompts: LanePrompts | None, options: Options
) -> bool | None:
    """Show all events. Returns whether the user stopped all lanes; None if a signal ended the program."""
    loop = asyncio.get_running_loop()
    interrupt = exploration.stop if options.json else partial(_interrupt, view, prompts)
    if options.subcommand == "start":  # before `resume` has shown the lanes, Ctrl-C must not stop them for good
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        async with view.begun(exploration):
            loop.add_signal_handler(signal.SIGINT, interrupt)
            if options.json:
                async for event in exploration:
                    _print_event(exploration, event, options)
                return all(lane.state == "stopped" for lane in exploration.lanes)
            with prompts.quiet() if prompts is not None else contextlib.nullcontext():
                await view.watch(exploration)
            return view.was_stopped
    except asyncio.CancelledError:
        return None
    finally:
        _cancel_on(signal.SIGINT)


def _print_event(exploration: Exploration, event: LaneEvent, options: Options) -> None:
    try:
        output.print_json(encode_event(event))
        sys.stdout.flush()
    except OSError as error:  # the reader is gone, or the disk is full: lanes must not continue unseen
        raise WriteError(
            f"standard output: {error.strerror}; ended before all lanes had finished; "
            f"{_resume_hint(exploration, options)}"
        ) from error


def _interrupt(view: LaneView, prompts: LanePrompts | None) -> None:
    """Ctrl-C cancels an open question; without one, it is about the lanes."""
    if prompts is None or not prompts.interrupt():
        view.interrupt()


async def _choose(
    session: Session,
    state: ExplorationLike,
    worktrees: LaneWorktrees | None,
    prompts: LanePrompts,
    screen: Screen,
    options: Options,
) -> DecisionResult | None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, prompts.interrupt)
    request = build_summary_request(session, options)
    decider = LaneDecider(session, state, worktrees, summary=request, keep_worktrees=options.keep_worktrees)
    try:
        return await LaneChooser(screen, prompts, decider).choose()
    except asyncio.CancelledError:  # the terminal is gone, or a signal came: the user can decide later
        return None
    finally:
        _cancel_on(signal.SIGINT)


# Options


def _lane_options(session: Session, options: Options, view: LaneView, rules: Sequence[Rule]) -> LaneOptions:
    return LaneOptions(
        home=home_of(options),
        settings=load_session_settings(session, options),
        cwd=session.cwd or os.getcwd(),
        approver_for=view.approver_for,
        approval=options.approval,
        check=options.check,
        rules=rules,
    )


def _start(session: Session, options: Options, view: LaneView) -> OpenedExploration:
    return start_exploration(
        session,
        _lane_options(session, options, view, _rules(options)),
        _read_prompts(options),
        models=options.model,
        count=options.n,
        at=CURRENT if options.at is None else session.find_entry(options.at),
        parallel=options.parallel,
        bounds=parse_bounds(options.budget, options.max_lanes, options.max_depth),
        worktrees=not options.no_worktrees,
    )


def _resume(session: Session, options: Options, view: LaneView) -> OpenedExploration:
    lane_options = _lane_options(session, options, view, _check_rules(options))
    state = load_exploration(session, options)
    bounds = raised_bounds(state, options.budget)
    _print_untrusted(state, options)
    return resume_exploration(session, lane_options, state, again=options.again, bounds=bounds, models=options.model)


def _read_prompts(options: Options) -> list[str]:
    if (options.prompt is None) == (options.prompts is None):
        raise UsageError("explore: pass a PROMPT for all lanes, or --prompts FILE with one for each")
    if options.prompts is None:
        if not options.prompt.strip():
            raise UsageError("explore: the PROMPT is empty")
        return [options.prompt]
    if options.prompts == "-" and sys.stdin is None:
        raise UsageError("--prompts -: standard input is closed; name a file")
    try:
        if options.prompts == "-":
            text = sys.stdin.read().removeprefix("\ufeff")
        else:
            with open(options.prompts, encoding="utf-8-sig") as file:
                text = file.read()
    except FileNotFoundError:
        raise NotFoundError(f"{options.prompts}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{options.prompts}: cannot be read as text: {error}") from None
    found = parse_prompts(text)
    if not found:
        raise UsageError(
            f"{options.prompts}: no prompts; write one per line, or blocks separated by lines of three hyphens"
        )
    return found


def _check_rules(options: Options) -> list[Rule]:
    return [Rule("check", command=options.fork_on)] if options.fork_on else []


def _rules(options: Options) -> list[Rule]:
    rules = _check_rules(options)
    rules += [Rule("denied")] if options.fork_on_denied else []
    if options.fork_on_repeats is not None:
        rules.append(Rule("repeats", count=options.fork_on_repeats))
    if options.fork_below is not None:
        rules.append(Rule("judge", threshold=options.fork_below))
    return rules


def _print_untrusted(state: ExplorationState, options: Options) -> None:
    """Report commands in the file that are not run, because the user did not pass them."""
    for rule in state.plan.rules:
        if rule.kind == "check" and rule.command != options.fork_on:
            stderr.print_line(f"not run unless you pass it again: --fork-on {one_line(rule.command or '')!r}")
    if state.plan.check is not None and state.plan.check != options.check:
        stderr.print_line(f"not run unless you pass it again: --check {one_line(state.plan.check)!r}")
