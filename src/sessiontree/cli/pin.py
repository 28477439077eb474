"""Protect a session from `clean`. Pins are stored by sessiontree; agents' files do not change."""

from __future__ import annotations

import argparse
import os

import msgspec

from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options

EXAMPLES = """examples:
  sessiontree pin 019c2f3a
  sessiontree pin 019c2f3a --off

Agents that delete their old sessions do not know about pins; make a copy with `sessiontree keep`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--off", action="store_true", help="remove the pin")
    add_root_option(parser)


def run(options: Options) -> None:
    home = open_home(options)
    session = home.open(options.session)
    path = os.path.realpath(session.location)
    mark = home.tags.change(session.id, path, lambda mark: msgspec.structs.replace(mark, pinned=not options.off))
    if options.json:
        output.print_json({"session": session.id, "path": path, "pinned": mark.pinned, "tags": list(mark.tags)})
    else:
        stderr.print_line(f"{path}: {'pinned' if mark.pinned else 'not pinned'}")
        if mark.pinned and session.dialect.name == "claude":
            stderr.print_line("Claude Code may still delete this session; `sessiontree keep` makes a copy")
