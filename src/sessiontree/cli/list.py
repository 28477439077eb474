"""List the sessions of this project, or with --all of every project, of all agents on this machine.

Before the title stands ! for a damaged session, - for one in which nothing was said, ? for a draft. A number with ~ is
an estimate from the ends of a large file. Sub-agents stand under the session that started them, and with --tree forks
under the one they came from.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from sessiontree.library.library import Library, Progress
    from sessiontree.library.summary import Summary
    from sessiontree.library.threads import ThreadMember

SUMMARY = "list sessions"
EXAMPLES = """examples:
  sessiontree list --since 7d
  sessiontree list --all --agent claude --sort cost --json"""

_PROGRESS_AFTER = 0.3
_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "mo": 30 * 86_400, "y": 365 * 86_400}
_since = re.compile(r"(?P<number>\d{1,6})(?P<unit>m|h|d|w|mo|y)\Z")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_filter_options(parser, since="only sessions active since: 90m, 12h, 7d, 2w, or 2026-11-01")
    parser.add_argument("--named", action="store_true", help="only sessions that were given a name")
    parser.add_argument(
        "--sort", choices=("recent", "size", "cost", "messages"), default="recent", help="default: recent"
    )
    parser.add_argument("--tree", action="store_true", help="forks under the session they came from")
    parser.add_argument("--limit", metavar="N", type=int, help="at most N sessions")
    add_root_option(parser)


def add_filter_options(parser: argparse.ArgumentParser, *, since: str) -> None:
    """Arguments of commands that are about the sessions of this project, or of all."""
    parser.add_argument("--all", action="store_true", help="every project, not only this one")
    parser.add_argument("--agent", metavar="NAME", help="only sessions of this agent: claude, pi, omp, neovate, native")
    parser.add_argument("--project", metavar="DIR", help="the project of this folder instead of the current one")
    parser.add_argument("--since", metavar="AGE", help=since)


def add_root_option(parser: argparse.ArgumentParser) -> None:
    """Arguments of commands that look for sessions."""
    parser.add_argument(
        "--root",
        metavar="DIALECT=DIR",
        action="append",
        default=[],
        help="look for an agent's sessions in this folder instead of its own; may be given several times",
    )


def run(options: Options) -> None:
    start = time.perf_counter()
    with open_library(options) as library:
        project = requested_project(options)
        listed, hidden = _listed(library, options, project)
        members = _arranged(library, listed, options)
        if options.json:
            output.print_json(_described(library, members, project, start))
            return
        _print(library, members, with_project=options.all)
        _talk(library, members, hidden, project, start)


def requested_project(options: Options) -> str | None:
    """The folder of the project a command is about; None when it is about all."""
    return None if options.all else options.project or os.getcwd()


def open_library(options: Options) -> Library:
    """The library a command is about; says what it reads when that takes long."""
    from sessiontree.library.library import Library
    from sessiontree.library.roots import parse_roots

    if options.home is not None and not options.home:
        raise UsageError("--home needs a folder")
    chosen = parse_roots(getattr(options, "root", []))  # not every command that finds a session can be told where
    return Library(options.home, chosen, progress=scan_progress())


def scan_progress() -> Progress | None:
    """Says how far reading is, on a terminal, once it takes long."""
    if not sys.stderr.isatty():
        return None
    start = time.perf_counter()

    def show(done: int, of: int) -> None:
        if time.perf_counter() - start > _PROGRESS_AFTER and (done % 50 == 0 or done == of):
            text = "" if done == of else f"reading sessions: {done} of {of}"
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    return show


def _listed(library: Library, options: Options, project: str | None) -> tuple[list[Summary], int]:
    """What was asked for, and how many sessions --limit leaves out."""
    found = library.sessions(
        agent=options.agent,
        project=project,
        since=parse_since(options.since) if options.since else None,
        named=options.named,
        sort=options.sort,
    )
    if options.limit is None:
        return found, 0
    if options.limit < 0:
        raise UsageError(f"--limit {options.limit}: expected a number of sessions")
    return found[: options.limit], max(len(found) - options.limit, 0)


def _arranged(library: Library, listed: Sequence[Summary], options: Options) -> list[ThreadMember]:
    """Sub-agents under the sessions that are listed, and with --tree forks under their origin."""
    from sessiontree.library.threads import with_subagents

    paths = {one.path for one in listed}
    subagents = [one for one in library.everything() if one.kind == "subagent" and one.parent in paths]
    subagents.sort(key=lambda one: one.created or one.modified)
    return library.thread([*listed, *subagents]) if options.tree else with_subagents(listed, subagents)


def _print(library: Library, members: Sequence[ThreadMember], *, with_project: bool) -> None:
    from sessiontree.views.listing import draw_listing, short_ids

    if not members:
        return
    rows = draw_listing(
        members, output.width(), time.time(), short_ids(library.everything()), with_project=with_project
    )
    output.print_lines([output.dim(next(rows))])
    if not output.use_color():
        output.print_lines(["\n".join(rows)])  # at once: many lines one by one take longer than reading the cache
        return
    for member, row in zip(members, rows, strict=True):
        one = member.summary
        quiet = one.health in ("empty", "draft") or one.kind == "subagent"
        if one.health == "damaged":
            row = f"\x1b[31m{row[:1]}\x1b[0m{row[1:]}"
        output.print_lines([output.dim(row) if quiet else row])


def _talk(library: Library, members: Sequence[ThreadMember], hidden: int, project: str | None, start: float) -> None:
    sessions = sum(member.summary.kind == "session" for member in members)
    if not sessions:
        if project is None:
            stderr.print_line(
                f"no matching sessions; searched {library.scan.found} files in {len(library.roots)} folders"
            )
        else:
            stderr.print_line(f"no sessions for {project}; {len(library.sessions())} in other projects (use --all)")
    elif sys.stdout.isatty():
        took = 1000 * (time.perf_counter() - start)
        more = f", {hidden} more with a higher --limit" if hidden else ""
        stderr.print_line(
            f"{sessions} sessions{more} · {library.scan.read} of {library.scan.found} files read · {took:.0f} ms"
        )


def _described(library: Library, members: Sequence[ThreadMember], project: str | None, start: float) -> dict[str, Any]:
    from sessiontree.views.listing import describe_thread, totals

    scan = library.scan
    return {
        "project": project,
        "sessions": [describe_thread(member) for member in members],
        "totals": totals([member.summary for member in members]),
        "scan": {"files": scan.found, "read": scan.read, "bytesRead": scan.bytes_read},
        "timings": {"scanMs": round(1000 * scan.seconds, 1), "totalMs": round(1000 * (time.perf_counter() - start), 1)},
    }


def parse_since(text: str) -> int:
    """An age or a date as milliseconds since 1970."""
    from sessiontree.core.context import milliseconds

    found = _since.match(text)
    if found is not None:
        return round(1000 * (time.time() - int(found["number"]) * _UNITS[found["unit"]]))
    at = milliseconds(text)
    if at is None:
        raise UsageError(f"--since {text!r}: expected an age like 7d (m, h, d, w, mo, y) or a date like 2026-11-01")
    return at
