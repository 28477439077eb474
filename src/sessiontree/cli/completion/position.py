"""Find which argument is being completed, from the words of the line and the actions of a parser.

argparse has no public way to list a parser's actions, so private attributes are used; tests cover every command.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Position:
    """What can be completed at the cursor."""

    action: argparse.Action | None = None
    """The argument whose value is completed."""
    metavar: str = ""
    """The name of that value in the help."""
    options: list[argparse.Action] = field(default_factory=list)
    """Options that can be given here."""
    prefix: str = ""
    """The part of the word before the value: `--sort=`."""
    typed: str = ""
    """The part of the value that was typed."""
    given: dict[str, list[str]] = field(default_factory=dict)
    """Values on the line so far, by argument name."""


def find_position(parser: argparse.ArgumentParser, words: Sequence[str]) -> Position:
    """What the last word can become; the words before it are complete."""
    *done, last = words
    known = parser._option_string_actions
    positionals = [action for action in parser._actions if not action.option_strings]
    position = Position(typed=last)
    pending: list[tuple[argparse.Action, str]] = []  # values an option still needs, the next one last
    used: list[argparse.Action] = []
    only_positionals = False

    for at, word in enumerate(done):
        if pending:
            position.given.setdefault(pending.pop()[0].dest, []).append(word)
        elif word == "--" and not only_positionals:
            only_positionals = True
        elif _is_option(word) and not only_positionals:
            name, equals, value = word.partition("=")
            action = known.get(name)
            if action is None:
                continue
            used.append(action)
            if equals:
                position.given.setdefault(action.dest, []).append(value)
            else:
                pending = [(action, metavar) for metavar in reversed(_metavars(action))]
        elif positionals:
            action = positionals[0]
            if isinstance(action, argparse._SubParsersAction):
                if word in action.choices:
                    return find_position(action.choices[word], words[at + 1 :])
                if action.default is not None:  # the subcommand was left out
                    return find_position(action.choices[action.default], words[at:])
            used.append(action)
            position.given.setdefault(action.dest, []).append(word)
            if action.nargs not in ("*", "+"):
                positionals.pop(0)

    if pending:
        position.action, position.metavar = pending[-1]
    elif _is_option(last, also_alone=True) and not only_positionals:
        name, equals, value = last.partition("=")
        if equals and name in known:
            position.action, position.metavar = known[name], "".join(_metavars(known[name])[:1])
            position.prefix, position.typed = f"{name}=", value
        else:
            position.options = _available_options(parser, used)
    elif positionals:
        position.action, position.metavar = positionals[0], "".join(_metavars(positionals[0])[:1])
    elif not last and not only_positionals:
        position.options = _available_options(parser, used)
    return position


def is_repeatable(action: argparse.Action) -> bool:
    return isinstance(action, argparse._AppendAction)


def _is_option(word: str, *, also_alone: bool = False) -> bool:
    return word.startswith("-") and (also_alone or word != "-")


def _metavars(action: argparse.Action) -> list[str]:
    """The name of each value of an argument; none for a flag."""
    if action.nargs == 0:
        return []
    names = action.metavar if isinstance(action.metavar, tuple) else (action.metavar or action.dest.upper(),)
    return [names[min(at, len(names) - 1)] for at in range(action.nargs if isinstance(action.nargs, int) else 1)]


def _available_options(parser: argparse.ArgumentParser, used: Sequence[argparse.Action]) -> list[argparse.Action]:
    """Options that can still be given: documented, not used yet, not excluded by a used one."""
    unavailable = {id(action) for action in used if not is_repeatable(action)}
    for group in parser._mutually_exclusive_groups:
        if any(action in used for action in group._group_actions):
            unavailable |= {id(action) for action in group._group_actions}
    return [
        action
        for action in parser._actions
        if action.option_strings and action.help != argparse.SUPPRESS and id(action) not in unavailable
    ]
