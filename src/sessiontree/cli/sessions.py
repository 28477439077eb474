"""Find and open the session that SESSION names.

Fast lookups come first: a path is opened directly, and the id of a native session is matched against file names. Only
then are all agents' sessions searched by id and title.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from sessiontree.cli import stderr
from sessiontree.cli.parser import Options
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.dialects.contract import ReadOptions
from sessiontree.errors import NotFoundError
from sessiontree.paths import is_same_folder
from sessiontree.session.open import looks_like_path, open_reader
from sessiontree.session.open import open as open_path
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session
from sessiontree.stores.repositories import find_ref, home_folder, open_repository


def add_dialect_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dialect", metavar="NAME", help="read the file as this dialect (default: detect it)")


def add_read_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that read a session of any dialect."""
    add_dialect_option(parser)
    parser.add_argument("--recovered", action="store_true", help="include messages the agent itself would lose")
    add_client_view_options(parser)


def add_client_view_options(parser: argparse.ArgumentParser) -> None:
    """Options for how the client of a session reads it."""
    parser.add_argument(
        "--as-of",
        choices=("now", "timestamps"),
        default="now",
        help="which branch is active: the current client's rule (`now`) or the newest timestamp (`timestamps`)",
    )
    parser.add_argument("--snips", action="store_true", help='hide messages removed by Claude Code\'s "snip" markers')


def read_options_of(options: Options) -> ReadOptions:
    """The options that `add_read_options` added."""
    return ReadOptions(recovered=options.recovered, as_of=options.as_of, snips=options.snips)


def open_for_reading(options: Options) -> Reader:
    """Open SESSION with the options that `add_read_options` added. The result has no method that writes."""
    path, dialect = _find(options)
    return open_reader(path, home=options.home, dialect=dialect, read_options=read_options_of(options))


def open_session(options: Options, **keywords: Any) -> Session:
    """Open SESSION; `keywords` are passed to `sessiontree.open`."""
    path, dialect = _find(options)
    session = open_path(path, home=options.home, dialect=dialect, **keywords)
    session.notify = lambda text: stderr.print_line(f"sessiontree: {text}")
    return session


def _find(options: Options) -> tuple[str, str | None]:
    path, agent = find_session(options.session, options)
    return path, getattr(options, "dialect", None) or agent


def find_session(name: str, options: Options) -> tuple[str, str | None]:
    """The path of a session, and its agent if the search found that out."""
    if looks_like_path(name):
        return name, None
    try:
        return str(open_repository(options.home).find(name)), None
    except NotFoundError:
        from sessiontree.cli.library_options import open_library  # most lookups do not need it

        with open_library(options) as library:
            found = library.find(name)
            return found.ref, found.agent


def print_next_command(word: str, agent: str, cwd: str) -> None:
    """Print the commands that continue a session, in its agent and here, as the last lines of stderr.

    `word` names the session in a shell (`session_word`).
    """
    import shlex  # few commands print this

    here = not cwd or is_same_folder(cwd, os.curdir)
    where = "" if here or not os.path.isdir(cwd) else f"cd {shlex.quote(cwd)} && "
    if agent != DEFAULT_DIALECT:
        stderr.print_line(f"to continue in its agent: sessiontree resume {word}")
    stderr.print_line(f"to continue here: {where}sessiontree chat --session {word}")


def remember_session(path: str, cwd: str, options: Options) -> None:
    """Record the session that this terminal worked on, for `continue`, if it is a file. Never fails."""
    if find_ref(path).is_file:
        from sessiontree.library.last_session import record_last_session  # commands that only read do not need it

        record_last_session(path, cwd or os.curdir, home=home_folder(options.home))
