"""Copy the history of an entry into a new session, of the same agent or of another one.

Choosing a prompt means the history before it, and its text is printed for editing; choosing the first one starts from
nothing. The new session says where it came from in its owner's way.
"""

from __future__ import annotations

import argparse
import os

from sessiontree.cli import output, stderr
from sessiontree.cli.convert import check_target, report_lines
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session, remember_session
from sessiontree.conversion.fork import fork
from sessiontree.stores.file import FileStore
from sessiontree.views.text import clean

EXAMPLES = """examples:
  sessiontree fork 019c2f3a
  sessiontree fork s.jsonl --at 8b01d2e4 --no-before --to claude --cwd ../other"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--at", metavar="ENTRY", help="the entry to fork at (default: where the session stands)")
    parser.add_argument(
        "--before", action=argparse.BooleanOptionalAction, help="up to the entry before it (default: for prompts)"
    )
    parser.add_argument("--to", metavar="DIALECT", help="claude, pi, omp, neovate or native (default: the same)")
    parser.add_argument("--cwd", metavar="DIR", help="folder the new session works in (default: the same)")
    parser.add_argument("--path", metavar="FILE", help="where to put the file (default: where its owner looks)")


def run(options: Options) -> None:
    session = open_session(options)
    forked = fork(
        session,
        session.find_entry(options.at) if options.at else None,
        before=options.before,
        to=check_target(options.to) if options.to else None,
        cwd=os.path.abspath(options.cwd) if options.cwd else None,
        store=FileStore(options.path) if options.path else None,
    )
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
        for line in report_lines(forked.report):
            stderr.print_line(line)
    if forked.prompt:
        stderr.print_line("the prompt it was taken before, for editing:")
        for line in forked.prompt.splitlines():
            stderr.print_line(line)
