"""Which argument is wanted at the end of some words. Goes by the actions of a parser, and reads nothing else.

The attributes with an underscore are argparse's own; every tool that looks into a parser uses them, and the tests run
over every command with them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Wanted:
    """What fits at the cursor."""

    action: argparse.Action | None = None
    """The argument whose value is wanted."""
    metavar: str = ""
    """What the help calls that value."""
    options: list[argparse.Action] = field(default_factory=list)
    """The options that can be named here."""
    before: str = ""
    """What stands in front of the value in the same word: `--sort=`."""
    typed: str = ""
    """What there is of the value."""
    given: dict[str, list[str]] = field(default_factory=dict)
    """Values on the line so far, by the name of their argument."""


def find_wanted(parser: argparse.ArgumentParser, words: Sequence[str]) -> Wanted:
    """What the last of some words may become; the ones before it are complete."""
    *done, last = words
    known = parser._option_string_actions
    positionals = [action for action in parser._actions if not action.option_strings]
    wanted = Wanted(typed=last)
    waiting: list[tuple[argparse.Action, str]] = []  # values that an option still has to get, the next one last
    used: list[argparse.Action] = []
    only_positionals = False

    for word in done:
        if waiting:
            wanted.given.setdefault(waiting.pop()[0].dest, []).append(word)
        elif word == "--" and not only_positionals:
            only_positionals = True
        elif _is_option(word) and not only_positionals:
            name, equals, value = word.partition("=")
            action = known.get(name)
            if action is None:
                continue
            used.append(action)
            if equals:
                wanted.given.setdefault(action.dest, []).append(value)
            else:
                waiting = [(action, metavar) for metavar in reversed(_metavars(action))]
        elif positionals:
            action = positionals[0]
            used.append(action)
            wanted.given.setdefault(action.dest, []).append(word)
            if action.nargs not in ("*", "+"):
                positionals.pop(0)

    if waiting:
        wanted.action, wanted.metavar = waiting[-1]
    elif _is_option(last, also_alone=True) and not only_positionals:
        name, equals, value = last.partition("=")
        if equals and name in known:
            wanted.action, wanted.metavar = known[name], "".join(_metavars(known[name])[:1])
            wanted.before, wanted.typed = f"{name}=", value
        else:
            wanted.options = _left(parser, used)
    elif positionals:
        wanted.action, wanted.metavar = positionals[0], "".join(_metavars(positionals[0])[:1])
    elif not last and not only_positionals:
        wanted.options = _left(parser, used)
    return wanted


def is_repeatable(action: argparse.Action) -> bool:
    return isinstance(action, argparse._AppendAction)


def _is_option(word: str, *, also_alone: bool = False) -> bool:
    return word.startswith("-") and (also_alone or word != "-")


def _metavars(action: argparse.Action) -> list[str]:
    """What the help calls each value of an argument; nothing for a switch."""
    if action.nargs == 0:
        return []
    names = action.metavar if isinstance(action.metavar, tuple) else (action.metavar or action.dest.upper(),)
    return [names[min(at, len(names) - 1)] for at in range(action.nargs if isinstance(action.nargs, int) else 1)]


def _left(parser: argparse.ArgumentParser, used: Sequence[argparse.Action]) -> list[argparse.Action]:
    """Options that can still be given: shown in the help, not given yet, at odds with nothing that was."""
    closed = {id(action) for action in used if not is_repeatable(action)}
    for group in parser._mutually_exclusive_groups:
        if any(action in used for action in group._group_actions):
            closed |= {id(action) for action in group._group_actions}
    return [
        action
        for action in parser._actions
        if action.option_strings and action.help != argparse.SUPPRESS and id(action) not in closed
    ]
