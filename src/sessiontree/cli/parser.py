"""The argument parser. Each command's module adds its own arguments and provides the function that runs it."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from types import ModuleType
from typing import Any, NoReturn

from sessiontree.cli.commands import ALIASES, COMMANDS, GROUPS, SUMMARIES
from sessiontree.cli.output import terminal_columns
from sessiontree.cli.stderr import EXIT_CODES
from sessiontree.errors import UsageError

# Root options that are short for a command.
SHORTCUTS = {"-c": ("continue",), "-r": ("continue", "-r")}

# Commands whose arguments are a query: a word may begin with a hyphen, and options may come between words.
QUERY_COMMANDS = frozenset({"search", "history"})

DESCRIPTION = (
    "Read, resume, branch, search and repair the sessions of coding agents. Each session is a tree of messages."
)
_EXAMPLES = """examples:
  sessiontree list --since 7d
  sessiontree tree 019c2f3a
  sessiontree search "json flag" --context 1"""
ARGUMENTS = """SESSION is the path of a session file, a session id or a prefix of it, or a title. Part
of a title is enough if it matches only one session.

ENTRY is an entry id, its first characters, or a label."""

# Help for arguments that mean the same in every command, by the name that is shown.
_COMMON_HELP = {
    "SESSION": "path, id, first characters of an id, or title",
    "ENTRY": "entry id, its first characters, or a label",
    "LANE": "number or name of a lane",
}

# Arguments with free text, by their attribute: only these may be empty. Any other empty value is a mistake, often an
# unset shell variable, and must not mean the current folder or the default.
_FREE_TEXT = frozenset({"instructions", "name", "note", "prompt", "query", "text", "value"})

_WIDEST_PROSE = 100

# argparse looks up a translation for each of its texts, in the file system, although Python ships none.
argparse._ = lambda text: text  # type: ignore[attr-defined]


class Options(argparse.Namespace):
    """Parsed arguments. `run` is the command's function."""

    run: Callable[[Options], int | None]
    json: bool
    home: str | None


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that accepts options between positional arguments and raises `UsageError`."""

    _is_parsing = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        # argparse's own messages name the Python function: "invalid int value".
        self.register("type", int, _parse_whole_number)
        self.register("type", float, _parse_number)

    def parse_known_args(  # type: ignore[override]  # argparse has overloads
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        if self._is_parsing:
            return super().parse_known_args(args, namespace)
        # Without this, argparse assigns the positional arguments before an option to all optional positionals, and
        # rejects those after it.
        parse = self.parse_known_intermixed_args if self._supports_intermixed() else super().parse_known_args
        self._is_parsing = True
        try:
            options, unknown = parse(args, namespace)
        finally:
            self._is_parsing = False
        if unknown:  # else the root parser would report them, and name its own help
            option = next((word for word in unknown if word.startswith("--")), "")
            known = [name[2:] for name in self._option_string_actions if name.startswith("--")]
            close = find_similar(option[2:].partition("=")[0], known)
            if close:
                self.error(f"unknown option '{option}'; did you mean '--{close}'?")
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def _supports_intermixed(self) -> bool:
        positionals = self._get_positional_actions()
        grouped = {id(action) for group in self._mutually_exclusive_groups for action in group._group_actions}
        return bool(positionals) and not any(
            action.nargs in (argparse.PARSER, argparse.REMAINDER) or id(action) in grouped for action in positionals
        )

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        is_subcommand = action.nargs in (argparse.PARSER, argparse.REMAINDER)  # parsed again by its own parser
        if "" in arg_strings and not is_subcommand and action.dest not in _FREE_TEXT:
            name = action.option_strings[-1] if action.option_strings else action.metavar or action.dest
            self.error(f"{name}: the value is empty")
        return super()._get_values(action, arg_strings)  # argparse has no public hook

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        name = "/".join(action.option_strings) or action.metavar or action.dest
        choices = list(map(str, action.choices))
        close = find_similar(str(value), choices)
        hint = f"did you mean '{close}'?" if close else f"choose from {', '.join(choices)}"
        self.error(f"{name}: unknown value '{value}'; {hint}")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message.removeprefix('argument ')} (see `{self.prog} --help`)")


def _parse_whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs of prose, keeps indented lines (examples) as they are."""

    def __init__(self, prog: str, **arguments: Any) -> None:
        # argparse would find the width itself with `shutil`, which is slow to import.
        super().__init__(prog, **{"width": terminal_columns(80) - 2, **arguments})

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip("\n").split("\n\n")
        wrap = super(argparse.RawDescriptionHelpFormatter, self)._fill_text
        return "\n\n".join(
            paragraph if "\n  " in paragraph else wrap(paragraph, min(width, _WIDEST_PROSE), indent)
            for paragraph in paragraphs
        )


def parse(arguments: Sequence[str]) -> Options:
    if arguments and arguments[0] in SHORTCUTS:
        arguments = (*SHORTCUTS[arguments[0]], *arguments[1:])
    if not arguments:
        return _parse_default()
    name = arguments[0]
    if name not in COMMANDS and not name.startswith("-"):
        raise unknown_command(name)
    parser, commands = build_parsers((name,) if name in COMMANDS else ())
    if name not in COMMANDS and name not in parser._option_string_actions:
        parser.error(f"unknown option '{name}'; the options of a command come after its name")
    if name not in QUERY_COMMANDS:
        return parser.parse_args(_with_default_subcommand(arguments, commands), Options())
    options_part, words = _split_query(arguments[1:], commands[name])
    # Some versions of argparse remove a `--` before the command's parser sees it, so it gets a placeholder.
    options = parser.parse_args((name, *options_part, *(["words"] if words else [])), Options())
    options.query = words
    return options


def _parse_default() -> Options:
    """The options of `sessiontree` without a command: the terminal UI or, without one, the list of sessions."""
    from sessiontree.cli.ui import run_default

    parser, _ = build_parsers(("list",))
    options = parser.parse_args(("list",), Options())
    options.run = run_default
    return options


def unknown_command(name: str) -> UsageError:
    """The error for a name that is not a command, with a suggestion if one is close."""
    suggestion = ALIASES.get(name.lower()) or find_similar(name.lower(), list(COMMANDS))
    hint = f"did you mean '{suggestion}'?" if suggestion else "`sessiontree help` lists all commands"
    return UsageError(f"unknown command '{name}'; {hint}")


def find_similar(word: str, words: Sequence[str]) -> str | None:
    """The word that a misspelled one probably means."""
    from difflib import get_close_matches  # only on error paths

    return next(iter(get_close_matches(word, words, n=1, cutoff=0.6)), None)


def _split_query(arguments: Sequence[str], command: Parser) -> tuple[list[str], list[str]]:
    """Split the arguments of a command into options and query words.

    An unknown word with two hyphens counts as an option, so that argparse rejects it.
    """
    known = command._option_string_actions  # argparse has no public way to list options
    options: list[str] = []
    words: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            words += remaining
        elif argument in known:
            options.append(argument)
            if known[argument].nargs is None:
                options += [value for value in [next(remaining, None)] if value is not None]
        elif argument.startswith("--"):
            options.append(argument)
        else:
            words.append(argument)
    return options, words


def build_parsers(names: Sequence[str]) -> tuple[Parser, dict[str, Parser]]:
    """The root parser, and the parsers of some commands by name."""
    root = Parser(
        prog="sessiontree",
        usage="sessiontree [-h] [--version] [-c | -r] COMMAND ...",
        description=DESCRIPTION,
        epilog="\n\n".join([*map(_group_help, GROUPS), _EXAMPLES, ARGUMENTS, EXIT_CODES]),
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
    )
    root.add_argument("--version", action="version", version=_version(), help="print the version")
    root.add_argument("-c", action="store_true", help="the same as `sessiontree continue`")
    root.add_argument("-r", action="store_true", help="the same as `sessiontree continue -r`: choose from a list")
    subparsers = root.add_subparsers(metavar="COMMAND", required=True, prog=root.prog, help=argparse.SUPPRESS)
    parsers: dict[str, Parser] = {}
    for name in names:
        module = _command_module(name)
        command = parsers[name] = subparsers.add_parser(
            name,
            description=module.__doc__,
            epilog=module.EXAMPLES,
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        for leaf in find_subcommands(command).values() or [command]:
            leaf.add_argument("--json", action="store_true", help=getattr(module, "JSON", "print one JSON object"))
            leaf.add_argument(
                "--home", metavar="DIR", help="home folder, or address such as memory:team (default: $SESSIONTREE_HOME)"
            )
            for action in leaf._get_positional_actions():
                action.help = action.help or _COMMON_HELP.get(str(action.metavar))
        command.set_defaults(run=module.run)
    return root, parsers


def _command_module(name: str) -> ModuleType:
    """The module that implements a command. One named like a Python keyword has an underscore after its name."""
    return importlib.import_module(f"sessiontree.cli.{name}_" if iskeyword(name) else f"sessiontree.cli.{name}")


def add_subcommand(subcommands: Any, name: str, summary: str, description: str) -> Parser:
    """Add the parser of a subcommand that works on one session, such as `explore keep`."""
    parser: Parser = subcommands.add_parser(
        name, help=summary, description=description, formatter_class=_HelpFormatter, allow_abbrev=False
    )
    parser.add_argument("session", metavar="SESSION")
    return parser


def find_subcommands(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    """The parsers of a command's subcommands by name; empty if it has none."""
    action = _subcommand_action(parser)
    return {} if action is None else action.choices


def _subcommand_action(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[Parser] | None:
    return next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)


def _with_default_subcommand(arguments: Sequence[str], commands: Mapping[str, Parser]) -> Sequence[str]:
    """Arguments with the subcommand that may be left out: `explore SESSION` is `explore start SESSION`."""
    command = commands.get(arguments[0]) if len(arguments) > 1 else None
    action = _subcommand_action(command) if command is not None else None
    if action is None or action.default is None or arguments[1] in (*action.choices, "-h", "--help"):
        return arguments
    return (arguments[0], action.default, *arguments[1:])


def _group_help(group: str) -> str:
    width = max(map(len, COMMANDS))
    return "\n".join([f"{group}:", *(f"  {name:{width}}  {SUMMARIES[name]}" for name in GROUPS[group])])


def _version() -> str:
    from sessiontree import __version__

    return f"sessiontree {__version__}"
