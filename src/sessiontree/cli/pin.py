"""Protect a session from `clean`. Pins are stored by sessiontree; agents' files do not change."""

from __future__ import annotations

import argparse

from sessiontree.app.actions.tags import plan_pin
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_tags
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session
from sessiontree.clients import read_client_file

EXAMPLES = """examples:
  sessiontree pin 019c2f3a
  sessiontree pin 019c2f3a --off

Agents that delete their old sessions do not know about pins; make a copy with `sessiontree keep`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--off", action="store_true", help="remove the pin")
    add_root_option(parser)


def run(options: Options) -> None:
    session = open_session(options)
    mark = plan_pin(open_tags(session, options), session, pinned=not options.off).do().result
    if options.json:
        output.print_json({"session": mark.session, "path": mark.path, "pinned": mark.pinned, "tags": list(mark.tags)})
    else:
        stderr.print_line(f"{mark.path}: {'pinned' if mark.pinned else 'not pinned'}")
        client = session.dialect.client
        if mark.pinned and client.retention_days(mark.path, read_client_file) is not None:
            stderr.print_line(f"{client.name} may still delete this session; `sessiontree keep` makes a copy")
