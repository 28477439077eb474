"""Write a session as one of another agent, so that the real program resumes it with true tool calls and results.

Without --out or --install, only the plan is shown: where it would go, what is carried, mapped, changed and dropped.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options, add_read_options, open_for_reading

if TYPE_CHECKING:
    from sessiontree.conversion.install import Plan
    from sessiontree.conversion.report import Report

SUMMARY = "write a session as one of another agent"
EXAMPLES = """examples:
  sessiontree convert ~/.pi/agent/sessions/--work--/x.jsonl --to claude --install
  sessiontree convert s.jsonl --to pi --branch all --out s-pi.jsonl --strict

TARGET is claude, pi, omp, neovate or native. What a target has no place for rides along as metadata its program does
not look at, and comes back when the session is converted back."""

_KINDS = {"dropped": "dropped", "changed": "changed", "mapped": "mapped", "aside": "aside"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--to", metavar="TARGET", required=True, help="the dialect to write")
    parser.add_argument(
        "--branch", choices=("active", "all"), default="active", help="the active branch, or all of them"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="FILE", help="write to this file, which must not be there yet")
    where.add_argument("--install", action="store_true", help="put it where the target program looks")
    parser.add_argument("--cwd", metavar="DIR", help="the folder the new session works in (default: the same)")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    parser.add_argument("--strict", action="store_true", help="refuse when anything would be dropped")
    add_read_options(parser)


def run(options: Options) -> None:
    from sessiontree.conversion.install import Request, carry_out, make_plan

    session = open_for_reading(options)
    request = Request(
        check_target(options.to), branch=options.branch, cwd=options.cwd, out=options.out, strict=options.strict
    )
    plan = make_plan(session, request)
    writes = (options.out or options.install) and not options.dry_run
    if writes:
        carry_out(session, plan)
    if options.json:
        output.print_json({"session": session.id, "written": bool(writes), **described(plan)})
        return
    output.print_lines(shown(plan))
    if not writes:
        stderr.print_line(f"nothing was written; this does it: {_command(options)}")


def check_target(name: str) -> str:
    """A dialect by its name; a helpful error for anything else."""
    from sessiontree import plugins
    from sessiontree.errors import UsageError

    known = plugins.names("dialects")
    if name not in known:
        raise UsageError(f"{name!r} is no dialect; known are {', '.join(known)}")
    return name


def described(plan: Plan) -> dict[str, Any]:
    """A plan as JSON."""
    return {
        "path": plan.path,
        "size": plan.size,
        "cwd": plan.cwd,
        "resume": list(plan.resume),
        "beside": plan.related_folder[1] if plan.related_folder else None,
        "report": plan.report.as_json(),
    }


def shown(plan: Plan) -> Iterator[str]:
    """A plan as text."""
    from sessiontree.views.text import clean

    yield clean(f"target   {plan.path}  ({plan.size:,} bytes)")
    if plan.related_folder:
        yield clean(f"beside   {plan.related_folder[1]}")
    if plan.resume:
        yield clean(f"resume   cd {shlex.quote(plan.cwd)} && {shlex.join(plan.resume)}")
    yield from report_lines(plan.report)


def report_lines(report: Report) -> Iterator[str]:
    """What became of everything, the worst last, where it is read."""
    from sessiontree.views.text import clean

    carried = ", ".join(f"{count:,} {what}" for what, count in sorted(report.carried.items()))
    yield clean(f"carried  {carried or 'nothing'}")
    for line in reversed(report.notes):
        yield clean(f"{_KINDS[line.kind]:<8} {line.count:,} {line.what}: {line.why}")


def _command(options: Options) -> str:
    parts = ["sessiontree", "convert", options.session, "--to", options.to]
    parts += ["--branch", "all"] if options.branch == "all" else []
    parts += ["--cwd", options.cwd] if options.cwd else []
    parts += ["--out", options.out] if options.out else ["--install"]
    return shlex.join(parts)
