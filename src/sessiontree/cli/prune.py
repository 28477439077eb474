"""Move a branch from a session file to the archive. Without --yes, only show its size.

All other branches stay byte-for-byte identical; this is verified before the file is replaced.
"""

from __future__ import annotations

import argparse

from sessiontree.app.actions.archive import plan_prune_branch, prune_fields
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home, restore_command
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.views.text import human_size, plural

EXAMPLES = """examples:
  sessiontree prune 019c2f3a --branch 8b01d2e4
  sessiontree prune s.jsonl --branch "first try" --yes

The branch is the entry and all its descendants. `sessiontree restore` restores it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--branch", metavar="ENTRY", required=True, help="the first entry of the branch")
    parser.add_argument("--yes", action="store_true", help="move it")
    add_root_option(parser)


def run(options: Options) -> None:
    home = open_home(options)
    session = home.open(options.session)
    action = plan_prune_branch(home, session, session.find_entry(options.branch))
    item = action.do().result if options.yes else None
    plan = action.expected
    if options.json:
        output.print_json(
            {
                "session": session.id,
                "path": session.location,
                **prune_fields(plan),
                "done": options.yes,
                "item": item.id if item else None,
            }
        )
        return
    entries = plural(len(plan.nodes), "entry", "entries")
    output.print_lines([f"{entries}, {human_size(plan.size)}, {plural(len(plan.leaves), 'leaf', 'leaves')}"])
    if item is None:
        stderr.print_line("nothing changed; add --yes to move them to the archive")
    else:
        stderr.print_line(f"to undo: `{restore_command(item.id, session)}`")
