"""Print the active path as text; with --all, every branch and every fragment salvaged from damage, each marked."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_read_options, open_for_reading
from sessiontree.views.json import describe_fragment, describe_shown, iter_problems
from sessiontree.views.transcript import full_transcript, transcript

if TYPE_CHECKING:
    from sessiontree.session.reader import Reader

EXAMPLES = """examples:
  sessiontree show 019c2f3a
  sessiontree show damaged.jsonl --all"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument(
        "--all", action="store_true", help="print every branch and every fragment, not only the active path"
    )
    parser.add_argument("--leaf", metavar="ENTRY", help="print the path to this entry (default: the current entry)")
    add_read_options(parser)


def run(options: Options) -> None:
    session = open_for_reading(options)
    leaf = session.find_entry(options.leaf) if options.leaf else session.leaf
    if options.json:
        output.print_json(_to_json(session, leaf, everything=options.all))
        return
    output.print_lines(full_transcript(session) if options.all else transcript(session, leaf))
    stderr.print_problems(session.location, session.problems)


def _to_json(session: Reader, leaf: str | None, *, everything: bool) -> dict[str, Any]:
    active = set(session.path_ids(leaf)) if leaf is not None else set()
    labels = session.labels
    return {
        "session": session.id,
        "dialect": session.dialect.name,
        "leaf": leaf,
        "entries": (
            {**describe_shown(entry), "label": labels.get(entry.id), "active": entry.id in active}
            for entry in (session if everything else session.iter_path(leaf))
        ),
        "fragments": [describe_fragment(fragment) for fragment in session.fragments],
        "problems": iter_problems(session),
    }
