"""Add tags to a session, or show its tags. Tags are stored by sessiontree; agents' files do not change."""

from __future__ import annotations

import argparse
import os

import msgspec

from sessiontree.archive.tags import SessionTags
from sessiontree.cli import output
from sessiontree.cli.archive_home import open_home
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError
from sessiontree.views.text import clean

EXAMPLES = """examples:
  sessiontree tag 019c2f3a work urgent
  sessiontree tag 019c2f3a --remove urgent
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("tags", metavar="TAG", nargs="*", help="tags to add (default: show the tags)")
    parser.add_argument("--remove", action="store_true", help="remove these tags")
    add_root_option(parser)


def run(options: Options) -> None:
    home = open_home(options)
    session = home.open(options.session)
    given = [" ".join(tag.split()) for tag in options.tags]
    if not all(given):
        raise UsageError("a tag cannot be empty")

    def change(mark: SessionTags) -> SessionTags:
        kept = [tag for tag in mark.tags if tag not in given]
        return msgspec.structs.replace(mark, tags=tuple(kept if options.remove else [*kept, *dict.fromkeys(given)]))

    path = os.path.realpath(session.location)
    mark = home.tags.change(session.id, path, change) if given else home.tags.find(session.id, path)
    if options.json:
        output.print_json({"session": session.id, "path": path, "tags": list(mark.tags), "pinned": mark.pinned})
    else:
        output.print_lines(clean(tag) for tag in mark.tags)
