"""Let several branches grow from one entry at the same time, compare them, and keep, merge or drop them.

Each lane has its own prompt or model and, in a git repository, its own working copy of the project as it is now,
uncommitted files included. --prompts FILE has one prompt on each line, or blocks between lines of three hyphens. Files
in a lane's own working copy may be changed without asking; commands are asked about one at a time, and denied where
nobody can be asked. Ctrl-C asks which lane to stop; twice stops all. What ended without you goes on with --resume, what
failed, was stopped or reached a limit with --again LANE, and all that reached a limit with --resume and a new --budget.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.explore_common import copies_of, plain, print_results, told_of
from sessiontree.cli.lane_options import Once, check_options
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session, remember_session
from sessiontree.cli.summaries import add_summary_options, build_summary_request
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from sessiontree.explore.compare import HasLanes
    from sessiontree.explore.decisions import Decided
    from sessiontree.explore.lane import Lane
    from sessiontree.explore.state import ExplorationState
    from sessiontree.explore.worktrees import Copies
    from sessiontree.session.session import Session

JSON = "print one JSON object; a new or resumed exploration prints each event as one, and the results as the last"
SUMMARY = "let several branches grow at once, and choose"
EXAMPLES = """examples:
  sessiontree explore 019c2f3a "make the parser faster" --n 3 --check "pytest -q" --budget 200k --budget 10m
  sessiontree explore 019c2f3a --merge 1 --merge 3

`--model demo` shows everything without a key. Exit codes: 0 when at least one lane came to its end, 1 when none did,
130 when you stopped them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("prompt", metavar="TEXT", nargs="?", help="what all lanes are told")
    begin = parser.add_argument_group("a new exploration")
    what = begin.add_mutually_exclusive_group()
    what.add_argument("--prompts", metavar="FILE", help="a lane for each prompt in this file; - is standard input")
    what.add_argument("--n", metavar="N", type=int, help="how many lanes (default: one for each model)")
    begin.add_argument("--model", metavar="NAME", action="append", default=[], help="provider:name; several take turns")
    begin.add_argument("--at", metavar="ENTRY", help="where they begin (default: where the session stands)")
    begin.add_argument(
        "--budget",
        metavar="N",
        action="append",
        default=[],
        help="for all together: 200k tokens, $2, or 10m; repeatable. With --resume, goes on with lanes at a limit",
    )
    begin.add_argument("--parallel", metavar="N", type=int, help="how many work at the same time (default: 4)")
    begin.add_argument("--check", metavar="COMMAND", help="run at the end of each lane, to compare them")
    begin.add_argument("--fork-on", metavar="COMMAND", help="fork a lane after whose end this command fails")
    begin.add_argument("--fork-on-denied", action="store_true", help="fork a lane of which something was denied")
    begin.add_argument(
        "--fork-on-repeats", metavar="N", type=int, help="fork a lane with so many equal errors in a row"
    )
    begin.add_argument("--fork-below", metavar="N", type=float, help="fork a lane that a judge trusts less, 0 to 1")
    begin.add_argument("--max-depth", metavar="N", type=int, help="levels of forks: 2 forks the forks too (default: 2)")
    begin.add_argument("--max-lanes", metavar="N", type=int, help="how many there may ever be (default: 16)")
    begin.add_argument(
        "--approval",
        metavar="MODE",
        choices=("default", "autoEdit", "yolo"),
        help="what is asked: default, autoEdit (not files of a lane's own; the default), yolo (nor commands)",
    )
    begin.add_argument("--no-worktrees", action="store_true", help="all lanes work in the same folder")
    parser.add_argument("--keep-worktrees", action="store_true", help="leave the folders of lanes there")
    there = parser.add_argument_group("an exploration that is there").add_mutually_exclusive_group()
    there.add_argument("--resume", metavar="ID", nargs="?", const="", action=Once, help="go on where each lane stood")
    there.add_argument(
        "--again", metavar="LANE", action="append", help="go on with a lane that failed, was stopped, reached a limit"
    )
    there.add_argument("--compare", metavar="ID", nargs="?", const="", action=Once, help="what came of the lanes")
    there.add_argument("--keep", metavar="LANE", action=Once, help="stand on a lane, with its files in the project")
    there.add_argument("--merge", metavar="LANE", action="append", help="bring lanes together; repeatable")
    there.add_argument("--drop", metavar="LANE", action="append", help="give lanes up; repeatable")
    there.add_argument("--diff", metavar="LANE", action=Once, help="the files of a lane as a diff, which git can apply")
    there.add_argument("--list", action="store_true", dest="lists", help="the explorations of a session")
    parser.add_argument("--run", metavar="ID", dest="which", help="which exploration is meant (default: the last)")
    parser.add_argument("--no-files", action="store_true", help="with --keep: leave the files of the project alone")
    add_summary_options(parser)


def run(options: Options) -> int:
    check_options(options)
    session = open_session(options)
    is_about_one = [options.compare, options.keep, options.merge, options.drop, options.diff]
    if options.lists:
        return _list(session, options)
    if any(one is not None for one in is_about_one):
        return _about(session, options)
    import asyncio

    from sessiontree.cli.explore_run import explore_lanes

    return asyncio.run(explore_lanes(session, options))


# An exploration that is there


def _list(session: Session, options: Options) -> int:
    from sessiontree.cli.explore_cleanup import say_leftovers
    from sessiontree.explore.state import explorations
    from sessiontree.views.text import one_line

    found = explorations(session)
    if options.json:
        told = [
            {"run": one.run, "entry": one.plan_id, "at": one.plan.at, "lanes": [_described(lane) for lane in one.lanes]}
            for one in found
        ]
        output.print_json({"session": session.id, "explorations": told})
    elif not found:
        stderr.print_line("no exploration in this session yet")
    else:
        for one in found:
            states = ", ".join(f"{lane.number} {_state(lane)}" for lane in one.lanes) or "no lane was made"
            output.print_lines([f"{one.run}  {one_line(session.entry(one.plan_id).timestamp)}  {states}"])
    for one in found:
        say_leftovers(session, one, options)
    return 0


def _state(lane: Lane) -> str:
    return f"{lane.state} ({lane.verdict.verdict})" if lane.verdict is not None else lane.state


def _described(lane: Lane) -> dict[str, Any]:
    return {
        "lane": lane.number,
        "name": lane.name,
        "model": lane.record.model,
        "state": lane.state,
        "verdict": None if lane.verdict is None else lane.verdict.verdict,
        "leaf": lane.leaf,
        "worktree": None if lane.copy is None else lane.copy.path,
    }


def _about(session: Session, options: Options) -> int:
    from sessiontree.cli.explore_cleanup import say_leftovers
    from sessiontree.explore import decisions
    from sessiontree.explore.compare import compare

    told = told_of(session, options.compare or options.which)
    copies = copies_of(session, options)
    keeps = options.keep_worktrees
    if options.compare is not None:
        print_results(session, told, compare(told, copies), options)
        say_leftovers(session, told, options)
        return 0
    if options.diff is not None:
        return _print_diff(session, told, copies, options)
    if options.keep is not None:
        decided = decisions.keep(session, told, options.keep, copies, apply=not options.no_files, keep_copies=keeps)
    elif options.merge is not None:
        decided = decisions.merge(
            session, told, options.merge, copies, ask=build_summary_request(session, options), keep_copies=keeps
        )
    else:
        decided = decisions.drop(session, told, options.drop, copies, keep_copies=keeps)
    session.close()
    remember_session(session.location, session.cwd, options)
    _print_decided(session, told, decided, options)
    return stderr.FAILED if decided.failed else 0


def _print_diff(session: Session, told: ExplorationState, copies: Copies, options: Options) -> int:
    from sessiontree.views.text import clean

    lane = told.lane(options.diff)
    if lane.copy is None:
        raise UsageError(f"lane {lane.number} had no working copy of its own, so no files of it can be told apart")
    if options.json:
        text = copies.diff(lane.copy)
        files = [plain(one) for one in copies.files(lane.copy)]
        output.print_json({"session": session.id, "run": told.run, "lane": lane.number, "files": files, "diff": text})
    elif sys.stdout.isatty():
        output.print_lines(clean(copies.diff(lane.copy)).splitlines())
    else:
        output.print_bytes([copies.patch(lane.copy)])
    return 0


def _print_decided(session: Session, told: HasLanes, decided: Decided, options: Options) -> None:
    from sessiontree.chat.lane_view import decided_lines

    if options.json:
        output.print_json({"session": session.id, "run": told.plan.run, **plain(decided)})
        return
    output.print_lines([decided.leaf or ""])
    for line in decided_lines(decided, output.width()):
        stderr.print_line(line)
