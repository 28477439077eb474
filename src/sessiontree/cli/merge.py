"""Bring another branch into this one. Nothing is changed: what is brought is appended behind the entry it goes to.

--how summary (default) brings a summary of what was done there, with its files and decisions; --how append says all its
messages again; --how pick only the chosen ones, a tool call always with its results. The session stands at the join
then. What was brought before is not brought again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session, remember_work
from sessiontree.cli.summaries import add_summary_options, build_summary_request
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from sessiontree.branches.merge import Merged
    from sessiontree.session.session import Session

SUMMARY = "bring another branch into this one"
EXAMPLES = """examples:
  sessiontree merge 019c2f3a "second try" --into 8b01d2e4
  sessiontree merge s.jsonl 7158e762 --how append --from-session other.jsonl --dry-run"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("source", metavar="ENTRY", help="the end of the branch to bring in")
    parser.add_argument("--into", metavar="ENTRY", help="the entry it goes behind (default: where the session stands)")
    parser.add_argument(
        "--how",
        choices=("summary", "append", "pick"),
        default="summary",
        help="a summary (default), all messages, or chosen ones",
    )
    parser.add_argument("--entries", metavar="ENTRY", nargs="+", help="with --how pick: the entries to bring")
    parser.add_argument("--from-session", metavar="SESSION", help="the branch is in this session, of any agent")
    add_summary_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="only show what would be written")


def run(options: Options) -> None:
    from sessiontree.branches.merge import merge
    from sessiontree.branches.pick import pick

    if (options.how == "pick") != bool(options.entries):
        raise UsageError("merge: --how pick and --entries ENTRY... go together")
    session = open_session(options)
    other = source_of(session, options)
    into = at_entry(session, options.into)
    source = other.find_entry(options.source)
    if options.how == "pick":
        entries = [other.find_entry(entry) for entry in options.entries]
        done = pick(session, entries, onto=into, source=other, branch=source, dry_run=options.dry_run)
    else:
        ask = build_summary_request(session, options)
        done = merge(session, source, into=into, how=options.how, source=other, options=ask, dry_run=options.dry_run)
    print_merged(session, done, options)


def source_of(session: Session, options: Options) -> Session:
    """The session that something is brought from: another one, or the same."""
    if not options.from_session:
        return session
    return open_session(Options(session=options.from_session, home=options.home))


def at_entry(session: Session, wanted: str | None) -> str:
    """The entry that something goes behind: the one that was named, else where the session stands."""
    if wanted is not None:
        return session.find_entry(wanted)
    if session.leaf is None:
        raise UsageError(f"{session.location}: it stands before its first entry; name the entry to go behind")
    return session.leaf


def print_merged(session: Session, done: Merged, options: Options) -> None:
    """Tell what a merge or a pick did, or would do."""
    session.close()
    if done.entry is not None:
        remember_work(session.location, session.cwd, options)
    if options.json:
        output.print_json(
            {
                "session": session.id,
                "how": done.how,
                "from": {"entry": done.source, "session": done.session},
                "into": done.into,
                "ancestor": done.ancestor,
                "messages": done.messages,
                "brought": list(done.brought),
                "entry": done.entry,
                "summary": done.summary,
                "readFiles": list(done.files.read),
                "modifiedFiles": list(done.files.modified),
                "conflicts": [conflict.fields() for conflict in done.conflicts],
                "notes": list(done.notes),
                "nothing": done.nothing,
                "dryRun": options.dry_run,
            }
        )
        return
    output.print_lines([done.entry] if done.entry is not None else _shown(done))
    for line in _talk(done):
        stderr.print_line(line)


def _shown(done: Merged) -> Iterator[str]:
    """What would be written."""
    from sessiontree.views.text import clean

    yield from clean(done.summary).splitlines()


def _talk(done: Merged) -> Iterator[str]:
    from sessiontree.views.text import one_line

    if done.nothing is not None:
        yield done.nothing
        return
    how = {"summary": "summarised", "append": "said again", "pick": "picked"}[done.how]
    brought = f"{done.messages} {'message' if done.messages == 1 else 'messages'} {how}"
    yield f"{brought} behind {done.into}" if done.entry else f"{brought}: nothing was written (--dry-run)"
    yield from (f"conflict: {one_line(conflict.text)}" for conflict in done.conflicts)
    yield from done.notes
