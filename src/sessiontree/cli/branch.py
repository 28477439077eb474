"""Let a session stand at another entry. Nothing is deleted: the next message starts a branch there.

With --summarise, what was done on the branch that is left is told where the new one begins.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sessiontree.branches.leave import leave
from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session, remember_session
from sessiontree.cli.summaries import add_summary_options, build_summary_request
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from sessiontree.session.session import Session

EXAMPLES = """examples:
  sessiontree branch 019c2f3a 8b01d2e4
  sessiontree branch s.jsonl "which way?" --summarise --instructions "keep the error texts\""""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("entry", metavar="ENTRY", nargs="?", help="the entry to stand at")
    where.add_argument("--at", metavar="ENTRY", dest="at", help=argparse.SUPPRESS)
    where.add_argument(
        "--root", action="store_true", dest="before_all", help="stand before the first message, to start from nothing"
    )
    parser.add_argument("--before", action="store_true", help="stand at the entry's parent, to say it differently")
    parser.add_argument("--summarise", action="store_true", help="leave a summary of the branch that is left")
    add_summary_options(parser)


def run(options: Options) -> None:
    if (options.instructions or options.summarizer) and not options.summarise:
        raise UsageError("branch: --instructions and --summarizer are about a summary, so they need --summarise")
    session = open_session(options)
    to = None if options.before_all else session.find_entry(options.entry or options.at)
    if to is not None and options.before:
        to = session.parent(to)
    summary = _leave(session, to, options) if options.summarise else None
    if not options.summarise:
        session.move(to)
    session.close()
    remember_session(session.location, session.cwd, options)
    if options.json:
        output.print_json({"session": session.id, "leaf": session.leaf, "summary": summary})
    else:
        output.print_lines([session.leaf or "(before the first entry)"])


def _leave(session: Session, to: str | None, options: Options) -> str | None:
    """Stand there with a summary of what is left; the summary, if there was something to summarise."""
    left = leave(session, to, build_summary_request(session, options))
    if left.entry is None:
        stderr.print_line("nothing was said on the branch that is left, so there is nothing to summarise")
        return None
    stderr.print_line(f"{left.messages} messages of the branch that ends at {left.left} are summarised here")
    return left.summary
