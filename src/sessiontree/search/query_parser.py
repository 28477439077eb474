"""Parser of the query language.

Every string is a valid query: the parser never raises. What it cannot read as typed it reads as words, and explains
that in `Query.notes`.

Words are joined by AND. `OR` (or a lone `|`) binds its two neighbors only, so `parser error OR warning` means the
parser and one of the two. A filter applies to the whole query, wherever it is written. Text that only looks like a
filter (`http://x`, `std::vector`) is a word.

Parsing `query.to_text(query)` gives the same query. Case folding and tokenizing are not handled here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from sessiontree.core.durations import UNITS, parse_duration
from sessiontree.core.jsonio import replace_surrogates
from sessiontree.search.query import (
    BRANCHES,
    EPOCH,
    KINDS,
    NOT_NEGATED,
    QUOTES,
    STATES,
    And,
    Choice,
    Expression,
    Filters,
    Not,
    Or,
    Phrase,
    Query,
    Regex,
    Word,
    compile_regex,
)

MAX_TERMS = 100
"""Limit of words, phrases and patterns in one query: the user may have pasted a page by mistake."""

MAX_DEPTH = 32
FILTERS = (
    *("agent", "before", "branch", "file", "in", "is", "model", "project", "re", "role", "session", "since", "tag"),
    "tool",
)
_LISTS = {"role", "tool", "file", "agent", "project", "model", "tag", "session"}
_LOWERED = {"role", "agent", "in", "is", "branch"}

_OTHER_NAMES = {
    "after": "since",
    "cwd": "project",
    "date": "since",
    "dir": "project",
    "kind": "in",
    "path": "file",
    "until": "before",
}

_OPERATORS = {"OR", "|", "AND", "NOT"}
TIMES = f"an age (7d; units {UNITS}), a date or time (2026-11-01T09:30), today or yesterday"
_LAST_MILLISECOND = 253_402_300_799_999  # the end of the year 9999
_name = re.compile(r"([A-Za-z]+):")
_month = re.compile(r"(?P<year>\d{4})(?:-(?P<month>\d\d?))?\Z", re.ASCII)
_flags = re.compile(r"[A-Za-z]*")
_KNOWN_FLAGS = "ims"


def parse(text: str, *, now: datetime | None = None) -> Query:
    """Parse a query. Ages count from `now`; dates are in its time zone, by default the local one."""
    return _Parser(text, now).parse()


class _Group:
    """An open parenthesis, or the whole query, with the parts read so far."""

    def __init__(self, *, negated: bool = False) -> None:
        self.parts: list[Expression] = []
        self.negated = negated
        self.pending_or: int | None = None
        """Position of an OR whose right side has not been read yet."""
        self.pending_not: int | None = None
        self.last_filter = ""
        """Name of the filter right before the current position."""


class _Parser:
    """A single left-to-right pass with a stack of open parentheses."""

    def __init__(self, text: str, now: datetime | None) -> None:
        self.text = replace_surrogates(text).replace("\0", " ")
        self.now = now
        self.at = 0
        self.notes: list[str] = []
        self.refused: list[str] = []
        self.groups = [_Group()]
        self.ignored_groups = 0
        self.count = 0
        self.filters = Filters()

    def parse(self) -> Query:
        while self._skip_space():
            self._parse_next()
        if self.ignored_groups or len(self.groups) > 1:
            self._note(len(self.text), "unclosed parenthesis; closed at the end")
        while len(self.groups) > 1:
            self._close()
        self._note_dangling(self.groups[0])
        return Query(_joined(self.groups[0].parts), self.filters, tuple(self.notes), tuple(self.refused))

    # Lexing

    def _parse_next(self) -> None:
        start = self.at
        if self.text[start] == ")":
            self.at += 1
            self._parse_closing(start)
            return
        is_negated = self.text[start] == "-" and self._is_negation(start + 1)
        if is_negated:
            self._negate_next(start)
            self.at += 1
        here = self.text[self.at]
        if here == "(":
            self.at += 1
            self._parse_opening(start)
        elif here in QUOTES:
            self._parse_phrase(start)
        elif not self._parse_filter(start):
            self._parse_word(start, may_be_operator=not is_negated)

    def _is_negation(self, at: int) -> bool:
        return at < len(self.text) and not self.text[at].isspace() and self.text[at] not in NOT_NEGATED + ")"

    def _negate_next(self, start: int) -> None:
        """Negate the next part; a second negation cancels the first."""
        group = self.groups[-1]
        group.pending_not = start if group.pending_not is None else None

    def _parse_opening(self, start: int) -> None:
        if len(self.groups) > MAX_DEPTH:
            if not self.ignored_groups:
                self._note(start, f"more than {MAX_DEPTH} nested parentheses; the inner ones were ignored")
            self.ignored_groups += 1
            return
        negated = self.groups[-1].pending_not is not None
        self.groups[-1].pending_not = None
        self.groups.append(_Group(negated=negated))

    def _parse_closing(self, start: int) -> None:
        if self.ignored_groups:
            self.ignored_groups -= 1
        elif len(self.groups) > 1:
            self._close()
        else:
            self._note(start, "unmatched closing parenthesis; ignored")

    def _parse_phrase(self, start: int) -> None:
        phrase = self._quoted(start, "phrase")
        if phrase:
            self._add(Phrase(phrase), start)
        else:
            self._drop(start, "empty phrase; ignored")

    def _parse_word(self, start: int, *, may_be_operator: bool) -> None:
        typed = self._read_word()
        if typed in _OPERATORS and may_be_operator:
            self._parse_operator(typed, start)
            return
        text = typed.rstrip("*")
        if not text or text == "-":
            self._drop(start, f"{typed!r} alone is not a search term; ignored")
        elif text == typed and text in _OPERATORS:
            self._add(Phrase(text), start)  # a Word would have the same canonical text as the operator
        else:
            self._add(Word(text, prefix=text != typed), start)

    def _parse_operator(self, operator: str, start: int) -> None:
        group = self.groups[-1]
        if operator == "NOT":
            self._negate_next(start)
        elif operator != "AND":
            if group.pending_or is not None or not (group.parts or group.last_filter):
                self._note(start, f"{operator} has no left side; ignored")
            else:
                group.pending_or = start

    def _parse_filter(self, start: int) -> bool:
        """Parse a filter and its value at the current position. False: it only looks like a filter and is a word."""
        found = _name.match(self.text, self.at)
        if found is None:
            return False
        name = found[1].lower()
        if name not in FILTERS:
            self._note_misspelled(found)
            return False
        begin, notes_before = self.at, len(self.notes)
        self.at = found.end()
        taken = self._parse_regex(start) if name == "re" else self._parse_value(name, start)
        if not taken:
            del self.notes[
                notes_before:-1
            ]  # keep only the reason; a note about an unclosed quote makes no sense for a word
            self.at = begin
        return taken

    def _parse_regex(self, start: int) -> bool:
        if not self.text.startswith("/", self.at):
            if self.at < len(self.text) and not self.text[self.at].isspace():
                self._note(start, "re: expects a pattern between slashes, such as re:/a.*b/; read as a word")
            return False
        self.at += 1
        pattern = self._read_pattern(start)
        letters = _flags.match(self.text, self.at)
        typed = letters[0] if letters else ""
        self.at += len(typed)
        unknown = "".join(sorted({letter for letter in typed if letter not in _KNOWN_FLAGS}))
        if unknown:
            self._note(start, f"unknown flags {unknown!r} of a pattern (known: {', '.join(_KNOWN_FLAGS)}); ignored")
        if not pattern:
            self._drop(start, "empty pattern; ignored")
            return True
        why = _regex_error(pattern)
        if why:
            self._note(start, f"invalid pattern ({why}); searched for literally")
            pattern = re.escape(pattern)
        self._add(Regex(pattern, "".join(flag for flag in _KNOWN_FLAGS if flag in typed)), start)
        return True

    def _read_pattern(self, start: int) -> str:
        """Read a pattern up to its closing slash; a slash after a backslash is literal."""
        read: list[str] = []
        while self.at < len(self.text):
            here = self.text[self.at]
            if here == "/":
                self.at += 1
                return "".join(read)
            pair = self.text[self.at : self.at + 2] if here == "\\" else here
            read.append("/" if pair == "\\/" else pair)
            self.at += len(pair)
        self._note(start, "unclosed pattern; closed at the end")
        return "".join(read)

    def _parse_value(self, name: str, start: int) -> bool:
        quote = self.at if self.at < len(self.text) and self.text[self.at] in QUOTES else None
        value = self._read_word() if quote is None else self._quoted(start, "value")
        problem = self._value_problem(name, value, start)
        if problem is None:
            return True
        if quote is not None and self.at > len(self.text):  # never closed, so the quote is not a quote
            self.text = f"{self.text[:quote]} {self.text[quote + 1 :]}"
        self._note(start, f"{problem}; read as a word")
        if value:
            self.refused.append(problem)
        return False

    def _value_problem(self, name: str, value: str, start: int) -> str | None:
        """Store the value of a filter, or return why it is not valid."""
        if not value:
            return f"{name}: has no value"
        group = self.groups[-1]
        negated = group.pending_not is not None
        problem = self._filter(name, value.lower() if name in _LOWERED else value, negated=negated)
        if problem:
            return problem
        group.pending_not = None
        if any(group.negated for group in self.groups):
            self._note(start, f"{name}: applies to the whole query, even inside -( )")
        if group.pending_or is not None and group.last_filter != name:
            self._note(group.pending_or, "OR cannot join a filter with something else; ignored")
        group.pending_or = None
        group.last_filter = name
        return None

    def _quoted(self, start: int, kind: str) -> str:
        closing = QUOTES[self.text[self.at]]
        end = self.text.find(closing, self.at + 1)
        if end < 0:
            self._note(start, f"unclosed quote of a {kind}; closed at the end")
            end = len(self.text)
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        return inside.strip()

    def _read_word(self) -> str:
        """Read up to white space or the parenthesis that closes a group; balanced parentheses belong to the word."""
        begin = self.at
        own = 0
        is_grouped = len(self.groups) > 1 or self.ignored_groups > 0
        while self.at < len(self.text) and not self.text[self.at].isspace():
            if self.text[self.at] == "(":
                own += 1
            elif self.text[self.at] == ")":
                if not own and is_grouped:
                    break
                own = max(own - 1, 0)
            self.at += 1
        return self.text[begin : self.at]

    def _skip_space(self) -> bool:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.at < len(self.text)

    # Building the expression

    def _add(self, expression: Expression, start: int) -> None:
        self.count += 1
        if self.count > MAX_TERMS:
            if self.count == MAX_TERMS + 1:
                self._note(start, f"a query has at most {MAX_TERMS} words; the rest was ignored")
            self.groups[-1].pending_not = self.groups[-1].pending_or = None
            return
        self._put(expression)

    def _put(self, expression: Expression) -> None:
        """Join an expression to the part before it."""
        group = self.groups[-1]
        if group.pending_not is not None:
            expression = _negated(expression)
            group.pending_not = None
        if group.pending_or is not None and group.last_filter:
            self._note(group.pending_or, "OR cannot join a filter with something else; ignored")
            group.pending_or = None
        if group.pending_or is not None and group.parts:
            group.parts[-1] = _either(group.parts[-1], expression)
        else:
            group.parts.append(expression)
        group.pending_or = None
        group.last_filter = ""

    def _close(self) -> None:
        group = self.groups[-1]
        self._note_dangling(group)
        self.groups.pop()
        inside = _joined(group.parts)
        if inside is not None:
            self._put(_negated(inside) if group.negated else inside)
        elif group.last_filter:
            outer = self.groups[-1]
            outer.last_filter, outer.pending_or = group.last_filter, None
        else:
            self._drop(max(self.at - 1, 0), "empty parentheses; ignored")

    def _note_dangling(self, group: _Group) -> None:
        """Note operators that have no right side."""
        for waiting in (group.pending_or, group.pending_not):
            if waiting is not None:
                operator = "NOT" if waiting == group.pending_not else "OR"
                self._note(waiting, f"{operator} has no right side; ignored")

    def _drop(self, start: int, why: str) -> None:
        self._note(start, why)
        self.groups[-1].pending_not = self.groups[-1].pending_or = None

    def _filter(self, name: str, value: str, *, negated: bool) -> str:
        """Store a value in the filters, or return why it is not valid."""
        if name in _LISTS:
            self._choose(name, value, negated=negated)
        elif name == "in":
            if value not in KINDS:
                return f"in: expects one of {', '.join(KINDS)}, not {value!r}"
            self._choose("kinds", value, negated=negated)
        elif name == "is":
            if value not in STATES:
                return f"is: expects one of {', '.join(STATES)}, not {value!r}"
            self.filters = replace(self.filters, **{value: not negated})
        elif name == "branch":
            if value not in BRANCHES:
                return f"branch: expects {' or '.join(BRANCHES)}, not {value!r}"
            if negated:
                return "branch: cannot be negated; use is:abandoned for the other branches"
            self.filters = replace(self.filters, branch=value)
        else:
            at = parse_time(value, self.now)
            if at is None:
                return f"{name}: expects {TIMES}, not {value!r}"
            # A negated `since` is a `before`, and the other way round.
            self.filters = replace(self.filters, **{"since" if (name == "since") != negated else "before": at})
        return ""

    def _choose(self, field: str, value: str, *, negated: bool) -> None:
        choice: Choice = getattr(self.filters, field)
        values = choice.unwanted if negated else choice.wanted
        if value not in values:
            changed = replace(choice, **{"unwanted" if negated else "wanted": (*values, value)})
            self.filters = replace(self.filters, **{field: changed})

    # Notes

    def _note(self, at: int, text: str) -> None:
        self.notes.append(f"at character {at + 1}: {text}")

    def _note_misspelled(self, found: re.Match[str]) -> None:
        name = found[1].lower()
        value = self.text[found.end() : found.end() + 1]
        if not value or value.isspace() or not (value.isalnum() or value in QUOTES):
            return
        import difflib

        near = difflib.get_close_matches(name, FILTERS, n=1, cutoff=0.75)
        meant = _OTHER_NAMES.get(name) or (near[0] if near else "")
        if meant:
            self._note(found.start(), f"{name}: is not a filter and was read as a word; did you mean {meant}:?")


def _joined(parts: Sequence[Expression]) -> Expression | None:
    """Join parts with AND, without nesting."""
    flat: list[Expression] = []
    for part in parts:
        flat += part.parts if isinstance(part, And) else (part,)
    return And(tuple(flat)) if len(flat) > 1 else flat[0] if flat else None


def _either(left: Expression, right: Expression) -> Or:
    sides = [side.parts if isinstance(side, Or) else (side,) for side in (left, right)]
    return Or((*sides[0], *sides[1]))


def _negated(expression: Expression) -> Expression:
    return expression.of if isinstance(expression, Not) else Not(expression)


def _regex_error(pattern: str) -> str:
    """The reason why a pattern does not compile; empty if it does."""
    import regex

    try:
        compile_regex(Regex(pattern))
    except (regex.error, OverflowError, RecursionError) as error:
        return str(error) or "too deep"
    return ""


def parse_time(text: str, now: datetime | None = None) -> int | None:
    """Convert an age, a date, a time or the name of a day to milliseconds since 1970; None if it is invalid."""
    here = now or datetime.now()
    zone = here.tzinfo
    try:
        age = parse_duration(text)
        if age is not None:
            return _milliseconds(here, minus=timedelta(seconds=age.seconds))
        month = _month.match(text)
        if month is not None:
            return _milliseconds(datetime(int(month["year"]), int(month["month"] or 1), 1, tzinfo=zone))
        if text.lower() in ("today", "yesterday"):
            day = here - timedelta(days=text.lower() == "yesterday")
            return _milliseconds(day.replace(hour=0, minute=0, second=0, microsecond=0))
        found = datetime.fromisoformat(text.upper())
        return _milliseconds(found if found.tzinfo is not None else found.replace(tzinfo=zone))
    except (ValueError, OverflowError, OSError):  # no such day, or out of range
        return None


def _milliseconds(at: datetime, minus: timedelta = timedelta()) -> int:
    aware = at if at.tzinfo is not None else at.astimezone()
    passed = (aware - EPOCH - minus) // timedelta(milliseconds=1)
    return min(max(passed, 0), _LAST_MILLISECOND)
