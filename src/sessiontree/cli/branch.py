"""Let a session stand at another entry. Nothing is deleted: the next message starts a branch there."""

from __future__ import annotations

import argparse

from sessiontree.cli import output
from sessiontree.cli.parser import Options

SUMMARY = "stand at another entry"
EXAMPLES = """examples:
  sessiontree branch 019c2f3a 8b01d2e4
  sessiontree branch s.jsonl --root"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("entry", metavar="ENTRY", nargs="?", help="the entry to stand at")
    where.add_argument("--at", metavar="ENTRY", dest="at", help=argparse.SUPPRESS)
    where.add_argument("--root", action="store_true", help="stand before the first message, to start from nothing")
    parser.add_argument("--before", action="store_true", help="stand at the entry's parent, to say it differently")


def run(options: Options) -> None:
    from sessiontree.opening import open

    session = open(options.session, home=options.home)
    to = None if options.root else session.find_entry(options.entry or options.at)
    if to is not None and options.before:
        to = session.parent(to)
    session.move(to)
    session.close()
    if options.json:
        output.print_json({"session": session.id, "leaf": session.leaf})
    else:
        output.print_lines([session.leaf or "(before the first entry)"])
