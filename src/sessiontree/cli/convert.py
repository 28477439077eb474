"""Convert a session to another agent's format, so the agent can resume it with real tool calls and results.

Without --out or --install, only the plan is shown: the target path, and what is carried over, mapped, changed and
dropped.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sessiontree.app.actions.convert import check_target, conversion_fields, plan_convert
from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_read_options, open_session, read_options_of
from sessiontree.conversion.copies import CopyFile
from sessiontree.conversion.install import Plan, Request
from sessiontree.errors import NotFoundError
from sessiontree.session.session import Session
from sessiontree.stores.repositories import home_folder, open_repository
from sessiontree.views.text import clean

if TYPE_CHECKING:
    from sessiontree.conversion.convert import Report

EXAMPLES = """examples:
  sessiontree convert ~/.pi/agent/sessions/--work--/x.jsonl --to claude --install
  sessiontree convert s.jsonl --to pi --branch all --out s-pi.jsonl --strict

TARGET is claude, codex, pi, omp, neovate, opencode, gemini, qwen, native or a plugin's format. Data that the target
cannot express is kept as metadata that its client ignores, and is restored when the session is converted back."""

_KINDS = {"dropped": "dropped", "changed": "changed", "mapped": "mapped", "aside": "hidden"}
"""The words for the kinds of notes; `--json` keeps the kinds themselves."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--to", metavar="TARGET", required=True, help="the format to convert to")
    parser.add_argument(
        "--branch",
        choices=("active", "all"),
        default="active",
        help="convert the active branch (default), or all branches",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="FILE", help="write to this new file")
    where.add_argument(
        "--install",
        action="store_true",
        help="write it where the target agent finds it, or run that agent's import command",
    )
    parser.add_argument("--cwd", metavar="DIR", help="working folder of the new session (default: the same)")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    parser.add_argument("--strict", action="store_true", help="fail if anything would be dropped")
    parser.add_argument(
        "--from", choices=("atif",), dest="read_as", help="SESSION is a file in this format: atif, a trajectory"
    )
    add_read_options(parser)


def run(options: Options) -> None:
    session = (
        open_session(options, read_options=read_options_of(options))
        if options.read_as is None
        else _read_trajectory(options)
    )
    request = Request(
        check_target(options.to), branch=options.branch, cwd=options.cwd, out=options.out, strict=options.strict
    )
    # A trajectory is a file for exchange: no session that a list could show.
    copies = None if options.read_as else CopyFile(open_repository(home_folder(options.home)).documents)
    plan = plan_convert(session, request, copies)
    writes = (options.out or options.install) and not options.dry_run
    if writes:
        plan.do()
    if options.json:
        output.print_json({"session": session.id, "written": bool(writes), **conversion_fields(plan.expected)})
        return
    output.print_lines(render_plan(plan.expected))
    if not writes:
        stderr.print_line(f"nothing was written; to write it: {_command(options)}")


def _read_trajectory(options: Options) -> Session:
    """Read the trajectory that SESSION names, and report what is left out."""
    from sessiontree.conversion.trajectory import read_trajectory

    try:
        with open(options.session, "rb") as file:
            data = file.read()
    except OSError as error:
        raise NotFoundError(f"{options.session}: {error.strerror or error}") from None
    found = read_trajectory(data, options.session, os.path.abspath(options.cwd or os.curdir))
    for note in found.notes:
        stderr.print_line(f"sessiontree: {note}")
    return found.session


def render_plan(plan: Plan) -> Iterator[str]:
    yield clean(f"target   {plan.path}  ({plan.size:,} bytes)")
    if plan.related_folder:
        yield clean(f"folder   {plan.related_folder[1]}")
    if plan.install:
        yield clean(f"import   {shlex.join(plan.install)}")
    if plan.resume:
        yield clean(f"resume   cd {shlex.quote(plan.cwd)} && {shlex.join(plan.resume)}")
    yield from render_report(plan.report)


def render_report(report: Report) -> Iterator[str]:
    """What was carried over, mapped, changed and dropped; the most important last, next to the prompt."""
    carried = ", ".join(f"{count:,} {what}" for what, count in sorted(report.carried.items()))
    yield clean(f"carried  {carried or 'nothing'}")
    for line in reversed(report.notes):
        yield clean(f"{_KINDS[line.kind]:<8} {line.what} ({line.count:,}): {line.why}")


def _command(options: Options) -> str:
    parts = ["sessiontree", "convert", options.session, "--to", options.to]
    parts += ["--from", options.read_as] if options.read_as else []
    parts += ["--branch", "all"] if options.branch == "all" else []
    parts += ["--cwd", options.cwd] if options.cwd else []
    parts += ["--out", options.out] if options.out else ["--install"]
    return shlex.join(parts)
