"""Copy the path to an entry into a new session. Lines are copied byte for byte; the new session knows its origin."""

from __future__ import annotations

import argparse

from sessiontree.cli import output
from sessiontree.cli.parser import Options

SUMMARY = "copy a path into a new session"
EXAMPLES = """examples:
  sessiontree fork 019c2f3a
  sessiontree fork s.jsonl --at 8b01d2e4 --cwd ../other --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument(
        "--at", metavar="ENTRY", help="the entry the path ends with (default: where the session stands)"
    )
    parser.add_argument("--cwd", metavar="DIR", help="folder the new session works in (default: the same)")
    parser.add_argument("--path", metavar="FILE", help="where to put the file (default: in the home folder)")


def run(options: Options) -> None:
    import os

    from sessiontree.opening import open
    from sessiontree.stores.files import FileStore

    session = open(options.session, home=options.home)
    at = session.find_entry(options.at) if options.at else None
    cwd = os.path.abspath(options.cwd) if options.cwd else None
    forked = session.fork(at, cwd=cwd, store=FileStore(options.path) if options.path else None)
    if options.json:
        origin = {"session": session.id, "entry": at or session.leaf}
        output.print_json({"id": forked.id, "path": forked.location, "entries": len(forked), "forkedFrom": origin})
    else:
        output.print_lines([forked.location])
