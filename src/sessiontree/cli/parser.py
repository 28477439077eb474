"""The arguments of all commands. Each command's module adds its own and brings the function that runs it."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from keyword import iskeyword
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from sessiontree.cli.output import terminal_columns
from sessiontree.cli.stderr import EXIT_CODES
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from sessiontree.session.session import Session

COMMANDS = (
    "new",
    "append",
    "show",
    "tree",
    "context",
    "branch",
    "branches",
    "diff",
    "merge",
    "pick",
    "label",
    "fork",
    "compact",
    "convert",
    "resume",
    "chat",
    "explore",
    "info",
    "export",
    "list",
    "stats",
    "continue",
    "open",
    "search",
    "history",
    "mcp",
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
    "config",
    "completion",
)

# What goes on without a command being named. The help of the root knows them, too.
SHORT_FOR = {"-c": ("continue",), "-r": ("continue", "-r")}

# Commands whose words are a query: one may begin with a hyphen, and options may stand between them.
FREE_WORDS = frozenset({"search", "history"})

DESCRIPTION = "One tree of messages per session: write it, branch it, read it back."
EPILOG = f"""examples:
  sessiontree new --cwd . --name "parser rewrite"
  sessiontree tree 019c2f3a

SESSION is the path of a session file, the id of a session of any agent or the first 8 or more characters of one, its
title, or a part of its title that no other has.
ENTRY is an entry's id, the beginning of it, or a label.

{EXIT_CODES}"""


# argparse looks for translations of its words, which Python does not have: in vain, in the file system, each time anew.
argparse._ = lambda text: text  # type: ignore[attr-defined]


class Options(argparse.Namespace):
    """What was asked for. `run` is the command's function."""

    run: Callable[[Options], int | None]
    json: bool
    home: str | None


class Parser(argparse.ArgumentParser):
    _is_parsing = False

    def parse_known_args(  # type: ignore[override]  # argparse has overloads
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Options may stand anywhere: also between arguments of which some can be left out, where argparse by itself
        takes the first ones for all there are."""
        if self._is_parsing or not self._can_be_mixed():
            return super().parse_known_args(args, namespace)
        self._is_parsing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_parsing = False

    def _can_be_mixed(self) -> bool:
        positionals = self._get_positional_actions()
        grouped = {id(action) for group in self._mutually_exclusive_groups for action in group._group_actions}
        return bool(positionals) and not any(
            action.nargs in (argparse.PARSER, argparse.REMAINDER) or id(action) in grouped for action in positionals
        )

    def error(self, message: str) -> NoReturn:
        """One line, and where to read more."""
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def parse(arguments: Sequence[str]) -> Options:
    if arguments and arguments[0] in SHORT_FOR:
        arguments = (*SHORT_FOR[arguments[0]], *arguments[1:])
    parser, commands = build(_needed(arguments))
    if not arguments or arguments[0] not in FREE_WORDS:
        return parser.parse_args(arguments, Options())
    chosen, words = _without_words(arguments[1:], commands[arguments[0]])
    # Some versions of argparse take a `--` away before the command sees it, so one stands for all words.
    options = parser.parse_args((arguments[0], *chosen, *(["words"] if words else [])), Options())
    options.query = words
    return options


def _without_words(arguments: Sequence[str], command: Parser) -> tuple[list[str], list[str]]:
    """The options of a command, and all other words.

    What begins with two hyphens and is no option is left among the options, so that a misspelt one is refused.
    """
    known = command._option_string_actions  # argparse tells it nowhere else
    options: list[str] = []
    words: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            words += waiting
        elif argument in known:
            options.append(argument)
            if known[argument].nargs is None:
                options += [value for value in [next(waiting, None)] if value is not None]
        elif argument.startswith("--"):
            options.append(argument)
        else:
            words.append(argument)
    return options, words


def build(names: Sequence[str]) -> tuple[Parser, dict[str, Parser]]:
    """The parser of the whole program, and those of some commands, by name."""
    parser = Parser(
        prog="sessiontree",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=_version(), help="print the version")
    parser.add_argument("-c", action="store_true", help="the same as `sessiontree continue`")
    parser.add_argument("-r", action="store_true", help="the same as `sessiontree continue -r`: choose from a list")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, prog=parser.prog)
    parsers: dict[str, Parser] = {}
    for name in names:
        module = command_module(name)
        command = parsers[name] = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.__doc__,
            epilog=module.EXAMPLES,
            formatter_class=_Help,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        told = getattr(module, "JSON", "print one JSON object")
        command.add_argument("--json", action="store_true", help=told)
        command.add_argument("--home", metavar="DIR", help="home folder of sessions (default: $SESSIONTREE_HOME)")
        command.set_defaults(run=module.run)
    return parser, parsers


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal. argparse would find out by itself, by way of a module that is slow to import."""

    def __init__(self, prog: str, **arguments: Any) -> None:
        super().__init__(prog, **{"width": terminal_columns(80) - 2, **arguments})


def _needed(arguments: Sequence[str]) -> Sequence[str]:
    """The commands whose arguments have to be known: the one that is asked for, or all, to tell about them."""
    first = arguments[0] if arguments else ""
    return (first,) if first in COMMANDS else COMMANDS


def command_module(command: str) -> ModuleType:
    """The module of a command: its name, unless that is a word of Python's own."""
    return importlib.import_module(
        f"sessiontree.cli.{command}_" if iskeyword(command) else f"sessiontree.cli.{command}"
    )


def add_read_options(parser: argparse.ArgumentParser) -> None:
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
    from sessiontree.cli.sessions import open_session
    from sessiontree.dialects.contract import ReadOptions

    return open_session(
        options, read_options=ReadOptions(recovered=options.recovered, as_of=options.as_of, snips=options.snips)
    )


def _version() -> str:
    from sessiontree import __version__

    return f"sessiontree {__version__}"
