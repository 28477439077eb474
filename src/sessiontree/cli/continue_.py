"""Find the session to continue: this terminal's last if it belongs to this project, otherwise the project's newest.

Sessions of other projects are never chosen; projects are distinguished by real path and repository. With -r, choose
from a numbered list.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from sessiontree.cli import output, stderr
from sessiontree.cli.library_options import add_root_option, no_sessions, open_library
from sessiontree.cli.open import present
from sessiontree.cli.parser import Options
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.library.last_session import find_last_session
from sessiontree.library.threads import ThreadMember
from sessiontree.stores.repositories import home_folder
from sessiontree.views.listing import draw_listing, short_ids
from sessiontree.views.text import number_range

if TYPE_CHECKING:
    from sessiontree.library.library import Library
    from sessiontree.library.summary import Summary

EXAMPLES = """examples:
  sessiontree continue
  sessiontree show "$(sessiontree continue --print-path)\""""

_MOST_CHOICES = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-r", "--choose", action="store_true", help="choose from a list of this project's sessions")
    parser.add_argument("--all", action="store_true", help="with -r: list sessions of every project")
    parser.add_argument("--cwd", metavar="DIR", help="use the project of this folder (default: the current folder)")
    parser.add_argument("--print-path", action="store_true", help="print only the path of the file")
    add_root_option(parser)


def run(options: Options) -> int | None:
    cwd = os.path.abspath(options.cwd or os.getcwd())
    if options.choose and not options.json and not options.print_path and options.cwd is None:
        from sessiontree.cli.ui import missing_reason, run_ui

        if missing_reason() is None:
            return run_ui(options)
    with open_library(options) as library:
        if options.choose:
            chosen = _choose(library, cwd, everywhere=options.all)
            if chosen is None:
                return None
        else:
            chosen = find_to_continue(library, cwd)
            if chosen is None:
                raise NotFoundError(no_sessions(library, cwd, "`sessiontree list --all`"))
        present(library, chosen, options, messages=2)
    return None


def find_to_continue(library: Library, cwd: str) -> Summary | None:
    """This terminal's last session if it belongs to the project, else the project's newest; None without any."""
    crumb = find_last_session(home_folder(library.home))
    if crumb is not None:
        last = next((s for s in library.everything() if s.ref == os.path.realpath(crumb.path)), None)
        if last is not None and last.kind == "session" and library.belongs(last, cwd):
            return last
    return library.newest(cwd)


def _choose(library: Library, cwd: str, *, everywhere: bool) -> Summary | None:
    """Print a numbered list and read a choice; without a terminal, only print the list."""
    found = library.sessions(project=None if everywhere else cwd)[:_MOST_CHOICES]
    if not found:
        raise NotFoundError(no_sessions(library, None if everywhere else cwd, "use --all"))
    members = [ThreadMember(summary) for summary in found]
    ids = short_ids(library.everything())
    rows = list(draw_listing(members, output.width() - 4, time.time(), ids, with_project=everywhere))
    output.print_lines([f"    {rows[0]}", *(f"{number:3} {row}" for number, row in enumerate(rows[1:], 1))])
    if not sys.stdin.isatty():
        stderr.print_line("to continue one of them: sessiontree chat --session ID")
        return None
    stderr.print_line(f"Which one? [{number_range(len(found))}, Enter to cancel]")
    answer = sys.stdin.readline().strip()
    if not answer:
        return None
    if not answer.isdecimal() or not 1 <= int(answer) <= len(found):
        raise UsageError(f"{answer!r}: expected a number ({number_range(len(found))})")
    return found[int(answer) - 1]
