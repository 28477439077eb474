"""Rename a session the way its client does, so the agent also shows the new name. An empty name removes it."""

from __future__ import annotations

import argparse

from sessiontree.app.actions.names import plan_rename
from sessiontree.cli import output
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session
from sessiontree.views.text import one_line

EXAMPLES = """examples:
  sessiontree rename 019c2f3a "parser rewrite"
  sessiontree rename ~/.claude/projects/-work/7053107e.jsonl "bug 41"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("name", metavar="NAME", help="the new name")
    add_root_option(parser)


def run(options: Options) -> None:
    session = open_session(options)
    plan_rename(session, options.name).do()
    session.flush()
    if options.json:
        output.print_json({"session": session.id, "path": session.location, "name": session.name})
    else:
        output.print_lines([one_line(session.name or "")])
