"""The words of a line -> what the scripts of the shells read.

An answer is lines of text. The first says what the shell offers by itself when there is nothing else: `files`,
`folders` or `nothing`. Each of the others is a word that fits, and behind a TAB what is said about it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from sessiontree.cli.commands import COMMANDS, SUMMARIES
from sessiontree.cli.completion import candidates
from sessiontree.cli.completion.position import Wanted, find_wanted
from sessiontree.cli.parser import SHORTCUTS, build_parsers
from sessiontree.views.text import clean, cut, one_line

Fallback = Literal["files", "folders", "nothing"]

_SAID_COLUMNS = 60

# What the help calls a value -> what the shell knows to complete. Paths of sessions are files, too; and where a file or
# a folder may stand (SESSION|DIR), files are what leads to both.
PLACES: dict[str, Fallback] = {
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
    """A word that can stand there, and what is said about it.

    Both may come from a session. A word with anything in it that a terminal does not print as it is, or that could be
    taken for an option, is not offered at all; the shell quotes the rest when it puts it on the line. What is said is
    made clean, and no shell ever evaluates it.
    """

    word: str
    said: str = ""

    @property
    def is_harmless(self) -> bool:
        return bool(self.word) and self.word.isprintable() and clean(self.word) == self.word

    @property
    def line(self) -> str:
        said = cut(one_line(self.said), _SAID_COLUMNS)
        return f"{self.word}\t{said}" if said else self.word


def answer(words: Sequence[str]) -> Iterator[str]:
    """The answer to the words behind the program's name, of which the last is the one at the cursor."""
    words = words or ("",)
    if words[0] in SHORTCUTS and len(words) > 1:
        words = (*SHORTCUTS[words[0]], *words[1:])
    if len(words) == 1:
        yield "nothing"
        yield from (one.line for one in _first_words(words[0]))
    elif words[0] in COMMANDS:
        _, commands = build_parsers(words[:1])
        wanted = find_wanted(commands[words[0]], words[1:])
        yield _fallback(wanted)
        yield from (one.line for one in _fitting(wanted))
    else:
        yield "nothing"


def _first_words(typed: str) -> Iterator[Candidate]:
    """The options of the program itself, or the commands."""
    if typed.startswith("-"):
        yield from _named(find_wanted(build_parsers(())[0], [typed]))
        return
    for name in COMMANDS:
        if name.startswith(typed):
            yield Candidate(name, SUMMARIES[name])


def _fallback(wanted: Wanted) -> Fallback:
    if wanted.action is None or wanted.action.choices or wanted.action.dest in AGENT_ARGUMENTS:
        return "nothing"
    fitting = [PLACES[name] for name in wanted.metavar.split("|") if name in PLACES]
    return "files" if "files" in fitting else fitting[0] if fitting else "nothing"


def _fitting(wanted: Wanted) -> Iterator[Candidate]:
    if wanted.action is None:
        yield from _named(wanted)
        return
    for word, said in _values(wanted.action, wanted):
        candidate = Candidate(f"{wanted.before}{word}", said)
        if word.startswith(wanted.typed) and not word.startswith("-") and candidate.is_harmless:
            yield candidate


def _named(wanted: Wanted) -> Iterator[Candidate]:
    """Options by their names; of several names of one, the long ones."""
    for action in wanted.options:
        for name in [name for name in action.option_strings if name.startswith("--")] or action.option_strings:
            if name.startswith(wanted.typed):
                yield Candidate(name, action.help or "")


def _values(action: argparse.Action, wanted: Wanted) -> Iterator[candidates.Value]:
    if action.choices:
        yield from ((str(choice), "") for choice in action.choices)
    elif action.dest in AGENT_ARGUMENTS:
        yield from candidates.iter_dialects()
    elif SESSIONS & set(wanted.metavar.split("|")) and "/" not in wanted.typed:
        yield from candidates.iter_sessions(wanted.given)
    elif wanted.metavar == "ENTRY":
        yield from candidates.iter_entries(wanted.given, wanted.typed)
    elif wanted.metavar == "ITEM":
        yield from candidates.iter_archived(wanted.given)
    elif wanted.metavar == "KEY":
        yield from candidates.iter_settings()
