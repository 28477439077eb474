"""Copy the sessions of this home, with their large content, to another one: a folder or a database.

Sessions are copied byte for byte. Run it again to copy what is new or to continue an interrupted transfer.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping

from sessiontree.archive.transfer import Transferred, transfer
from sessiontree.cli import output, stderr
from sessiontree.cli.library_options import scan_progress
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError
from sessiontree.stores.contract import SessionRepository
from sessiontree.stores.repositories import open_repository
from sessiontree.views.text import clean, one_line

EXAMPLES = """examples:
  sessiontree push postgresql://db.example/team --dry-run
  sessiontree push postgresql://db.example/team"""

_INCOMPLETE = 4
_DONE = {"current": "up to date"}
_PLANNED = {"copied": "to copy", "extended": "to extend", **_DONE}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("other", metavar="DIR|ADDRESS", help="the home to copy to: a folder or an address")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be copied")


def run(options: Options) -> int | None:
    return copy(options, open_repository(options.home), open_repository(options.other))


def copy(options: Options, source: SessionRepository, target: SessionRepository) -> int | None:
    """Copy sessions between two homes, and report each one that is not current."""
    if source.home == target.home:
        raise UsageError(f"{target.home}: both homes are the same")
    results = list(transfer(source, target, dry_run=options.dry_run, progress=scan_progress()))
    counts = Counter(result.outcome for result in results)
    if options.json:
        output.print_json(
            {
                "from": source.home,
                "to": target.home,
                "dryRun": options.dry_run,
                "counts": dict(counts),
                "sessions": [_to_json(result) for result in results if result.outcome != "current"],
            }
        )
    else:
        words = _PLANNED if options.dry_run else _DONE
        output.print_lines(_line(result, words) for result in results if result.outcome != "current")
        done = ", ".join(f"{count} {words.get(outcome, outcome)}" for outcome, count in counts.items()) or "no sessions"
        dry_run = "; nothing was written" if options.dry_run else ""
        stderr.print_line(f"{clean(source.home)} -> {clean(target.home)}: {done}{dry_run}")
    return _INCOMPLETE if counts["diverged"] or counts["failed"] else None


def _to_json(result: Transferred) -> dict[str, object]:
    return {"id": result.id, "outcome": result.outcome, "bytes": result.size, "problem": result.problem or None}


def _line(result: Transferred, words: Mapping[str, str]) -> str:
    word = words.get(result.outcome, result.outcome)
    return f"{word:9} {one_line(result.id)}  {one_line(result.problem) or f'{result.size:,} bytes'}"
