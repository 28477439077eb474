"""Complete the words of a line, in the protocol that the shells' scripts read.

The reply is lines of text. The first is what the shell should complete itself if there are no candidates: `files`,
`folders` or `nothing`. Each other line is a candidate and, after a tab, its description.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from sessiontree.cli.commands import COMMANDS, SUMMARIES
from sessiontree.cli.completion import candidates
from sessiontree.cli.completion.position import Position, find_position
from sessiontree.cli.parser import SHORTCUTS, build_parsers
from sessiontree.views.text import clean, cut, one_line

Fallback = Literal["files", "folders", "nothing"]

_DESCRIPTION_COLUMNS = 60

# Names of values in the help -> what the shell can complete. A session can be given as a path; for SESSION|DIR,
# completing files leads to both.
FALLBACKS: dict[str, Fallback] = {
    "SESSION": "files",
    "S": "files",
    "FILE": "files",
    "NEW": "files",
    "DIR": "folders",
    "OLD": "folders",
}
SESSIONS = frozenset({"SESSION", "S"})
AGENT_ARGUMENTS = frozenset({"agent", "dialect", "to"})


class Candidate(NamedTuple):
    """A candidate word and its description.

    Both may be session content, which is untrusted. A word that is not plainly printable, or could be taken for an
    option, is not offered; the shell quotes the others when it inserts them. Descriptions are cleaned, and no shell
    evaluates them.
    """

    word: str
    description: str = ""

    @property
    def is_safe(self) -> bool:
        return bool(self.word) and self.word.isprintable() and clean(self.word) == self.word

    @property
    def line(self) -> str:
        description = cut(one_line(self.description), _DESCRIPTION_COLUMNS)
        return f"{self.word}\t{description}" if description else self.word


def complete_line(words: Sequence[str]) -> Iterator[str]:
    """Complete the last of the words after the program's name."""
    words = words or ("",)
    if words[0] in SHORTCUTS and len(words) > 1:
        words = (*SHORTCUTS[words[0]], *words[1:])
    if len(words) == 1:
        yield "nothing"
        yield from (candidate.line for candidate in _first_words(words[0]))
    elif words[0] in COMMANDS:
        _, commands = build_parsers(words[:1])
        position = find_position(commands[words[0]], words[1:])
        yield _fallback(position)
        yield from (candidate.line for candidate in _candidates(position))
    else:
        yield "nothing"


def _first_words(typed: str) -> Iterator[Candidate]:
    """Root options, or commands."""
    if typed.startswith("-"):
        yield from _option_names(find_position(build_parsers(())[0], [typed]))
        return
    for name in COMMANDS:
        if name.startswith(typed):
            yield Candidate(name, SUMMARIES[name])


def _fallback(position: Position) -> Fallback:
    if isinstance(position.action, argparse._SubParsersAction):
        return "nothing" if position.action.default is None else "files"
    if position.action is None or position.action.choices or position.action.dest in AGENT_ARGUMENTS:
        return "nothing"
    fallbacks = [FALLBACKS[name] for name in position.metavar.split("|") if name in FALLBACKS]
    return "files" if "files" in fallbacks else fallbacks[0] if fallbacks else "nothing"


def _candidates(position: Position) -> Iterator[Candidate]:
    if position.action is None:
        yield from _option_names(position)
        return
    for word, description in _values(position.action, position):
        candidate = Candidate(f"{position.prefix}{word}", description)
        if word.startswith(position.typed) and not word.startswith("-") and candidate.is_safe:
            yield candidate


def _option_names(position: Position) -> Iterator[Candidate]:
    """Option names; only the long ones of an option that has several."""
    for action in position.options:
        for name in [name for name in action.option_strings if name.startswith("--")] or action.option_strings:
            if name.startswith(position.typed):
                yield Candidate(name, action.help or "")


def _values(action: argparse.Action, position: Position) -> Iterator[candidates.Value]:
    if isinstance(action, argparse._SubParsersAction):
        yield from ((choice.dest, choice.help or "") for choice in action._choices_actions)
        if action.default is not None:  # the subcommand can be left out, so that the session comes first
            yield from candidates.iter_sessions(position.given)
    elif action.choices:
        yield from ((str(choice), "") for choice in action.choices)
    elif action.dest in AGENT_ARGUMENTS:
        yield from candidates.iter_dialects()
    elif SESSIONS & set(position.metavar.split("|")) and "/" not in position.typed:
        yield from candidates.iter_sessions(position.given)
    elif position.metavar == "ENTRY":
        yield from candidates.iter_entries(position.given, position.typed)
    elif position.metavar == "ITEM":
        yield from candidates.iter_archived(position.given)
    elif position.metavar == "KEY":
        yield from candidates.iter_settings()
