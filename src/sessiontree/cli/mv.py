"""Take a session along after its project moved: the recorded folder, and the place where its owner looks for it.

Without --yes, only what would move. All lines but the one that names the folder stay as they are.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sessiontree.archive.move import Move, move, moved_cwd, plan_move
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.errors import SessionTreeError, UsageError
from sessiontree.session.open import open as open_path
from sessiontree.views.text import clean

if TYPE_CHECKING:
    from sessiontree.archive.archive_home import Home
    from sessiontree.session.session import Session

EXAMPLES = """examples:
  sessiontree mv 019c2f3a --cwd ~/work/new-place --yes
  sessiontree mv --project /home/me/old /home/me/new

`sessiontree restore` brings the file back to its old place, with what was added to it since."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", nargs="?")
    parser.add_argument("--cwd", metavar="NEW", help="the folder the session works in from now on")
    parser.add_argument(
        "--project", metavar=("OLD", "NEW"), nargs=2, help="all sessions of a folder and those below it"
    )
    parser.add_argument("--yes", action="store_true", help="do it")
    add_root_option(parser)


def run(options: Options) -> int | None:
    home = open_home(options)
    done: list[tuple[Move, str | None]] = []
    failed: list[str] = []
    for session, cwd in _wanted(home, options):
        try:
            plan = plan_move(session, cwd, home.bounds, home.environment)
            item = move(home.archive, session, plan) if options.yes else None
        except SessionTreeError as error:
            if options.session:
                raise
            failed.append(str(error))
            continue
        if not plan.is_empty:
            done.append((plan, item.id if item else None))
    if options.json:
        moves = [
            {"session": plan.session, "from": plan.source, "to": plan.target, "cwd": plan.new_cwd, "item": item}
            for plan, item in done
        ]
        output.print_json({"done": options.yes, "moves": moves, "failed": failed})
    else:
        _show(done, options)
    for message in failed:
        stderr.print_error(message)
    return stderr.FAILED if failed else None


def _wanted(home: Home, options: Options) -> Iterator[tuple[Session, str]]:
    if options.project and not options.session and not options.cwd:
        old, new = (os.path.abspath(os.path.expanduser(folder)) for folder in options.project)
        for one in home.sessions():
            if one.cwd is not None and moved_cwd(one.cwd, old, new) is None:
                continue
            session = open_path(one.path, home=home.folder)
            cwd = moved_cwd(session.cwd, old, new)
            if cwd is not None:
                yield session, cwd
    elif options.session and options.cwd and not options.project:
        yield home.open(options.session), os.path.abspath(os.path.expanduser(options.cwd))
    else:
        raise UsageError("give SESSION and --cwd NEW, or --project OLD NEW")


def _show(done: list[tuple[Move, str | None]], options: Options) -> None:
    for plan, _ in done:
        output.print_lines([clean(plan.source), clean(f"  -> {plan.target}")])
        if not os.path.isdir(plan.new_cwd):
            stderr.print_line(f"{plan.new_cwd}: there is no such folder yet")
    if not done:
        stderr.print_line("there is nothing to move")
    elif not options.yes:
        stderr.print_line("nothing was done; the same with --yes moves them")
    else:
        stderr.print_line(
            f"{len(done)} moved; `sessiontree restore ITEM` undoes one (see `sessiontree restore --list`)"
        )
