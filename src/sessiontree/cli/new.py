"""Create a session and print its path."""

from __future__ import annotations

import argparse

from sessiontree.cli import output
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import remember_session
from sessiontree.session.open import create

EXAMPLES = """examples:
  sessiontree new
  sessiontree new --cwd ~/src/app --name "parser rewrite" --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cwd", metavar="DIR", help="working folder of the session (default: the current folder)")
    parser.add_argument("--path", metavar="FILE", help="path of the new file (default: in the home folder)")
    parser.add_argument("--id", help="session id (default: a new UUIDv7)")
    parser.add_argument("--name", help="session name")


def run(options: Options) -> None:
    session = create(options.cwd, path=options.path, id=options.id, home=options.home, appear="now")
    if options.name:
        session.rename(options.name)
    session.flush()
    remember_session(session.location, session.cwd, options)
    if options.json:
        output.print_json({"id": session.id, "path": session.location, "cwd": session.cwd, "name": session.name})
    else:
        output.print_lines([session.location])
