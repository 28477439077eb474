"""The parsed form of a search query, and its canonical text."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    import regex
KINDS = ("prompt", "answer", "thinking", "input", "output", "summary", "title", "label")
"""Values of `in:`, the kinds of text in a session. `input` and `output` are those of tools."""

STATES = ("error", "abandoned", "pinned")
"""Values of `is:`."""

BRANCHES = ("all", "active")
QUOTES = {'"': '"', "“": "”"}
NOT_NEGATED = "->="  # `--json`, `->` and `-=` are search words: a leading dash does not negate them
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Word(Struct, frozen=True):
    """One word as typed; with `prefix`, every word that begins with it (`pars*`)."""

    text: str
    prefix: bool = False


class Phrase(Struct, frozen=True):
    """One or more words next to each other, in this order."""

    text: str


class Regex(Struct, frozen=True):
    """A regular expression that compiles. `flags` is a subset of `i`, `m` and `s`, in that order."""

    pattern: str
    flags: str = ""


class Not(Struct, frozen=True):
    """Negation. Never contains another `Not`."""

    of: Expression


class And(Struct, frozen=True):
    """Conjunction of two or more parts, none of them an `And`."""

    parts: tuple[Expression, ...]


class Or(Struct, frozen=True):
    """Disjunction of two or more parts, none of them an `Or`. A part may be a `Not`."""

    parts: tuple[Expression, ...]


Term: TypeAlias = Word | Phrase | Regex
Expression: TypeAlias = Word | Phrase | Regex | Not | And | Or


class Choice(Struct, frozen=True):
    """The values of one filter: any of `wanted` (everything if it is empty), and none of `unwanted`."""

    wanted: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.wanted or self.unwanted)

    def accepts(self, fits: Callable[[str], bool]) -> bool:
        """Whether a text passes, given a test for one of the values."""
        return (not self.wanted or any(map(fits, self.wanted))) and not any(map(fits, self.unwanted))


class Filters(Struct, frozen=True):
    """Filters of the whole query. Values are as typed; those of `role`, `agent` and `kinds` are lowercase."""

    role: Choice = Choice()
    tool: Choice = Choice()
    file: Choice = Choice()
    agent: Choice = Choice()
    project: Choice = Choice()
    model: Choice = Choice()
    tag: Choice = Choice()
    session: Choice = Choice()
    """Ids or prefixes of ids of sessions."""
    kinds: Choice = Choice()
    """Of `KINDS` (`in:thinking`)."""
    since: int | None = None
    """Inclusive lower bound; milliseconds since 1970."""
    before: int | None = None
    """Exclusive upper bound; milliseconds since 1970."""
    error: bool | None = None
    """True: errors only (`is:error`); False: no errors (`-is:error`)."""
    abandoned: bool | None = None
    """True: abandoned branches only; False: everything else."""
    pinned: bool | None = None
    """True: pinned sessions only; False: all others."""
    branch: Literal["all", "active"] = "all"


class Query(Struct, frozen=True):
    """A parsed query. Without `where`, everything that passes the filters matches."""

    where: Expression | None = None
    filters: Filters = Filters()
    notes: tuple[str, ...] = ()
    """Messages to the user about parts of the query that were not read as typed."""
    refused: tuple[str, ...] = ()
    """Those of the notes about a filter with an unknown value, with the known ones; front ends may refuse the query."""


def to_text(query: Query) -> str:
    """Render a query in canonical form, expression first, then filters. Parsing it gives the same query."""
    parts = [] if query.where is None else [_expression_text(query.where)]
    filters = query.filters
    for name, choice in _choices(filters):
        parts += [f"{name}:{_quoted(value)}" for value in choice.wanted]
        parts += [f"-{name}:{_quoted(value)}" for value in choice.unwanted]
    for name, at in (("since", filters.since), ("before", filters.before)):
        if at is not None:
            parts.append(f"{name}:{_time_text(at)}")
    for name, state in (("error", filters.error), ("abandoned", filters.abandoned), ("pinned", filters.pinned)):
        if state is not None:
            parts.append(f"{'' if state else '-'}is:{name}")
    if filters.branch != "all":
        parts.append(f"branch:{filters.branch}")
    return " ".join(parts)


def terms(expression: Expression | None) -> list[Term]:
    """Every word, phrase and regular expression that is not negated, in order."""
    match expression:
        case None | Not():
            return []
        case And(parts) | Or(parts):
            return [term for part in parts for term in terms(part)]
        case _:
            return [expression]


@lru_cache(maxsize=64)
def compile_regex(expression: Regex) -> regex.Pattern[str]:
    """Compile a regular expression with the `regex` package, which can stop a search after a time limit."""
    import regex  # takes 35 ms, and most queries have no pattern

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about syntax whose meaning may change in a later version
        return regex.compile(expression.pattern, sum(getattr(regex, flag.upper()) for flag in expression.flags))


def _time_text(milliseconds: int) -> str:
    at = EPOCH + timedelta(milliseconds=milliseconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _choices(filters: Filters) -> list[tuple[str, Choice]]:
    names = ("role", "tool", "file", "agent", "project", "model", "tag", "session")
    return [*((name, getattr(filters, name)) for name in names), ("in", filters.kinds)]


def _expression_text(expression: Expression) -> str:
    match expression:
        case Word(text, prefix):
            return text + "*" * prefix
        case Phrase(text):
            return f"“{text}”" if '"' in text else f'"{text}"'
        case Regex(pattern, flags):
            escaped = re.sub(r"(\\.)|/", lambda found: found[1] or "\\/", pattern, flags=re.DOTALL)
            return f"re:/{escaped}/{flags}"
        case Not(Word(text) as word) if text[0] in NOT_NEGATED:
            return f"NOT {_expression_text(word)}"
        case Not(of):
            return f"-{_grouped(of) if isinstance(of, And | Or) else _expression_text(of)}"
        case And(parts):
            return " ".join(map(_expression_text, parts))
        case Or(parts):
            return " OR ".join(_grouped(part) if isinstance(part, And) else _expression_text(part) for part in parts)


def _grouped(expression: Expression) -> str:
    inside = _expression_text(expression)
    # Without the space, a last word with an open parenthesis would take the one that closes the group.
    return f"({inside} )" if "(" in inside.rpartition(" ")[2] else f"({inside})"


def _quoted(value: str) -> str:
    if value[0] not in QUOTES and not any(map(str.isspace, value)):
        return value
    return f"“{value}”" if '"' in value else f'"{value}"'
