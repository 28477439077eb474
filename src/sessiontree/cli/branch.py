"""Switch to another entry. Nothing is deleted: the next message starts a branch there.

With --summarize, the new branch starts with a summary of the one you are leaving.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sessiontree.app.actions.switch import plan_switch
from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session, remember_session
from sessiontree.cli.summaries import add_summary_options, build_summary_request
from sessiontree.errors import UsageError
from sessiontree.views.text import plural

if TYPE_CHECKING:
    from sessiontree.branches.leave import LeaveResult

EXAMPLES = """examples:
  sessiontree branch 019c2f3a 8b01d2e4
  sessiontree branch s.jsonl "which way?" --summarize --instructions "keep the error texts\""""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("entry", metavar="ENTRY", nargs="?", help="the entry to switch to")
    where.add_argument("--at", metavar="ENTRY", dest="at", help=argparse.SUPPRESS)
    where.add_argument(
        "--root", action="store_true", dest="before_all", help="go to before the first message, to start over"
    )
    parser.add_argument("--before", action="store_true", help="switch to the entry's parent, to rewrite the entry")
    parser.add_argument("--summarize", action="store_true", help="start with a summary of the branch you are leaving")
    parser.add_argument("--summarise", action="store_true", dest="summarize", help=argparse.SUPPRESS)
    add_summary_options(parser)


def run(options: Options) -> None:
    if (options.instructions or options.summary_model or options.summarizer) and not options.summarize:
        raise UsageError("branch: --instructions, --model and --summarizer need --summarize")
    session = open_session(options)
    to = None if options.before_all else session.find_entry(options.entry or options.at)
    if to is not None and options.before:
        to = session.parent(to)
    ask = build_summary_request(session, options) if options.summarize else None
    left = plan_switch(session, to, ask).do().result
    if options.summarize:
        _print_left(left)
    session.flush()
    remember_session(session.location, session.cwd, options)
    if options.json:
        output.print_json({"session": session.id, "leaf": session.leaf, "summary": left.summary or None})
    else:
        output.print_value(session.leaf or "(before the first entry)")


def _print_left(left: LeaveResult) -> None:
    if left.entry is None:
        stderr.print_line("nothing to summarize: the branch you left has no messages")
    else:
        stderr.print_line(f"summarized {plural(left.messages, 'message')} of the branch that ends at {left.left}")
    for report in left.reports:
        stderr.print_line(f"sessiontree: {report}")
