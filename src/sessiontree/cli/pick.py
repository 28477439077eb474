"""Copy selected entries from other branches, appending them after an entry. Tool calls are copied with their results.

Entries are copied in their original order. Entries that are on the path already, or were picked before, are skipped.
The last copied entry becomes the current one.
"""

from __future__ import annotations

import argparse

from sessiontree.app.actions.merge import plan_pick
from sessiontree.cli.merge import carry_out, find_target, source_of
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import open_session

EXAMPLES = """examples:
  sessiontree pick 019c2f3a 8b01d2e4 7158e762 --onto main
  sessiontree pick s.jsonl 8b01d2e4 --from-session other.jsonl --dry-run"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("entries", metavar="ENTRY", nargs="+", help="the entries to copy")
    parser.add_argument("--onto", metavar="ENTRY", help="append after this entry (default: the current entry)")
    parser.add_argument("--from-session", metavar="SESSION", help="copy from this session, of any agent")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be written")


def run(options: Options) -> None:
    session = open_session(options)
    other = source_of(session, options)
    entries = [other.find_entry(entry) for entry in options.entries]
    onto = find_target(session, options.onto)
    carry_out(session, plan_pick(session, entries, onto=onto, source=other, dry_run=options.dry_run), options)
