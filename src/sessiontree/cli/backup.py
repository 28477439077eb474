"""Copy all sessions of all agents to a folder. Run it again to copy only what is new.

Nothing in the folder is overwritten: new lines are appended, and a session that grew in both places keeps the lines of
both as branches.
"""

from __future__ import annotations

import argparse
from collections import Counter

from sessiontree.archive.sync import FolderSync, SyncResult
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.views.text import clean

EXAMPLES = """examples:
  sessiontree backup /mnt/disk/sessions --dry-run
  sessiontree backup /mnt/disk/sessions

The folder has one subfolder for each agent, with the same layout as the agent's own. To restore, copy a file back."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the folder to copy to")
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")
    add_root_option(parser)


def run(options: Options) -> int | None:
    return copy(options, both_ways=False)


def copy(options: Options, *, both_ways: bool) -> int | None:
    """Copy sessions to a folder or, with `both_ways`, synchronize with it."""
    home = open_home(options, only_files=True)
    results = list(FolderSync(home, options.folder).run(both_ways=both_ways, dry_run=options.dry_run))
    counts = Counter(result.what for result in results)
    if options.json:
        files = [
            {
                "path": result.path,
                "what": result.what,
                "why": result.why,
                "branches": list(result.branches),
                "approvals": result.approvals or None,
            }
            for result in results
            if result.what != "copied" or result.approvals
        ]
        output.print_json({"done": not options.dry_run, "counts": dict(counts), "files": files})
    else:
        _print_results(results, counts, options)
    return stderr.FAILED if counts["failed"] else None


def _print_results(results: list[SyncResult], counts: Counter[str], options: Options) -> None:
    for result in results:
        if result.what in ("merged", "conflict", "failed"):
            ends = f" (now two branches: {', '.join(result.branches)})" if len(set(result.branches)) > 1 else ""
            output.print_lines([clean(f"{result.what:<8} {result.path}{ends}")])
            if result.why:
                stderr.print_line(f"  {result.why}")
        if result.approvals:
            stderr.print_line(
                clean(
                    f"{result.path}: contains another machine's approvals ({result.approvals}); they are ignored here"
                )
            )
    parts = [f"{counts[what]} {what}" for what in ("copied", "grown", "merged", "conflict", "failed") if counts[what]]
    stderr.print_line(", ".join(parts) or "already up to date")
    if options.dry_run:
        stderr.print_line("nothing changed (--dry-run)")
