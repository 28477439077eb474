"""Copy a branch into a new session, for the same agent or another one.

Forking at a prompt copies the messages before it and prints the prompt for editing; forking at the first prompt gives
an empty session. The new session records its origin in its client's own way.
"""

from __future__ import annotations

import argparse
import os

from sessiontree.app.actions.convert import check_target
from sessiontree.app.actions.fork import plan_fork
from sessiontree.cli import output, stderr
from sessiontree.cli.convert import render_report
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session, print_next_command, remember_session
from sessiontree.core.ids import session_word
from sessiontree.stores.file import FileStore
from sessiontree.views.text import clean

EXAMPLES = """examples:
  sessiontree fork 019c2f3a
  sessiontree fork s.jsonl --at 8b01d2e4 --no-before --to claude --cwd ../other"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--at", metavar="ENTRY", help="the entry to fork at (default: the current entry)")
    parser.add_argument(
        "--before",
        action=argparse.BooleanOptionalAction,
        help="copy only the entries before it (the default for prompts)",
    )
    parser.add_argument(
        "--to", metavar="DIALECT", help="such as claude, opencode or native (default: the same as SESSION)"
    )
    parser.add_argument("--cwd", metavar="DIR", help="working folder of the new session (default: the same)")
    parser.add_argument("--path", metavar="FILE", help="path of the new file (default: where its client looks)")


def run(options: Options) -> None:
    session = open_session(options)
    plan = plan_fork(
        session,
        session.find_entry(options.at) if options.at else None,
        before=options.before,
        to=check_target(options.to) if options.to else None,
        cwd=os.path.abspath(options.cwd) if options.cwd else None,
        store=FileStore(options.path) if options.path else None,
    )
    forked = plan.do().result
    remember_session(forked.session.location, forked.session.cwd, options)
    if options.json:
        output.print_json(
            {
                "id": forked.session.id,
                "path": forked.session.location,
                "entries": len(forked.session),
                "forkedFrom": {"session": session.id, "entry": forked.at},
                "prompt": forked.prompt,
                "report": forked.report.as_json() if forked.report else None,
            }
        )
        return
    output.print_lines([clean(forked.session.location)])
    if forked.report is not None:
        for line in render_report(forked.report):
            stderr.print_line(line)
    if forked.prompt:
        stderr.print_line("prompt at the fork, for editing:")
        for line in forked.prompt.splitlines():
            stderr.print_line(line)
    made = forked.session
    print_next_command(session_word("" if options.path else made.id, made.location), made.dialect.name, made.cwd)
