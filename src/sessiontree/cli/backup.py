"""Copy all sessions of all agents into a folder. Run it again, and only what is new is copied.

Nothing in the folder is overwritten: what grew here is appended there, and a file that went on in both places keeps
the lines of both, as branches.
"""

from __future__ import annotations

import argparse
from collections import Counter

from sessiontree.archive.sync import Copying, Told
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.views.text import clean

EXAMPLES = """examples:
  sessiontree backup /mnt/disk/sessions --dry-run
  sessiontree backup /mnt/disk/sessions

The folder has one folder per agent, named as below that agent's own; copy a file back to restore it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    add_root_option(parser)


def run(options: Options) -> int | None:
    return copy(options, both_ways=False)


def copy(options: Options, *, both_ways: bool) -> int | None:
    """What `backup` and `sync` do."""
    told = list(Copying(open_home(options), options.folder).run(both_ways=both_ways, act=not options.dry_run))
    counts = Counter(one.what for one in told)
    if options.json:
        files = [
            {"path": one.path, "what": one.what, "why": one.why, "branches": list(one.branches)}
            for one in told
            if one.what != "copied"
        ]
        output.print_json({"done": not options.dry_run, "counts": dict(counts), "files": files})
    else:
        _show(told, counts, options)
    return stderr.FAILED if counts["failed"] else None


def _show(told: list[Told], counts: Counter[str], options: Options) -> None:
    for one in told:
        if one.what in ("merged", "conflict", "failed"):
            ends = f" (two branches: {', '.join(one.branches)})" if len(set(one.branches)) > 1 else ""
            output.print_lines([clean(f"{one.what:<8} {one.path}{ends}")])
            if one.why:
                stderr.print_line(f"  {one.why}")
    parts = [f"{counts[what]} {what}" for what in ("copied", "grown", "merged", "conflict", "failed") if counts[what]]
    stderr.print_line(", ".join(parts) or "everything is the same already")
    if options.dry_run:
        stderr.print_line("nothing was done; the same without --dry-run does it")
