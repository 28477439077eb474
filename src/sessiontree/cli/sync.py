"""Make a folder and this machine hold the same sessions, both ways: for a mounted or synced folder between machines.

Nothing is overwritten or deleted. A session that went on in both places gets the lines of both, as branches, and
stands at the newer one.
"""

from __future__ import annotations

import argparse

from sessiontree.cli.backup import copy
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options

EXAMPLES = """examples:
  sessiontree sync ~/Dropbox/sessions --dry-run
  sessiontree sync /mnt/shared/sessions

A session that was cleaned here comes back when the folder still has it; clean the folder, too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    add_root_option(parser)


def run(options: Options) -> int | None:
    return copy(options, both_ways=True)
