"""Show the list of all commands, or the help of one command."""

from __future__ import annotations

import argparse

from sessiontree.cli import output
from sessiontree.cli.commands import COMMANDS, GROUPS, SUMMARIES
from sessiontree.cli.parser import Options, build_parsers, unknown_command

EXAMPLES = """examples:
  sessiontree help
  sessiontree help search"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", metavar="COMMAND", nargs="?", help="the command to explain (default: list all)")


def run(options: Options) -> None:
    name: str | None = options.command
    if name is not None and name not in COMMANDS:
        raise unknown_command(name)
    root, commands = build_parsers((name,) if name else ())
    if options.json and name is None:
        groups = [{"group": group, "commands": summaries} for group, summaries in GROUPS.items()]
        output.print_json({"groups": groups})
    elif options.json:
        assert name is not None
        output.print_json({"command": name, "summary": SUMMARIES[name], "help": commands[name].format_help()})
    else:
        output.print_lines((commands[name] if name else root).format_help().splitlines())
