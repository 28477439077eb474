"""Run several branches of a session in parallel, compare them, and keep, merge or drop them.

Each parallel branch is called a lane. It has its own prompt or model and, in a git repository, its own worktree: a copy
of the project including uncommitted files. Lanes may change files in their worktree without asking; commands need
approval, and are denied where there is no terminal to ask. Press Ctrl-C to stop a lane, twice to stop all.
`sessiontree explore SESSION PROMPT` is short for `sessiontree explore start SESSION PROMPT`.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.explore_common import lane_worktrees, load_exploration, plain, print_results
from sessiontree.cli.parser import Options, Parser, add_subcommand
from sessiontree.cli.sessions import open_session, remember_session
from sessiontree.cli.summaries import add_summary_options, build_summary_request
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from sessiontree.explore.decisions import DecisionResult
    from sessiontree.explore.lane import Lane
    from sessiontree.explore.state import ExplorationState
    from sessiontree.explore.worktrees import LaneWorktrees
    from sessiontree.session.session import Session

JSON = "print one JSON object; start and resume print one for each event, then one with the results"
EXAMPLES = """examples:
  sessiontree explore 019c2f3a "make the parser faster" --n 3 --check "pytest -q" --budget 200k --budget 10m
  sessiontree explore keep 019c2f3a 2

LANE is the number or name of a lane. Every subcommand has --help and --json. `--model demo` needs no API key.
Exit codes of start and resume: 0 if at least one lane finished, 1 if none did, 130 if you stopped them."""

PARALLEL, MAX_DEPTH, MAX_LANES = 4, 2, 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    subcommands = parser.add_subparsers(
        title="subcommands", metavar="SUBCOMMAND", dest="subcommand", required=True, prog=parser.prog
    )
    subcommands.default = "start"
    start, resume = _add_start(subcommands), _add_resume(subcommands)
    _add_run_options(start, is_resume=False)
    _add_run_options(resume, is_resume=True)
    add_subcommand(subcommands, "list", "list the explorations of a session", "List the explorations of a session.")
    compare = add_subcommand(subcommands, "compare", "compare the results of lanes", _COMPARE)
    keep = add_subcommand(subcommands, "keep", "make a lane current and apply its files", _KEEP)
    keep.add_argument("lane", metavar="LANE")
    keep.add_argument("--no-files", action="store_true", help="do not change the project's files")
    merge = add_subcommand(subcommands, "merge", "merge lanes and apply their files", _MERGE)
    merge.add_argument("lanes", metavar="LANE", nargs="+")
    drop = add_subcommand(subcommands, "drop", "mark lanes as dropped", _DROP)
    drop.add_argument("lanes", metavar="LANE", nargs="+")
    diff = add_subcommand(subcommands, "diff", "show the files of a lane as a diff", _DIFF)
    diff.add_argument("lane", metavar="LANE")
    for parser in (start, resume, merge):
        add_summary_options(parser, with_model=parser is merge)
    for parser in (start, resume, keep, merge, drop):
        parser.add_argument("--keep-worktrees", action="store_true", help="keep the folders of lanes")
    for parser in (resume, compare, keep, merge, drop, diff):
        parser.add_argument("--run", metavar="ID", dest="which", help="id of the exploration (default: the last)")
    _add_old_flags(start)


def _add_start(subcommands: Any) -> Parser:
    start = add_subcommand(subcommands, "start", "start lanes, watch them, then decide", _START)
    start.add_argument("prompt", metavar="PROMPT", nargs="?", help="the prompt for all lanes")
    source = start.add_mutually_exclusive_group()
    source.add_argument("--prompts", metavar="FILE", help="start a lane for each prompt in this file (-: stdin)")
    source.add_argument("--n", metavar="N", type=int, help="number of lanes (default: one for each model)")
    start.add_argument(
        "--model", metavar="NAME", action="append", default=[], help="provider:name; repeat it to let models take turns"
    )
    start.add_argument("--at", metavar="ENTRY", help="entry that lanes start from (default: the current entry)")
    start.add_argument(
        "--parallel", metavar="N", type=int, default=PARALLEL, help="number of lanes to run at a time (default: 4)"
    )
    start.add_argument("--fork-on-denied", action="store_true", help="fork a lane if one of its tool calls was denied")
    start.add_argument("--fork-on-repeats", metavar="N", type=int, help="fork a lane after N identical errors in a row")
    start.add_argument(
        "--fork-below", metavar="N", type=float, help="fork a lane if a judge's confidence in it is below N (0 to 1)"
    )
    start.add_argument(
        "--max-depth",
        metavar="N",
        type=int,
        default=MAX_DEPTH,
        help="levels of automatic forks; with 2, forks may fork again (default: 2)",
    )
    start.add_argument(
        "--max-lanes",
        metavar="N",
        type=int,
        default=MAX_LANES,
        help="maximum number of lanes and forks (default: 16)",
    )
    start.add_argument("--no-worktrees", action="store_true", help="let all lanes work in the project's folder")
    return start


def _add_resume(subcommands: Any) -> Parser:
    resume = add_subcommand(subcommands, "resume", "continue lanes whose process ended", _RESUME)
    resume.add_argument(
        "--again",
        metavar="LANE",
        action="append",
        default=[],
        help="also continue a lane that failed, was stopped or reached a limit; repeatable",
    )
    resume.add_argument(
        "--model",
        metavar="NAME",
        action="append",
        default=[],
        help="allow this model, named in the session, in addition to the one in your settings; repeatable",
    )
    return resume


def _add_run_options(parser: Parser, *, is_resume: bool) -> None:
    """Add the options of both commands that run lanes."""
    parser.add_argument(
        "--budget",
        metavar="N",
        action="append",
        default=[],
        help="limit for all lanes together: 200k tokens, $2 or 10m; repeatable"
        + (". Continues lanes that reached a limit" if is_resume else ""),
    )
    parser.add_argument("--check", metavar="COMMAND", help="run this command when a lane finishes, to test its work")
    parser.add_argument("--fork-on", metavar="COMMAND", help="fork a lane if this command fails when it finishes")
    parser.add_argument(
        "--approval",
        metavar="MODE",
        choices=("default", "autoEdit", "yolo"),
        default="autoEdit",
        help="approval mode: default (ask), autoEdit (lanes may change files in their worktree), yolo (and run "
        "commands); autoEdit if not given",
    )


_START = """Start an exploration: several lanes that continue a session in parallel.

One PROMPT starts --n lanes, or one lane for each --model. --prompts FILE starts one for each line, or for each block
between lines of three hyphens. On a terminal, you are asked at the end which lane to keep."""
_RESUME = """Continue the lanes of an exploration whose process ended.

Unfinished lanes continue from their last entry; no tool call is repeated. A check or rule command stored in the
session is not run unless you pass it again. If there is nothing to continue, leftover folders of lanes are removed."""
_COMPARE = "Compare the lanes of an exploration: state, check, files, turns, tokens, cost, time and answer."
_KEEP = """Make a lane the current branch and apply its files to the project, as uncommitted changes.

If a file conflicts with your changes, nothing is written. Undecided lanes are marked as left."""
_MERGE = """Merge lanes: summarize them on the current branch and apply the files of all to the project.

If the current entry is before the lanes, they are merged into the first of them. If files conflict, nothing is
written."""
_DROP = "Mark lanes as dropped. They stay in the tree, and their files stay in git."
_DIFF = "Show the files of a lane as a diff. In a file or pipe, it is a patch for `git apply`, including binary files."


def run(options: Options) -> int:
    if options.subcommand == "start":
        if options.session in (*_OLD_FLAGS, "start"):  # as in `explore --json list SESSION`
            raise UsageError(
                f"explore: put the subcommand first, as in `sessiontree explore {options.session} SESSION`; a session "
                "with that name needs its path or id"
            )
        new_form = _translate_old_flags(options)
        if new_form is not None:
            return run(new_form)
    for name in ("check", "fork_on"):
        command = getattr(options, name, None)
        if command is not None and not command.strip():
            raise UsageError(f"--{name.replace('_', '-')}: the command is empty")
    session = open_session(options)
    if options.subcommand == "list":
        return _list(session, options)
    if options.subcommand in ("start", "resume"):
        import asyncio

        from sessiontree.cli.explore_run import run_lanes

        return asyncio.run(run_lanes(session, options))
    return _inspect_or_decide(session, options)


# Existing explorations


def _list(session: Session, options: Options) -> int:
    from sessiontree.cli.explore_cleanup import print_leftovers
    from sessiontree.explore.state import explorations
    from sessiontree.views.text import one_line

    found = explorations(session)
    if options.json:
        described = [
            {
                "run": state.run,
                "entry": state.plan_id,
                "at": state.plan.at,
                "lanes": [_describe(lane) for lane in state.lanes],
            }
            for state in found
        ]
        output.print_json({"session": session.id, "explorations": described})
    elif not found:
        stderr.print_line("no exploration in this session yet")
    else:
        for state in found:
            lanes = ", ".join(f"{lane.number} {_state(lane)}" for lane in state.lanes) or "no lanes"
            output.print_lines([f"{state.run}  {one_line(session.entry(state.plan_id).timestamp)}  {lanes}"])
    for state in found:
        print_leftovers(session, state, options)
    return 0


def _state(lane: Lane) -> str:
    return f"{lane.state} ({lane.verdict.verdict})" if lane.verdict is not None else lane.state


def _describe(lane: Lane) -> dict[str, Any]:
    return {
        "lane": lane.number,
        "name": lane.name,
        "model": lane.record.model,
        "state": lane.state,
        "verdict": None if lane.verdict is None else lane.verdict.verdict,
        "leaf": lane.leaf,
        "worktree": None if lane.worktree is None else lane.worktree.path,
    }


def _inspect_or_decide(session: Session, options: Options) -> int:
    from sessiontree.cli.explore_cleanup import print_leftovers
    from sessiontree.explore import decisions
    from sessiontree.explore.compare import compare

    state = load_exploration(session, options)
    worktrees = lane_worktrees(session, options)
    match options.subcommand:
        case "compare":
            print_results(session, state, compare(state, worktrees), options)
            print_leftovers(session, state, options)
            return 0
        case "diff":
            return _print_diff(session, state, worktrees, options)
        case "keep":
            result = decisions.keep(
                session,
                state,
                options.lane,
                worktrees,
                apply=not options.no_files,
                keep_worktrees=options.keep_worktrees,
            )
        case "merge":
            request = build_summary_request(session, options)
            result = decisions.merge(
                session, state, options.lanes, worktrees, summary=request, keep_worktrees=options.keep_worktrees
            )
        case _:
            result = decisions.drop(session, state, options.lanes, worktrees, keep_worktrees=options.keep_worktrees)
    session.flush()
    remember_session(session.location, session.cwd, options)
    _print_decision(session, state, result, options)
    return stderr.FAILED if result.failed else 0


def _print_diff(session: Session, state: ExplorationState, worktrees: LaneWorktrees, options: Options) -> int:
    from sessiontree.views.text import clean

    lane = state.lane(options.lane)
    if lane.worktree is None:
        raise UsageError(f"lane {lane.number} had no worktree, so its changes cannot be distinguished from yours")
    if options.json:
        text = worktrees.diff(lane.worktree)
        files = [plain(file) for file in worktrees.files(lane.worktree)]
        output.print_json({"session": session.id, "run": state.run, "lane": lane.number, "files": files, "diff": text})
    elif sys.stdout.isatty():
        output.print_lines(clean(worktrees.diff(lane.worktree)).splitlines())
    else:
        output.print_bytes([worktrees.patch(lane.worktree)])
    return 0


def _print_decision(session: Session, state: ExplorationState, result: DecisionResult, options: Options) -> None:
    from sessiontree.chat.lane_view import decision_lines

    if options.json:
        output.print_json({"session": session.id, "run": state.run, **plain(result)})
        return
    output.print_value(result.leaf or "")
    for line in decision_lines(session, result, output.width()):
        stderr.print_line(line)


# Flags of earlier versions, which selected the mode of `explore SESSION`. They are translated to subcommands.

_OLD_FLAGS = ("resume", "again", "compare", "keep", "merge", "drop", "diff", "list")
_REPEATABLE = ("again", "merge", "drop")


def _add_old_flags(start: argparse.ArgumentParser) -> None:
    # Not a mutually exclusive group: argparse before 3.13 fails to format the usage of one that is hidden.
    for name in _OLD_FLAGS:
        action: dict[str, Any] = {"action": "append"}
        if name in ("resume", "compare"):
            action |= {"nargs": "?", "const": ""}
        elif name == "list":
            action = {"action": "append_const", "const": ""}
        start.add_argument(f"--{name}", dest=f"old_{name}", help=argparse.SUPPRESS, **action)
    start.add_argument("--run", dest="old_which", help=argparse.SUPPRESS)
    start.add_argument("--no-files", dest="old_no_files", action="store_true", help=argparse.SUPPRESS)


def _translate_old_flags(options: Options) -> Options | None:
    """Parse the subcommand that an old mode flag selects; None without such a flag."""
    import shlex

    from sessiontree.cli.parser import parse
    from sessiontree.views.text import one_line

    flags = [name for name in _OLD_FLAGS if getattr(options, f"old_{name}") is not None]
    if len(flags) > 1:
        raise UsageError(f"--{flags[0]} is not allowed with --{flags[1]}")
    if not flags:
        for name in ("which", "no_files"):
            if getattr(options, f"old_{name}"):
                raise UsageError(f"explore start: no option {'--run' if name == 'which' else '--no-files'}")
        return None
    flag = flags[0]
    values = getattr(options, f"old_{flag}")
    if len(values) > 1 and flag not in _REPEATABLE:
        raise UsageError(f"--{flag} can be given once")
    words = ["resume" if flag == "again" else flag, options.session]
    if flag in ("resume", "compare"):
        words += [word for run in values if run for word in ("--run", run)]
    elif flag == "again":
        words += [word for lane in values for word in ("--again", lane)]
    elif flag != "list":
        words += values
    words += _other_words(options)
    stderr.print_line(f"sessiontree: --{flag} is deprecated; use `sessiontree explore {one_line(shlex.join(words))}`")
    return parse(["explore", *words])


def _other_words(options: Options) -> list[str]:
    """The options that were given besides an old mode flag, as words of a command line."""
    from sessiontree.cli.parser import build_parsers, find_subcommands

    start = find_subcommands(build_parsers(["explore"])[1]["explore"])["start"]
    words = [] if options.prompt is None else [options.prompt]
    for action in start._actions:
        name = action.dest.removeprefix("old_")
        value = getattr(options, action.dest, None)
        if not action.option_strings or name in _OLD_FLAGS or value in (None, action.default):
            continue
        option = action.option_strings[-1]
        values = value if isinstance(value, list) else [value]
        words += [option] if value is True else [word for item in values for word in (option, str(item))]
    return words
