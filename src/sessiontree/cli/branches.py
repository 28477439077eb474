"""List the branches of a session: last entry, name, distance from the active branch, size and age.

AHEAD counts the messages that only that branch has, BEHIND those that only the active branch has; entries are also
counted if they outnumber messages. The name is the last label on the branch, or the lane or sub-agent it belongs to.
Processes that have the file open for writing are reported on stderr, if the system can list them.
"""

from __future__ import annotations

import argparse
import time

from sessiontree.branches.list import list_branches
from sessiontree.branches.open_files import find_writers
from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_read_options, open_for_reading
from sessiontree.explore.branch_labels import find_branch_marks
from sessiontree.views.branches import describe_branch, describe_writers, draw_branches, draw_writers
from sessiontree.views.graph import gist

EXAMPLES = """examples:
  sessiontree branches 019c2f3a
  sessiontree branches s.jsonl --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    add_read_options(parser)


def run(options: Options) -> None:
    session = open_for_reading(options)
    branches = list_branches(session)
    marks = find_branch_marks(session, branches)
    writers = find_writers(session.ref.path) if session.ref.is_file else None
    if options.json:
        output.print_json(
            {
                "session": session.id,
                "dialect": session.dialect.name,
                "leaf": session.leaf,
                "branches": [describe_branch(branch, marks.get(branch.leaf)) for branch in branches],
                "writers": describe_writers(writers),
            }
        )
        return
    texts = [gist(entry) for entry in session.entries([branch.leaf for branch in branches])]
    output.print_lines(draw_branches(branches, texts, output.width(), time.time(), session.id_prefixes, marks))
    if session.ref.is_file:
        stderr.print_line(draw_writers(writers))
