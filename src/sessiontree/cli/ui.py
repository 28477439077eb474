"""Browse all sessions in the terminal: type to find one, Enter resumes it.

The cached list appears immediately and is refreshed in the background. Needs a terminal and the `tui` extra
(`pip install 'sessiontree[tui]'`). `sessiontree` without a command also starts it, or lists sessions without these two.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from sessiontree.cli import stderr
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessiontree.app.start import StartOptions
    from sessiontree.tui.chat import ChatScreen
    from sessiontree.tui.requests import Chat, Request

EXAMPLES = """examples:
  sessiontree ui
  sessiontree ui --all"""

_MISSING = "the terminal UI needs an extra: pip install 'sessiontree[tui]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="start with the sessions of every project")
    add_root_option(parser)


def run(options: Options) -> int | None:
    why_not = missing_reason()
    if why_not is not None:
        raise UsageError(f"{why_not}; `sessiontree list` needs neither")
    return run_ui(options)


def run_default(options: Options) -> int | None:
    """`sessiontree` without a command: the terminal UI, or else the list with a line on how to get the UI."""
    why_not = missing_reason()
    if why_not is None:
        return run_ui(options)
    from sessiontree.cli.list import run as run_list

    run_list(options)
    if sys.stdout.isatty():
        stderr.print_line(f"{why_not}; `sessiontree --help` lists all commands")
    return None


def missing_reason() -> str | None:
    """Why the terminal UI cannot start; None if it can."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "the terminal UI needs a terminal"
    if os.environ.get("TERM", "") in ("", "dumb"):
        return "the terminal UI needs a terminal that can move its cursor (TERM is not set, or dumb)"
    return None if importlib.util.find_spec("textual") is not None else _MISSING


def run_ui(options: Options) -> int | None:
    return _run_app(options, None, everywhere=options.all)


def run_full_screen(options: Options, wanted: StartOptions) -> int:
    """Chat on the whole screen."""
    from sessiontree.tui.chat import ChatScreen

    def first() -> ChatScreen:
        return ChatScreen(wanted, options.prompt, choose_session=options.resume == "")

    return _run_app(options, first) or 0


def _run_app(options: Options, first: Callable[[], ChatScreen] | None, *, everywhere: bool = False) -> int | None:
    from sessiontree.app.workbench import Workbench
    from sessiontree.library.library import Library
    from sessiontree.library.roots import parse_roots
    from sessiontree.settings import load_settings
    from sessiontree.tui.app import SessionTreeApp

    def start_options(request: Chat) -> StartOptions:
        from sessiontree.cli.chat import start_options

        return start_options(_parse_request(request, options))

    with Library(options.home, parse_roots(getattr(options, "root", ()))) as library:
        workbench = Workbench(library, os.getcwd(), load_settings(os.getcwd()).settings)
        app = SessionTreeApp(workbench, everywhere=everywhere, first=first, start_options=start_options)
        request = app.run()
    for error in app.late_errors:
        stderr.print_error(error)
    if app.error is not None:
        raise app.error
    for line in app.last_words:
        stderr.print_line(line)
    if request is not None:
        chosen = _parse_request(request, options)
        return chosen.run(chosen)
    return app.exit_code or app.return_code or None


def _parse_request(request: Request, options: Options) -> Options:
    """The command that the user chose, as if it had been typed."""
    from sessiontree.cli.parser import parse

    home = () if options.home is None else ("--home", options.home)
    return parse((*request.arguments(), *home))
