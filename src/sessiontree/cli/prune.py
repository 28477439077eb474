"""Take a branch out of a session file, into the archive. Without --yes, only what would go.

All other branches stay as they are, byte for byte; that is checked before the file is replaced.
"""

from __future__ import annotations

import argparse

from sessiontree.archive.prune_branch import plan_pruning, prune
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home
from sessiontree.cli.clean import human_size
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options

EXAMPLES = """examples:
  sessiontree prune 019c2f3a --branch 8b01d2e4
  sessiontree prune s.jsonl --branch "first try" --yes

The branch is the entry and everything that hangs on it. `sessiontree restore` brings it back."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--branch", metavar="ENTRY", required=True, help="where the branch begins")
    parser.add_argument("--yes", action="store_true", help="do it")
    add_root_option(parser)


def run(options: Options) -> None:
    home = open_home(options)
    session = home.open(options.session)
    plan = plan_pruning(session, session.find_entry(options.branch))
    item = prune(home.archive, session, plan) if options.yes else None
    if options.json:
        output.print_json(
            {
                "session": session.id,
                "path": session.location,
                "branch": plan.entry,
                "entries": len(plan.nodes),
                "size": plan.size,
                "leaves": list(plan.leaves),
                "done": options.yes,
                "item": item.id if item else None,
            }
        )
        return
    output.print_lines([f"{len(plan.nodes)} entries, {human_size(plan.size)}, {len(plan.leaves)} branch ends"])
    if item is None:
        stderr.print_line("nothing was done; the same with --yes moves them into the archive")
    else:
        stderr.print_line(f"`sessiontree restore {item.id}` brings them back")
