"""Say chosen entries of other branches again behind an entry. A tool call always travels with its results.

Entries come in the order they were said in, whatever the order they are named in. What is on the path already, or was
picked before, is not said twice. The session stands behind what was picked then.
"""

from __future__ import annotations

import argparse

from sessiontree.branches.pick import pick
from sessiontree.cli.merge import at_entry, print_merged, source_of
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session

EXAMPLES = """examples:
  sessiontree pick 019c2f3a 8b01d2e4 7158e762 --onto main
  sessiontree pick s.jsonl 8b01d2e4 --from-session other.jsonl --dry-run"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("entries", metavar="ENTRY", nargs="+", help="the entries to bring")
    parser.add_argument("--onto", metavar="ENTRY", help="the entry they go behind (default: where the session stands)")
    parser.add_argument("--from-session", metavar="SESSION", help="they are in this session, of any agent")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be written")


def run(options: Options) -> None:
    session = open_session(options)
    other = source_of(session, options)
    entries = [other.find_entry(entry) for entry in options.entries]
    onto = at_entry(session, options.onto)
    print_merged(session, pick(session, entries, onto=onto, source=other, dry_run=options.dry_run), options)
