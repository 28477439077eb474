"""Merge another branch into this one, by appending to it. Existing entries do not change.

--how summary (default) appends a summary of the other branch, with its files and decisions; --how append copies all its
messages; --how pick copies selected entries, tool calls always with their results. The merge becomes the current entry.
Messages that were merged before are not merged again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sessiontree.app.actions.merge import MergePlan, merge_fields, plan_merge, plan_pick
from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session, remember_session
from sessiontree.cli.summaries import add_summary_options, build_summary_request
from sessiontree.errors import UsageError
from sessiontree.session.reader import CURRENT, Current
from sessiontree.views.text import clean, one_line, plural

if TYPE_CHECKING:
    from sessiontree.branches.merge import Merged
    from sessiontree.session.session import Session

EXAMPLES = """examples:
  sessiontree merge 019c2f3a "second try" --into 8b01d2e4
  sessiontree merge s.jsonl 7158e762 --how append --from-session other.jsonl --dry-run"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("source", metavar="ENTRY", help="the last entry of the branch to merge")
    parser.add_argument("--into", metavar="ENTRY", help="append after this entry (default: the current entry)")
    parser.add_argument(
        "--how",
        choices=("summary", "append", "pick"),
        default="summary",
        help="append a summary (default), all messages, or selected entries",
    )
    parser.add_argument("--entries", metavar="ENTRY", nargs="+", help="with --how pick: the entries to copy")
    parser.add_argument("--from-session", metavar="SESSION", help="merge from this session, of any agent")
    add_summary_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="only show what would be written")


def run(options: Options) -> None:
    if (options.how == "pick") != bool(options.entries):
        raise UsageError("merge: --how pick and --entries ENTRY... must be used together")
    session = open_session(options)
    other = source_of(session, options)
    into = find_target(session, options.into)
    source = other.find_entry(options.source)
    if options.how == "pick":
        entries = [other.find_entry(entry) for entry in options.entries]
        plan: MergePlan = plan_pick(session, entries, onto=into, source=other, branch=source, dry_run=options.dry_run)
    else:
        ask = build_summary_request(session, options)
        plan = plan_merge(
            session, source, into=into, how=options.how, source=other, options=ask, dry_run=options.dry_run
        )
    carry_out(session, plan, options)


def source_of(session: Session, options: Options) -> Session:
    """The session to copy from: --from-session, or the same one."""
    if not options.from_session:
        return session
    return open_session(Options(session=options.from_session, home=options.home))


def find_target(session: Session, wanted: str | None) -> str | Current:
    """The entry to append after: the named one, else the current entry."""
    return CURRENT if wanted is None else session.find_entry(wanted)


def carry_out(session: Session, plan: MergePlan, options: Options) -> None:
    """Carry out a merge or pick, unless it is a dry run, and print the result."""
    done = plan.expected if options.dry_run else plan.do().result
    session.flush()
    if done.entry is not None:
        remember_session(session.location, session.cwd, options)
    if options.json:
        output.print_json({"session": session.id, **merge_fields(done), "dryRun": options.dry_run})
        return
    output.print_lines([done.entry] if done.entry is not None else _preview(done))
    for line in _notes(done):
        stderr.print_line(line)


def _preview(done: Merged) -> Iterator[str]:
    yield from clean(done.summary).splitlines()


def _notes(done: Merged) -> Iterator[str]:
    if done.nothing is not None:
        yield done.nothing
        return
    how = {"summary": "summarized", "append": "copied", "pick": "copied"}[done.how]
    merged = f"{plural(done.messages, 'message')} {how}"
    yield f"{merged} after {done.into}" if done.entry else f"{merged}; nothing was written (--dry-run)"
    yield from (f"conflict: {one_line(conflict.text)}" for conflict in done.conflicts)
    yield from done.notes
