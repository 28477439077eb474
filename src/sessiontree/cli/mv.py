"""Update sessions after their project moved: the recorded folder, and where their client looks for them.

Without --yes, only show what would move. Only the lines that name the folder change.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sessiontree.archive.move import Move, move, plan_move, translate_cwd
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.errors import SessionTreeError, UsageError
from sessiontree.session.open import open as open_path
from sessiontree.views.text import clean, plural

if TYPE_CHECKING:
    from sessiontree.archive.archive_home import Home
    from sessiontree.session.session import Session

EXAMPLES = """examples:
  sessiontree mv 019c2f3a --cwd ~/work/new-place --yes
  sessiontree mv --project /home/me/old /home/me/new

`sessiontree restore` moves the file back, including anything added since."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", nargs="?")
    parser.add_argument("--cwd", metavar="NEW", help="the new folder of the session")
    parser.add_argument(
        "--project", metavar=("OLD", "NEW"), nargs=2, help="move all sessions of a folder and its subfolders"
    )
    parser.add_argument("--yes", action="store_true", help="move them")
    add_root_option(parser)


def run(options: Options) -> int | None:
    home = open_home(options, only_files=True)
    done: list[tuple[Move, str | None]] = []
    failed: list[str] = []
    for session, cwd in _select(home, options):
        try:
            plan = plan_move(session, cwd, home.allowed_paths, home.environment)
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
        _print_moves(done, options)
    for message in failed:
        stderr.print_error(message)
    return stderr.FAILED if failed else None


def _select(home: Home, options: Options) -> Iterator[tuple[Session, str]]:
    if options.project and not options.session and not options.cwd:
        old, new = (os.path.abspath(os.path.expanduser(folder)) for folder in options.project)
        for candidate in home.sessions():
            if candidate.cwd is not None and translate_cwd(candidate.cwd, old, new) is None:
                continue
            session = open_path(candidate.path, home=home.folder)
            cwd = translate_cwd(session.cwd, old, new)
            if cwd is not None:
                yield session, cwd
    elif options.session and options.cwd and not options.project:
        yield home.open_file(options.session), os.path.abspath(os.path.expanduser(options.cwd))
    else:
        raise UsageError("give SESSION and --cwd NEW, or --project OLD NEW")


def _print_moves(done: list[tuple[Move, str | None]], options: Options) -> None:
    for plan, _ in done:
        output.print_lines([clean(plan.source), clean(f"  -> {plan.target}")])
    for folder in dict.fromkeys(plan.new_cwd for plan, _ in done):
        if not os.path.isdir(folder):
            stderr.print_line(f"{folder}: folder does not exist yet")
    if not done:
        stderr.print_line("nothing to move")
    elif not options.yes:
        stderr.print_line("nothing changed; add --yes to move them")
    else:
        stderr.print_line(
            f"moved {plural(len(done), 'session')}; "
            "to undo: `sessiontree restore ITEM` (`sessiontree restore --list` lists all)"
        )
