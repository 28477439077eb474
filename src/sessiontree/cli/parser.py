"""The arguments of all commands. Each command's module adds its own and brings the function that runs it."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, NoReturn

from sessiontree.cli.talk import EXIT_CODES
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from sessiontree.session import Session

COMMANDS = (
    "new",
    "append",
    "show",
    "tree",
    "context",
    "branch",
    "label",
    "fork",
    "convert",
    "resume",
    "info",
    "export",
    "list",
    "continue",
    "open",
    "rename",
    "tag",
    "pin",
    "mv",
    "clean",
    "keep",
    "restore",
    "prune",
    "shrink",
    "backup",
    "sync",
    "worktree",
    "migrate",
    "doctor",
    "repair",
)

DESCRIPTION = "One tree of messages per session: write it, branch it, read it back."
EPILOG = f"""examples:
  sessiontree new --cwd . --name "parser rewrite"
  sessiontree tree 019c2f3a

SESSION is the path of a session file, or a session id or the first 8 or more characters of one.
ENTRY is an entry's id, the beginning of it, or a label.

{EXIT_CODES}"""


class Options(argparse.Namespace):
    """What was asked for. `run` is the command's function."""

    run: Callable[[Options], int | None]
    json: bool
    home: str | None


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, and where to read more."""
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def parse(arguments: Sequence[str]) -> Options:
    parser = Parser(
        prog="sessiontree",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in _needed(arguments):
        module = importlib.import_module(f"sessiontree.cli.{_module(name)}")
        command = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.__doc__,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        command.add_argument("--json", action="store_true", help="print one JSON object")
        command.add_argument("--home", metavar="DIR", help="home folder of sessions (default: $SESSIONTREE_HOME)")
        command.set_defaults(run=module.run)
    return parser.parse_args(arguments, Options())


def _needed(arguments: Sequence[str]) -> Sequence[str]:
    """The commands whose arguments have to be known: the one that is asked for, or all, to tell about them."""
    first = arguments[0] if arguments else ""
    return (first,) if first in COMMANDS else COMMANDS


def _module(command: str) -> str:
    """The module of a command: its name, unless that is a word of Python's own."""
    return command + "_" if iskeyword(command) else command


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Arguments of commands that read a session of any dialect."""
    parser.add_argument("--dialect", metavar="NAME", help="read the file as this dialect (default: by its content)")
    parser.add_argument("--recovered", action="store_true", help="with what the owner program loses and we bring back")
    parser.add_argument(
        "--as-of",
        choices=("now", "timestamps"),
        default="now",
        help="choose the branch as the owner does now, or as its older versions did, by the newest time",
    )
    parser.add_argument("--snips", action="store_true", help="leave out what the owner's snip marks name")


def open_for_reading(options: Options) -> Session:
    """The session a reading command is about."""
    from sessiontree.dialects.base import Reading
    from sessiontree.opening import open

    reading = Reading(recovered=options.recovered, as_of=options.as_of, snips=options.snips)
    return open(options.session, home=options.home, dialect=options.dialect, reading=reading)


def _version() -> str:
    from sessiontree import __version__

    return f"sessiontree {__version__}"
