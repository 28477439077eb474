"""Draw the branches of a session: one column for each branch, with labels, times and the current entry."""

from __future__ import annotations

import argparse

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_read_options, open_for_reading
from sessiontree.explore.branch_labels import find_marks
from sessiontree.views.graph import build_graph, describe_node, draw
from sessiontree.views.json import iter_problems

EXAMPLES = """examples:
  sessiontree tree 019c2f3a
  sessiontree tree s.jsonl --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--all", action="store_true", help="include entries without text: settings, labels, state")
    add_read_options(parser)


def run(options: Options) -> None:
    session = open_for_reading(options)
    graph = build_graph(session, everything=options.all or options.json, marks=find_marks(session))
    if options.json:
        output.print_json(
            {
                "session": session.id,
                "dialect": session.dialect.name,
                "leaf": session.leaf,
                "nodes": map(describe_node, graph.nodes),
                "problems": iter_problems(session),
            }
        )
        return
    output.print_lines(draw(graph, output.width()))
    stderr.print_problems(session.location, session.problems)
