"""Compare two branches: where they diverge, and the prompts, answers, calls, files and usage of each.

An ENTRY can be in another session: OTHER:ENTRY, with the path or id of that session. --html writes a self-contained
page.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from sessiontree.app.actions.diff import plan_diff
from sessiontree.cli import output
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session
from sessiontree.errors import ExistsError, NotFoundError
from sessiontree.views.diff import draw_diff

if TYPE_CHECKING:
    from sessiontree.session.session import Session

EXAMPLES = """examples:
  sessiontree diff 019c2f3a 8b01d2e4 "second try"
  sessiontree diff s.jsonl 8b01d2e4 other.jsonl:7158e762 --html diff.html"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("one", metavar="ENTRY", help="the last entry of one branch")
    parser.add_argument("other", metavar="ENTRY", help="the last entry of the other branch, or OTHER:ENTRY")
    parser.add_argument("--html", metavar="FILE", help="write an HTML page instead of text")


def run(options: Options) -> None:
    if options.html and os.path.lexists(options.html):
        raise ExistsError(f"{options.html}: file exists; choose another name")
    session = open_session(options)
    first, one = _find_entry(session, options.one, options)
    second, other = _find_entry(session, options.other, options)
    plan = plan_diff(first, one, other, other_session=second)
    path = None
    if options.html:
        from sessiontree.export.html.diff_page import render_diff
        from sessiontree.stores.atomic_files import create_file

        path = os.path.abspath(options.html)
        title = session.name or f"Session {session.id}"
        create_file(path, (piece.encode() for piece in render_diff(plan.found, title, first, second)))
    if options.json:
        output.print_json({"session": session.id, **plan.describe().data, "html": path})
    elif path is not None:
        output.print_lines([path])
    else:
        output.print_lines(draw_diff(plan.found, output.width(), output.bold, output.dim))


def _find_entry(session: Session, wanted: str, options: Options) -> tuple[Session, str]:
    """Find an entry in the session itself or, as OTHER:ENTRY, in another one."""
    try:
        return session, session.find_entry(wanted)
    except NotFoundError:
        name, colon, entry = wanted.rpartition(":")
        if not colon or not name or not entry:
            raise
    other = open_session(Options(session=name, home=options.home))
    return other, other.find_entry(entry)
