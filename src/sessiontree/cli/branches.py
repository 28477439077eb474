"""List the branches of a session: where each ends, its name, how far it is from the active one, its size and age.

AHEAD is what a branch has and the active one has not, BEHIND the other way round, in messages (and entries, if those
are more). A name is the last label on the branch; without one, a lane of an exploration or the branch of a sub-agent
says whose it is. Who has the file open for writing is said on stderr, as far as the system tells.
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
    writers = find_writers(session.location)
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
    sayings = [gist(entry) for entry in session.entries([branch.leaf for branch in branches])]
    output.print_lines(draw_branches(branches, sayings, output.width(), time.time(), marks))
    stderr.print_line(draw_writers(writers))
