"""Repair a session so that its client loads the full history again. Without --in-place or --out, only show the plan."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sessiontree.app.actions.repair import Repaired, plan_repair_of
from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_dialect_option, open_session
from sessiontree.views.text import cut, one_line

if TYPE_CHECKING:
    from sessiontree.repair import Plan

EXAMPLES = """examples:
  sessiontree repair damaged.jsonl --dry-run
  sessiontree repair damaged.jsonl --in-place

--in-place writes a temporary file, fsyncs and renames it, and keeps a backup. Removed bytes are kept in a sidecar
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
    action = plan_repair_of(session, options.out)
    repaired = action.do().result if options.in_place or options.out else Repaired()
    written = {"path": repaired.path, "sidecar": repaired.sidecar, "backup": repaired.backup}
    plan = action.expected
    if options.json:
        output.print_json({"session": session.id, **action.describe().data, **written})
    elif plan.is_empty:
        stderr.print_line(f"{session.location}: nothing to repair")
    else:
        output.print_lines(_diff(plan))
        for name, value in written.items():
            if value:
                stderr.print_line(f"{name}: {value}")
        if not written["path"]:
            stderr.print_line("nothing was written; add --in-place or --out NEW")


def _diff(plan: Plan) -> Iterator[str]:
    width = output.width() - 2
    for change in plan.changes:
        yield f"@ line {change.line} byte {change.start}: {change.rule}"
        if change.before is not None:
            yield "- " + cut(one_line(change.before.decode("utf-8", "replace")), width)
        if change.after is not None:
            yield "+ " + cut(one_line(change.after.decode("utf-8", "replace")) or "(end of line)", width)
