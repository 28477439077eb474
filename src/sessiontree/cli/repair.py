"""Repair a session so that its client loads the full history again. Without --in-place or --out, only show the plan."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_dialect_option, open_session
from sessiontree.repair import Plan, carry_out, plan_repair
from sessiontree.views.text import cut, one_line

if TYPE_CHECKING:
    from sessiontree.repair.repair import Change

EXAMPLES = """examples:
  sessiontree repair damaged.jsonl --dry-run
  sessiontree repair damaged.jsonl --in-place

--in-place writes a temporary file, fsyncs and renames it, and keeps a backup. Removed bytes are kept in a side-car
file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="NEW", help="write the repaired session to a new file")
    where.add_argument("--in-place", action="store_true", help="replace the file and keep a backup")
    where.add_argument("--dry-run", action="store_true", help="only show what would change (the default)")
    add_dialect_option(parser)


def run(options: Options) -> None:
    session = open_session(options)
    plan = plan_repair(session)
    written: dict[str, Any] = {"path": None, "sidecar": None, "backup": None}
    if options.in_place or options.out:
        path, sidecar, backup = carry_out(plan, session, options.out)
        written = {"path": None if plan.is_empty else path, "sidecar": sidecar, "backup": backup}
    if options.json:
        output.print_json({"session": session.id, "changes": [_to_json(change) for change in plan.changes], **written})
    elif plan.is_empty:
        stderr.print_line(f"{session.location}: nothing to repair")
    else:
        output.print_lines(_diff(plan))
        for name, value in written.items():
            if value:
                stderr.print_line(f"{name}: {value}")
        if not written["path"]:
            stderr.print_line("nothing was written; add --in-place or --out NEW")


def _to_json(change: Change) -> dict[str, Any]:
    return {
        "rule": change.rule,
        "line": change.line,
        "offset": change.start,
        "before": None if change.before is None else change.before.decode("utf-8", "replace"),
        "after": None if change.after is None else change.after.decode("utf-8", "replace"),
    }


def _diff(plan: Plan) -> Iterator[str]:
    width = output.width() - 2
    for change in plan.changes:
        yield f"@ line {change.line} byte {change.start}: {change.rule}"
        if change.before is not None:
            yield "- " + cut(one_line(change.before.decode("utf-8", "replace")), width)
        if change.after is not None:
            yield "+ " + cut(one_line(change.after.decode("utf-8", "replace")) or "(end of line)", width)
