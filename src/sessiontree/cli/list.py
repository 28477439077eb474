"""List the sessions of this project, or with --all of every project, of all agents on this machine.

Before the title stands ! for a damaged session, - for one in which nothing was said, ? for a draft. A number with ~ is
an estimate from the ends of a large file. Sub-agents stand under the session that started them, and with --tree forks
under the one they came from.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.library_options import (
    add_filter_options,
    add_root_option,
    open_library,
    parse_since,
    requested_project,
)
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError
from sessiontree.library.threads import Threaded, with_subagents
from sessiontree.views.listing import describe_thread, draw_listing, short_ids, totals

if TYPE_CHECKING:
    from sessiontree.library.library import Library
    from sessiontree.library.summary import Summary

EXAMPLES = """examples:
  sessiontree list --since 7d
  sessiontree list --all --agent claude --sort cost --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_filter_options(parser, since="only sessions active since: 90m, 12h, 7d, 2w, or 2026-11-01")
    parser.add_argument("--named", action="store_true", help="only sessions that were given a name")
    parser.add_argument(
        "--sort", choices=("recent", "size", "cost", "messages"), default="recent", help="default: recent"
    )
    parser.add_argument("--tree", action="store_true", help="forks under the session they came from")
    parser.add_argument("--limit", metavar="N", type=int, help="at most N sessions")
    add_root_option(parser)


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


def _arranged(library: Library, listed: Sequence[Summary], options: Options) -> list[Threaded]:
    """Sub-agents under the sessions that are listed, and with --tree forks under their origin."""
    paths = {one.path for one in listed}
    subagents = [one for one in library.everything() if one.kind == "subagent" and one.parent in paths]
    subagents.sort(key=lambda one: one.created or one.modified)
    return library.thread([*listed, *subagents]) if options.tree else with_subagents(listed, subagents)


def _print(library: Library, members: Sequence[Threaded], *, with_project: bool) -> None:
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


def _talk(library: Library, members: Sequence[Threaded], hidden: int, project: str | None, start: float) -> None:
    sessions = sum(member.summary.kind == "session" for member in members)
    if not sessions:
        where = "" if project is None else f" of {project} ({len(library.sessions())} elsewhere: --all)"
        stderr.print_line(
            f"no sessions{where} fit; {library.scan.found} files were found in {len(library.roots)} folders"
        )
    elif sys.stdout.isatty():
        took = 1000 * (time.perf_counter() - start)
        more = f", {hidden} more with a higher --limit" if hidden else ""
        stderr.print_line(
            f"{sessions} sessions{more} · {library.scan.read} of {library.scan.found} files read · {took:.0f} ms"
        )


def _described(library: Library, members: Sequence[Threaded], project: str | None, start: float) -> dict[str, Any]:
    scan = library.scan
    return {
        "project": project,
        "sessions": [describe_thread(member) for member in members],
        "totals": totals([member.summary for member in members]),
        "scan": {"files": scan.found, "read": scan.read, "bytesRead": scan.bytes_read},
        "timings": {"scanMs": round(1000 * scan.seconds, 1), "totalMs": round(1000 * (time.perf_counter() - start), 1)},
    }
