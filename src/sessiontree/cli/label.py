"""Label an entry, remove its label, or without ENTRY list all labels."""

from __future__ import annotations

import argparse

from sessiontree.app.actions.names import plan_label
from sessiontree.cli import output
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session
from sessiontree.errors import UsageError
from sessiontree.views.text import one_line

EXAMPLES = """examples:
  sessiontree label 019c2f3a 8b01d2e4 "tests pass"
  sessiontree label 019c2f3a 8b01d2e4 --clear"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("entry", metavar="ENTRY", nargs="?", help="the entry to label")
    parser.add_argument("text", metavar="TEXT", nargs="?", help="the label")
    parser.add_argument("--clear", action="store_true", help="remove the label")


def run(options: Options) -> None:
    session = open_session(options)
    if options.entry is not None:
        if not options.text and not options.clear:
            raise UsageError("label: TEXT is missing (or --clear to remove the label)")
        plan_label(session, session.find_entry(options.entry), None if options.clear else options.text).do()
        session.flush()
    if options.json:
        output.print_json({"session": session.id, "labels": session.labels})
    else:
        output.print_lines(f"{one_line(id)}  {one_line(label)}" for id, label in session.labels.items())
