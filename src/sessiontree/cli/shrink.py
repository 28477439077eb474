"""Make a huge session file smaller: remove repeated progress, duplicate snapshots and inline images.

Without --yes, only show the size before and after. Removed lines are kept in the archive, and every remaining branch is
verified.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sessiontree.archive.archive_home import session_info
from sessiontree.archive.shrink import plan_shrink, shrink
from sessiontree.archive.truncate import plan_truncate, truncate
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home, restore_command
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.views.text import human_size

if TYPE_CHECKING:
    from sessiontree.archive.archive_home import Home
    from sessiontree.session.session import Session

EXAMPLES = """examples:
  sessiontree shrink 7053107e --dead-branches --yes
  sessiontree shrink s.jsonl --to-tail --yes

`sessiontree restore` restores the file byte for byte, plus anything added since."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument(
        "--dead-branches", action="store_true", help="also remove branches with neither the current entry nor a label"
    )
    parser.add_argument(
        "--to-tail", action="store_true", help="for files over 50 MB: keep only the last part and a pointer"
    )
    parser.add_argument("--yes", action="store_true", help="shrink it")
    add_root_option(parser)


def run(options: Options) -> None:
    home = open_home(options)
    session = home.open(options.session)
    result = _to_tail(home, session, options) if options.to_tail else _shrink(home, session, options)
    if options.json:
        output.print_json({"session": session.id, "path": session.location, "done": options.yes, **result})
        return

    for saving in result["savings"]:
        output.print_lines([f"{saving['what']:<30} {saving['lines']:>9,} lines  {human_size(saving['size']):>8}"])
    output.print_lines([f"{human_size(result['before'])} before, {human_size(result['after'])} after"])
    if not result["sameContext"]:
        stderr.print_line("no compaction summarizes the removed part: a model will only receive what remains")
    if result["before"] == result["after"]:
        stderr.print_line("nothing to remove")
    elif result["item"]:
        stderr.print_line(f"to undo: `{restore_command(result['item'], session)}`")
    else:
        stderr.print_line("nothing changed; add --yes to shrink it")


def _shrink(home: Home, session: Session, options: Options) -> dict[str, Any]:
    if options.yes:
        plan, item = shrink(home.archive_at(session_info(session).path), session, dead_branches=options.dead_branches)
    else:
        plan, item = plan_shrink(session, dead_branches=options.dead_branches), None
    return {
        "before": plan.before,
        "after": plan.after,
        "savings": [{"what": saving.what, "lines": saving.lines, "size": saving.size} for saving in plan.savings],
        "sameContext": True,
        "item": item.id if item else None,
    }


def _to_tail(home: Home, session: Session, options: Options) -> dict[str, Any]:
    if options.yes:
        plan, item = truncate(home.archive_at(session_info(session).path), session)
    else:
        plan, item = plan_truncate(session), None
    saved = {"what": "everything but the tail", "lines": len(plan.removed), "size": plan.before - plan.after}
    return {
        "before": plan.before,
        "after": plan.after,
        "savings": [saved],
        "sameContext": plan.is_same,
        "item": item.id if item else None,
    }
