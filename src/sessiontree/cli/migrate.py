"""Upgrade a session file to the current version of its format. The file is replaced atomically; a backup is kept."""

from __future__ import annotations

import argparse

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session

EXAMPLES = """examples:
  sessiontree migrate old.jsonl
  sessiontree migrate old.jsonl --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")


def run(options: Options) -> None:
    session = open_session(options)
    backup = session.migrate()
    if options.json:
        output.print_json({"session": session.id, "version": session.header.version, "backup": backup})
    elif backup is None:
        stderr.print_line(f"{session.location}: already the current version")
    else:
        output.print_value(backup)
