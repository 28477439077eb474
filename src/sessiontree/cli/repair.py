"""Mend a session so that its own program loads the full history again. Without --in-place or --out, only the plan."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session
from sessiontree.repair import Plan, carry_out, plan_repair
from sessiontree.views.text import cut, one_line

if TYPE_CHECKING:
    from sessiontree.repair.repair import Change

EXAMPLES = """examples:
  sessiontree repair damaged.jsonl --dry-run
  sessiontree repair damaged.jsonl --in-place

In place means: written beside, fsynced, renamed, with a backup. Bytes that have to leave the file go to a side-car."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="NEW", help="write the mended session to a new file")
    where.add_argument("--in-place", action="store_true", help="replace the file, keeping a backup")
    where.add_argument("--dry-run", action="store_true", help="only show what would change (the default)")
    parser.add_argument("--dialect", metavar="NAME", help="read the file as this dialect (default: by its content)")


def run(options: Options) -> None:
    session = open_session(options)
    plan = plan_repair(session)
    written: dict[str, Any] = {"path": None, "sidecar": None, "backup": None}
    if options.in_place or options.out:
        path, sidecar, backup = carry_out(plan, session, options.out)
        written = {"path": None if plan.is_empty else path, "sidecar": sidecar, "backup": backup}
    if options.json:
        output.print_json(
            {"session": session.id, "changes": [_described(change) for change in plan.changes], **written}
        )
    elif plan.is_empty:
        stderr.print_line(f"{session.location}: there is nothing to mend; it was left alone")
    else:
        output.print_lines(_diff(plan))
        for name, value in written.items():
            if value:
                stderr.print_line(f"{name}: {value}")
        if not written["path"]:
            stderr.print_line("nothing was written; --in-place or --out NEW does")


def _described(change: Change) -> dict[str, Any]:
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
