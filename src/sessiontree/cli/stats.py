"""Show the usage of this project's sessions; with --all, of every project.

Counts requests, tokens (input, output, cached), cost where the session records it, tool calls, their error rate, and
the files they touched most. A response that several forks contain counts once; sub-agents are included. Days are in
local time.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sessiontree.cli import output, stderr
from sessiontree.cli.library_options import (
    add_filter_options,
    add_root_option,
    known_agent,
    open_library,
    parse_since,
    requested_project,
    scan_progress,
)
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError
from sessiontree.library.aggregate import Statistics, build_statistics, select_sessions
from sessiontree.views.statistics import csv_rows, describe_statistics, draw_files, draw_statistics
from sessiontree.views.text import plural

EXAMPLES = """examples:
  sessiontree stats --since 7d
  sessiontree stats --all --by model --csv"""

_MOST_GAPS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by", choices=("day", "model", "project", "agent", "session"), default="day", help="group by (default: day)"
    )
    add_filter_options(parser, since="only activity since then: 90m, 12h, 7d, 2w, or 2026-11-01")
    parser.add_argument("--csv", action="store_true", help="print the rows as CSV")
    add_root_option(parser)


def run(options: Options) -> None:
    if options.json and options.csv:
        raise UsageError("--json and --csv cannot be used together")
    since = None if options.since is None else parse_since(options.since)
    project = requested_project(options)
    with open_library(options) as library:
        agent = known_agent(library, options.agent)
        sessions = select_sessions(library, agent=agent, project=project, since=since)
        found = build_statistics(library, sessions, by=options.by, since=since, progress=scan_progress())
        if options.json:
            output.print_json(_to_json(found, project, options.since))
            return
        _print(found, project, as_csv=options.csv)
        elsewhere = 0 if found.groups else len(select_sessions(library, agent=agent, since=since)) - len(sessions)
        _print_notes(found, project, elsewhere)


def _print(found: Statistics, project: str | None, *, as_csv: bool) -> None:
    if as_csv:
        output.print_bytes([csv_rows(found).encode("utf-8", "replace")])
        return
    if not found.groups:
        return
    width, blocks = output.width(), output.can_print("█")
    manner: dict[str, Any] = {"paint": output.cyan, "quiet": output.dim, "with_blocks": blocks}
    output.print_lines(draw_statistics(found, width, **manner))
    if found.files:
        output.print_lines(["", *draw_files(found.files, width, project, **manner)])


def _print_notes(found: Statistics, project: str | None, others: int) -> None:
    if not found.groups:
        if project is None:
            stderr.print_line("no usage recorded in any matching session")
        else:
            elsewhere = f"; {plural(others, 'session')} in other projects (use --all)" if others else ""
            stderr.print_line(f"no usage recorded for {project}{elsewhere}")
    for gap in found.gaps[:_MOST_GAPS]:
        if gap.damage is None:
            stderr.print_line(f"sessiontree: {gap.path}: not counted: {gap.reason}")
        else:
            first = gap.damage
            stderr.print_line(
                f"sessiontree: {gap.path}:{first.line} byte {first.start}: {first.kind}: only the readable part "
                f"is counted (damaged: {first.pieces}; run `sessiontree doctor`)"
            )
    if len(found.gaps) > _MOST_GAPS:
        stderr.print_line(
            f"sessiontree: and {plural(len(found.gaps) - _MOST_GAPS, 'more damaged session')}; --json lists all"
        )
    if found.repeated and sys.stdout.isatty():
        stderr.print_line(f"{plural(found.repeated, 'response')} in several sessions (forks) counted once")


def _to_json(found: Statistics, project: str | None, since: str | None) -> dict[str, Any]:
    scan = {"files": found.read, "bytesRead": found.bytes_read}
    return {"project": project, "since": since, **describe_statistics(found), "scan": scan}
