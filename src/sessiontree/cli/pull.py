"""Copy the sessions of another home, with their large content, to this one.

Sessions are copied byte for byte. Run it again to copy what is new or to continue an interrupted transfer.
"""

from __future__ import annotations

import argparse
import os

from sessiontree.cli.parser import Options
from sessiontree.cli.push import copy
from sessiontree.errors import NotFoundError
from sessiontree.stores.repositories import is_address, open_repository

EXAMPLES = """examples:
  sessiontree pull postgresql://db.example/team --dry-run
  sessiontree pull postgresql://db.example/team"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("other", metavar="DIR|ADDRESS", help="the home to copy from: a folder or an address")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be copied")


def run(options: Options) -> int | None:
    if not is_address(options.other) and not os.path.isdir(options.other):
        raise NotFoundError(f"{options.other}: no such folder; name the home to copy from")
    return copy(options, open_repository(options.other), open_repository(options.home))
