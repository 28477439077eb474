"""Compare two branches: where they parted, what each asked, answered, called, read, changed, said last and used.

A and B are entries; OTHER:ENTRY means an entry of another session, by its path or id. With --html, a page that needs
nothing but itself.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from sessiontree.branches.diff import diff
from sessiontree.cli import output
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session
from sessiontree.errors import ExistsError, NotFoundError
from sessiontree.views.diff import describe_diff, draw_diff

if TYPE_CHECKING:
    from sessiontree.session.session import Session

EXAMPLES = """examples:
  sessiontree diff 019c2f3a 8b01d2e4 "second try"
  sessiontree diff s.jsonl 8b01d2e4 other.jsonl:7158e762 --html diff.html"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("one", metavar="ENTRY", help="the end of one branch")
    parser.add_argument("other", metavar="ENTRY", help="the end of the other one, or OTHER:ENTRY")
    parser.add_argument("--html", metavar="FILE", help="write a new page instead of text")


def run(options: Options) -> None:
    if options.html and os.path.lexists(options.html):
        raise ExistsError(f"{options.html}: there is a file already; it was not touched")
    session = open_session(options)
    first, one = _resolved(session, options.one, options)
    second, other = _resolved(session, options.other, options)
    found = diff(first, one, other, other_session=second)
    path = None
    if options.html:
        from sessiontree.export.diff_page import render_diff
        from sessiontree.stores.atomic_files import create_file

        path = os.path.abspath(options.html)
        create_file(path, (piece.encode() for piece in render_diff(found, session.name or f"Session {session.id}")))
    if options.json:
        output.print_json({"session": session.id, **describe_diff(found), "html": path})
    elif path is not None:
        output.print_lines([path])
    else:
        output.print_lines(draw_diff(found, output.width(), output.bold, output.dim))


def _resolved(session: Session, wanted: str, options: Options) -> tuple[Session, str]:
    """The session and the entry that are meant; what the session itself has comes first."""
    try:
        return session, session.find_entry(wanted)
    except NotFoundError:
        name, colon, entry = wanted.rpartition(":")
        if not colon or not name or not entry:
            raise
    other = open_session(Options(session=name, home=options.home))
    return other, other.find_entry(entry)
