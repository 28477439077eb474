"""Generate the reference page of the command line: `python -m sessiontree.cli.reference > PAGE`.

The page is built from the parsers' actions, not from `--help`, whose layout differs between Python versions and
terminal widths.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator, Sequence

from sessiontree.cli.commands import COMMANDS, GROUPS
from sessiontree.cli.parser import ARGUMENTS, DESCRIPTION, build_parsers, find_subcommands
from sessiontree.cli.stderr import EXIT_CODES

GENERATED_BY = "make docs"

# Options of every command, listed once.
_COMMON = frozenset({"help", "json", "home"})


def render_page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    root, commands = build_parsers(COMMANDS)
    yield "# Command line reference"
    yield ""
    yield f"Generated from the code by `{GENERATED_BY}`; do not edit it. [The command line](cli.md) has an overview."
    yield ""
    yield _escaped(DESCRIPTION)
    yield ""
    yield from _code(["sessiontree [-c | -r | --version] COMMAND ...", "stree ..."])
    yield from _rows("option", [action for action in root._actions if action.option_strings])
    yield from _epilog(ARGUMENTS)
    yield "Every command has:"
    yield ""
    yield from _rows("option", [action for action in commands[COMMANDS[0]]._actions if action.dest in _COMMON])
    yield from _exit_codes()
    yield "## Commands"
    for group, summaries in GROUPS.items():
        yield ""
        yield f"{group}:"
        yield ""
        yield from (f"* [`{name}`](#{name}): {_escaped(summary)}" for name, summary in summaries.items())
    for name, command in commands.items():
        yield ""
        yield from _subcommands(name, command) if find_subcommands(command) else _command(f"### {name}", command)


def _subcommands(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """A command with subcommands: its description and examples, then each subcommand."""
    yield f"### {name}"
    yield ""
    yield from _code([f"{parser.prog} SUBCOMMAND ..."])
    yield _escaped(inspect.cleandoc(parser.description or ""))
    yield ""
    (action,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for choice in action._choices_actions:
        yield f"* [`{choice.dest}`](#{name}-{choice.dest}): {_escaped(choice.help or '')}"
    yield ""
    yield from list(_epilog(parser.epilog or ""))[:-1]
    for subcommand, leaf in find_subcommands(parser).items():
        yield ""
        yield from _command(f"#### {name} {subcommand}", leaf)


def _command(heading: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest not in _COMMON]
    positionals = [action for action in shown if not action.option_strings]
    options = [action for action in shown if action.option_strings]
    yield heading
    yield ""
    yield from _code([_usage(parser, positionals, options)])
    yield _escaped(inspect.cleandoc(parser.description or ""))
    yield ""
    yield from _rows("argument", positionals)
    end = [*_rows("option", options), *(_epilog(parser.epilog) if parser.epilog else ())]
    yield from end[:-1]


def _usage(
    parser: argparse.ArgumentParser, positionals: Sequence[argparse.Action], options: Sequence[argparse.Action]
) -> str:
    """Positional arguments, then options; mutually exclusive ones share a pair of brackets."""
    parts = [parser.prog]
    seen: set[int] = set()
    for action in (*positionals, *options):
        if id(action) in seen:
            continue
        group = next((g for g in parser._mutually_exclusive_groups if action in g._group_actions), None)
        members = [member for member in group._group_actions if member.help != argparse.SUPPRESS] if group else [action]
        seen |= {id(member) for member in members}
        if group is None:
            parts.append(_bracketed(action))
        else:
            inside = " | ".join(_bare(member) for member in members)
            parts.append(f"({inside})" if group.required else f"[{inside}]")
    return " ".join([*parts, "[--json]", "[--home DIR]"])


def _bracketed(action: argparse.Action) -> str:
    bare = _bare(action)
    return bare if action.required and action.nargs != "*" else f"[{bare}]"


def _bare(action: argparse.Action) -> str:
    if action.option_strings:
        return " ".join(filter(None, [" | ".join(action.option_strings), _value(action)]))
    return _value(action) + ("..." if action.nargs in ("*", "+") else "")


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.metavar is not None:
        return " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()


def _rows(kind: str, actions: Sequence[argparse.Action]) -> Iterator[str]:
    """A table of arguments without its empty columns."""
    table = [(kind, "meaning", "choices", "default")]
    for action in actions:
        choices = ", ".join(f"`{choice}`" for choice in action.choices or ())
        table.append((f"`{_cell(_named(action))}`", _cell(_escaped(_help_text(action))), choices, _default(action)))
    kept = [at for at in range(len(table[0])) if any(row[at] for row in table[1:])]
    if kept in ([], [0]):
        return  # the usage line has the names already
    head, *rows = (f"| {' | '.join(row[at] for at in kept)} |" for row in table)
    yield head
    yield f"|{'---|' * len(kept)}"
    yield from rows
    yield ""


def _named(action: argparse.Action) -> str:
    if not action.option_strings:
        return _bare(action)
    names = ", ".join(action.option_strings)
    value = "" if action.nargs == 0 or (action.choices and action.metavar is None) else _value(action)
    return f"{names} {value}".rstrip()


def _help_text(action: argparse.Action) -> str:
    if isinstance(action, argparse._HelpAction):
        return "show the help"  # argparse's own text differs between versions
    return (action.help or "") % {**vars(action), "prog": "sessiontree"} + (
        " (required)" if _is_required(action) else ""
    )


def _is_required(action: argparse.Action) -> bool:
    return bool(action.option_strings) and action.required


def _default(action: argparse.Action) -> str:
    if action.nargs == 0 or action.default in (None, False, [], argparse.SUPPRESS):
        return ""
    return f"`{action.default}`"


def _epilog(text: str) -> Iterator[str]:
    """Examples as code blocks, other paragraphs as prose."""
    for paragraph in text.strip().split("\n\n"):
        heading, *lines = paragraph.split("\n")
        if heading == "examples:":
            yield from _code([line.removeprefix("  ") for line in lines])
        else:
            yield _escaped(paragraph)
            yield ""


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes"
    yield ""
    yield "| code | |"
    yield "|---|---|"
    for line in EXIT_CODES.splitlines()[1:]:
        code, _, meaning = line.strip().partition("  ")
        yield f"| {code} | {_cell(_escaped(meaning))} |"
    yield ""


def _code(lines: Sequence[str]) -> Iterator[str]:
    yield "```sh"
    yield from lines
    yield "```"
    yield ""


def _escaped(text: str) -> str:
    """Escape Markdown in prose; text in backquotes stays code."""
    return "".join(
        part if at % 2 else part.replace("\\", "\\\\").replace("<", "\\<").replace("*", "\\*").replace("_", "\\_")
        for at, part in enumerate(_parts(text))
    )


def _parts(text: str) -> list[str]:
    """Split into alternating prose and code parts; code keeps its backquotes."""
    pieces = text.split("`")
    return [f"`{piece}`" if at % 2 and at < len(pieces) - 1 else piece for at, piece in enumerate(pieces)]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render_page())
