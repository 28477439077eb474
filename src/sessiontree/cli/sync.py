"""Synchronize sessions with a folder, both ways. Use a mounted or synced folder to share sessions between machines.

Nothing is overwritten or deleted. A session that grew in both places gets the lines of both as branches; the newer one
becomes current.
"""

from __future__ import annotations

import argparse

from sessiontree.cli.backup import copy
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options

EXAMPLES = """examples:
  sessiontree sync ~/Dropbox/sessions --dry-run
  sessiontree sync /mnt/shared/sessions

A session that was cleaned here comes back if the folder still has it; remove it there as well."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the folder to synchronize with")
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")
    add_root_option(parser)


def run(options: Options) -> int | None:
    return copy(options, both_ways=True)
