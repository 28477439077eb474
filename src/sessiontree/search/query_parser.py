"""The query language: a line of text as typed -> what it asks for. No index, no tokens, no folding of case here.

Rules. Every string is a query: nothing here raises, and what cannot be meant as it stands is taken otherwise, with a
sentence in `Query.notes`. Words stand for themselves and all have to be there; `OR` (or a `|` on its own) joins its two
neighbours and nothing else, so `parser error OR warning` asks for the parser and one of the two. A filter counts for
the whole query, wherever it stands. What only looks like a filter (`http://x`, `std::vector`) is a word.

`to_text` writes a query in one fixed manner; it means the same again when it is parsed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from sessiontree.library.summary import whole_text

if TYPE_CHECKING:
    import regex

MOST_TERMS = 100
"""Words, phrases and patterns that one query may have; a pasted page is no query."""
DEEPEST_GROUP = 32

KINDS = ("prompt", "answer", "thinking", "input", "output", "summary", "title", "label")
"""What `in:` knows: the kinds of text in a session. `input` and `output` are those of tools."""
STATES = ("error", "abandoned")
"""What `is:` knows."""
BRANCHES = ("all", "active")
FILTERS = ("agent", "before", "branch", "file", "in", "is", "model", "project", "re", "role", "since", "tool")

_LISTS = {"role", "tool", "file", "agent", "project", "model"}
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
_QUOTES = {'"': '"', "“": "”"}
_NOT_NEGATED = "->="  # `--json`, `->` and `-=` are looked for; nobody means "without"
_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "mo": 30 * 86_400, "y": 365 * 86_400}
_TIMES = "ages like 7d (m, h, d, w, mo, y), dates and times like 2026-11-01T09:30, today and yesterday"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MILLISECOND = 253_402_300_799_999  # of the year 9999

_name = re.compile(r"([A-Za-z]+):")
_age = re.compile(r"(?P<number>\d{1,6})(?P<unit>mo|m|h|d|w|y)\Z", re.IGNORECASE | re.ASCII)
_month = re.compile(r"(?P<year>\d{4})(?:-(?P<month>\d\d?))?\Z", re.ASCII)
_flags = re.compile(r"[A-Za-z]*")
_KNOWN_FLAGS = "ims"


class Word(Struct, frozen=True):
    """One word as typed; with `prefix`, everything that begins so (`pars*`)."""

    text: str
    prefix: bool = False


class Phrase(Struct, frozen=True):
    """Words that stand together, in this order. It may be a single one."""

    text: str


class Regex(Struct, frozen=True):
    """A regular expression that compiles. `flags` are of `i`, `m` and `s`, in that order."""

    pattern: str
    flags: str = ""


class Not(Struct, frozen=True):
    """What may not be there. Never of another `Not`."""

    of: Expression


class And(Struct, frozen=True):
    """All of two or more, none of them an `And`."""

    parts: tuple[Expression, ...]


class Or(Struct, frozen=True):
    """Any of two or more, none of them an `Or`. A `Not` may be one of them."""

    parts: tuple[Expression, ...]


Term: TypeAlias = Word | Phrase | Regex
Expression: TypeAlias = Word | Phrase | Regex | Not | And | Or


class Choice(Struct, frozen=True):
    """The values of one filter: one of `wanted` (all, if there are none), and none of `unwanted`."""

    wanted: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.wanted or self.unwanted)


class Filters(Struct, frozen=True):
    """What counts for the whole query. Values are as typed; those of `role`, `agent` and `kinds` in small letters."""

    role: Choice = Choice()
    tool: Choice = Choice()
    file: Choice = Choice()
    agent: Choice = Choice()
    project: Choice = Choice()
    model: Choice = Choice()
    kinds: Choice = Choice()
    """Of `KINDS` (`in:thinking`)."""
    since: int | None = None
    """Not older than this; milliseconds since 1970."""
    before: int | None = None
    """Older than this; milliseconds since 1970."""
    error: bool | None = None
    """Only what failed (`is:error`), or only what did not (`-is:error`)."""
    abandoned: bool | None = None
    """Only what lies on an abandoned branch, or only what does not."""
    branch: Literal["all", "active"] = "all"


class Query(Struct, frozen=True):
    """What was asked for. Without `where`, everything the filters let through."""

    where: Expression | None = None
    filters: Filters = Filters()
    notes: tuple[str, ...] = ()
    """Sentences for the person who typed it: what was taken otherwise than it may have been meant."""


def parse(text: str, *, now: datetime | None = None) -> Query:
    """The query in a text. Ages count from `now`; dates are of its time zone, else of the machine's."""
    return _Parser(text, now).parse()


def to_text(query: Query) -> str:
    """A query in one fixed manner: what is looked for, then the filters. Parsed, it is the same query."""
    parts = [] if query.where is None else [_expression_text(query.where)]
    filters = query.filters
    for name, choice in _choices(filters):
        parts += [f"{name}:{_quoted(value)}" for value in choice.wanted]
        parts += [f"-{name}:{_quoted(value)}" for value in choice.unwanted]
    for name, at in (("since", filters.since), ("before", filters.before)):
        if at is not None:
            parts.append(f"{name}:{_time_text(at)}")
    for name, state in (("error", filters.error), ("abandoned", filters.abandoned)):
        if state is not None:
            parts.append(f"{'' if state else '-'}is:{name}")
    if filters.branch != "all":
        parts.append(f"branch:{filters.branch}")
    return " ".join(parts)


def terms(expression: Expression | None) -> list[Term]:
    """What has to be found and shown: every word, phrase and pattern that is not under a `Not`, in order."""
    match expression:
        case None | Not():
            return []
        case And(parts) | Or(parts):
            return [term for part in parts for term in terms(part)]
        case _:
            return [expression]


class _Group:
    """Parentheses that are open (or the whole query): what stands in them so far."""

    def __init__(self, *, negated: bool = False) -> None:
        self.parts: list[Expression] = []
        self.negated = negated
        self.waiting_or: int | None = None
        """Where an OR stands whose right side has not come yet."""
        self.waiting_not: int | None = None
        self.last_filter = ""
        """The name of the filter that stands right before this place."""


class _Parser:
    """One pass from left to right, with the open parentheses on a stack of its own."""

    def __init__(self, text: str, now: datetime | None) -> None:
        self.text = whole_text(text).replace("\0", " ")
        self.now = now
        self.at = 0
        self.notes: list[str] = []
        self.groups = [_Group()]
        self.ignored_groups = 0
        self.count = 0
        self.filters = Filters()

    def parse(self) -> Query:
        while self._skip_space():
            self._take_next()
        if self.ignored_groups or len(self.groups) > 1:
            self._note(len(self.text), "a parenthesis is not closed; it was taken to close at the end")
        while len(self.groups) > 1:
            self._close()
        self._settle(self.groups[0])
        return Query(_joined(self.groups[0].parts), self.filters, tuple(self.notes))

    # Reading

    def _take_next(self) -> None:
        start = self.at
        if self.text[start] == ")":
            self.at += 1
            self._take_closing(start)
            return
        is_negated = self.text[start] == "-" and self._is_negation(start + 1)
        if is_negated:
            self._negate_next(start)
            self.at += 1
        here = self.text[self.at]
        if here == "(":
            self.at += 1
            self._take_opening(start)
        elif here in _QUOTES:
            self._take_phrase(start)
        elif not self._take_filter(start):
            self._take_word(start, may_be_operator=not is_negated)

    def _is_negation(self, at: int) -> bool:
        return at < len(self.text) and not self.text[at].isspace() and self.text[at] not in _NOT_NEGATED + ")"

    def _negate_next(self, start: int) -> None:
        """What comes next may not be there; said twice, it may."""
        group = self.groups[-1]
        group.waiting_not = start if group.waiting_not is None else None

    def _take_opening(self, start: int) -> None:
        if len(self.groups) > DEEPEST_GROUP:
            if not self.ignored_groups:
                self._note(start, f"more than {DEEPEST_GROUP} parentheses in each other; the inner ones were left out")
            self.ignored_groups += 1
            return
        negated = self.groups[-1].waiting_not is not None
        self.groups[-1].waiting_not = None
        self.groups.append(_Group(negated=negated))

    def _take_closing(self, start: int) -> None:
        if self.ignored_groups:
            self.ignored_groups -= 1
        elif len(self.groups) > 1:
            self._close()
        else:
            self._note(start, "a parenthesis closes that was never opened; it was left out")

    def _take_phrase(self, start: int) -> None:
        phrase = self._quoted(start, "phrase")
        if phrase:
            self._add(Phrase(phrase), start)
        else:
            self._drop(start, "an empty phrase was left out")

    def _take_word(self, start: int, *, may_be_operator: bool) -> None:
        typed = self._until_space()
        if typed in _OPERATORS and may_be_operator:
            self._take_operator(typed, start)
            return
        text = typed.rstrip("*")
        if not text or text == "-":
            self._drop(start, f"{typed!r} alone is nothing to look for; it was left out")
        elif text == typed and text in _OPERATORS:
            self._add(Phrase(text), start)  # as a word it could not be told from the operator
        else:
            self._add(Word(text, prefix=text != typed), start)

    def _take_operator(self, operator: str, start: int) -> None:
        group = self.groups[-1]
        if operator == "NOT":
            self._negate_next(start)
        elif operator != "AND":
            if group.waiting_or is not None or not (group.parts or group.last_filter):
                self._note(start, f"{operator} has nothing on its left; it was left out")
            else:
                group.waiting_or = start

    def _take_filter(self, start: int) -> bool:
        """Read a filter with its value, if there is one here; what only looks like one is left for a word."""
        found = _name.match(self.text, self.at)
        if found is None:
            return False
        name = found[1].lower()
        if name not in FILTERS:
            self._note_misspelt(found)
            return False
        begin, said = self.at, len(self.notes)
        self.at = found.end()
        taken = self._take_regex(start) if name == "re" else self._take_value(name, start)
        if not taken:
            del self.notes[said:-1]  # only why it is none; a quote that is not closed is no quote in a word
            self.at = begin
        return taken

    def _take_regex(self, start: int) -> bool:
        if not self.text.startswith("/", self.at):
            if self.at < len(self.text) and not self.text[self.at].isspace():
                self._note(start, "re: takes a pattern between slashes, as in re:/a.*b/; it was taken as a word")
            return False
        self.at += 1
        pattern = self._until_slash(start)
        letters = _flags.match(self.text, self.at)
        typed = letters[0] if letters else ""
        self.at += len(typed)
        unknown = "".join(sorted({letter for letter in typed if letter not in _KNOWN_FLAGS}))
        if unknown:
            self._note(start, f"a pattern has no flags {unknown!r}, only {', '.join(_KNOWN_FLAGS)}; they were left out")
        if not pattern:
            self._drop(start, "an empty pattern was left out")
            return True
        why = _why_no_pattern(pattern)
        if why:
            self._note(start, f"the pattern cannot be read ({why}); it was taken letter by letter")
            pattern = re.escape(pattern)
        self._add(Regex(pattern, "".join(flag for flag in _KNOWN_FLAGS if flag in typed)), start)
        return True

    def _until_slash(self, start: int) -> str:
        """A pattern up to its closing slash; within it, a slash is written with a backslash before it."""
        read: list[str] = []
        while self.at < len(self.text):
            here = self.text[self.at]
            if here == "/":
                self.at += 1
                return "".join(read)
            pair = self.text[self.at : self.at + 2] if here == "\\" else here
            read.append("/" if pair == "\\/" else pair)
            self.at += len(pair)
        self._note(start, "the pattern is not closed with a slash; it was taken to the end")
        return "".join(read)

    def _take_value(self, name: str, start: int) -> bool:
        quote = self.at if self.at < len(self.text) and self.text[self.at] in _QUOTES else None
        value = self._until_space() if quote is None else self._quoted(start, "value")
        problem = self._value_problem(name, value, start)
        if problem is None:
            return True
        if quote is not None and self.at > len(self.text):  # it was never closed, so it opens nothing
            self.text = f"{self.text[:quote]} {self.text[quote + 1 :]}"
        self._note(start, f"{problem}; it was taken as a word")
        return False

    def _value_problem(self, name: str, value: str, start: int) -> str | None:
        """Take the value of a filter; or why it cannot be one."""
        if not value:
            return f"{name}: has no value right after it"
        group = self.groups[-1]
        negated = group.waiting_not is not None
        problem = self._filter(name, value.lower() if name in _LOWERED else value, negated=negated)
        if problem:
            return problem
        group.waiting_not = None
        if any(one.negated for one in self.groups):
            self._note(start, f"{name}: counts for the whole query, also from within -( )")
        if group.waiting_or is not None and group.last_filter != name:
            self._note(group.waiting_or, "OR cannot join a filter with something else; it was left out")
        group.waiting_or = None
        group.last_filter = name
        return None

    def _quoted(self, start: int, what: str) -> str:
        closing = _QUOTES[self.text[self.at]]
        end = self.text.find(closing, self.at + 1)
        if end < 0:
            self._note(start, f"the {what} is not closed with a quote; it was taken to the end")
            end = len(self.text)
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        return inside.strip()

    def _until_space(self) -> str:
        """Up to a blank, or to the parenthesis that closes a group; those that belong to the word itself do not."""
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

    # Building

    def _add(self, expression: Expression, start: int) -> None:
        self.count += 1
        if self.count > MOST_TERMS:
            if self.count == MOST_TERMS + 1:
                self._note(start, f"a query has at most {MOST_TERMS} words; the others were left out")
            self.groups[-1].waiting_not = self.groups[-1].waiting_or = None
            return
        self._put(expression)

    def _put(self, expression: Expression) -> None:
        """Join what was read to what stands before it."""
        group = self.groups[-1]
        if group.waiting_not is not None:
            expression = _negated(expression)
            group.waiting_not = None
        if group.waiting_or is not None and group.last_filter:
            self._note(group.waiting_or, "OR cannot join a filter with something else; it was left out")
            group.waiting_or = None
        if group.waiting_or is not None and group.parts:
            group.parts[-1] = _either(group.parts[-1], expression)
        else:
            group.parts.append(expression)
        group.waiting_or = None
        group.last_filter = ""

    def _close(self) -> None:
        group = self.groups[-1]
        self._settle(group)
        self.groups.pop()
        inside = _joined(group.parts)
        if inside is not None:
            self._put(_negated(inside) if group.negated else inside)
        elif group.last_filter:
            outer = self.groups[-1]
            outer.last_filter, outer.waiting_or = group.last_filter, None
        else:
            self._drop(max(self.at - 1, 0), "there is nothing in the parentheses; they were left out")

    def _settle(self, group: _Group) -> None:
        """Say what is still waiting for its right side."""
        for waiting in (group.waiting_or, group.waiting_not):
            if waiting is not None:
                operator = "NOT" if waiting == group.waiting_not else "OR"
                self._note(waiting, f"{operator} has nothing on its right; it was left out")

    def _drop(self, start: int, why: str) -> None:
        self._note(start, why)
        self.groups[-1].waiting_not = self.groups[-1].waiting_or = None

    def _filter(self, name: str, value: str, *, negated: bool) -> str:
        """Put a value into the filters, or say why it cannot be one."""
        if name in _LISTS:
            self._choose(name, value, negated=negated)
        elif name == "in":
            if value not in KINDS:
                return f"in: knows {', '.join(KINDS)}, not {value!r}"
            self._choose("kinds", value, negated=negated)
        elif name == "is":
            if value not in STATES:
                return f"is: knows {' and '.join(STATES)}, not {value!r}"
            self.filters = replace(self.filters, **{value: not negated})
        elif name == "branch":
            if value not in BRANCHES:
                return f"branch: knows {' and '.join(BRANCHES)}, not {value!r}"
            if negated:
                return "branch: cannot be turned round; is:abandoned asks for the other branches"
            self.filters = replace(self.filters, branch=value)
        else:
            at = _time(value, self.now)
            if at is None:
                return f"{name}: knows {_TIMES}, not {value!r}"
            # Not since a time is before it, and the other way round.
            self.filters = replace(self.filters, **{"since" if (name == "since") != negated else "before": at})
        return ""

    def _choose(self, field: str, value: str, *, negated: bool) -> None:
        choice: Choice = getattr(self.filters, field)
        values = choice.unwanted if negated else choice.wanted
        if value not in values:
            changed = replace(choice, **{"unwanted" if negated else "wanted": (*values, value)})
            self.filters = replace(self.filters, **{field: changed})

    # Saying

    def _note(self, at: int, what: str) -> None:
        self.notes.append(f"at character {at + 1}: {what}")

    def _note_misspelt(self, found: re.Match[str]) -> None:
        name = found[1].lower()
        value = self.text[found.end() : found.end() + 1]
        if not value or value.isspace() or not (value.isalnum() or value in _QUOTES):
            return
        import difflib

        near = difflib.get_close_matches(name, FILTERS, n=1, cutoff=0.75)
        meant = _OTHER_NAMES.get(name) or (near[0] if near else "")
        if meant:
            self._note(found.start(), f"{name}: is no filter and was taken as a word; {meant}: is one")


def _joined(parts: Sequence[Expression]) -> Expression | None:
    """All of these as one expression, without groups in groups."""
    flat: list[Expression] = []
    for part in parts:
        flat += part.parts if isinstance(part, And) else (part,)
    return And(tuple(flat)) if len(flat) > 1 else flat[0] if flat else None


def _either(left: Expression, right: Expression) -> Or:
    sides = [side.parts if isinstance(side, Or) else (side,) for side in (left, right)]
    return Or((*sides[0], *sides[1]))


def _negated(expression: Expression) -> Expression:
    return expression.of if isinstance(expression, Not) else Not(expression)


def _why_no_pattern(pattern: str) -> str:
    """Why a pattern cannot be compiled; empty when it can."""
    import regex

    try:
        compile_regex(Regex(pattern))
    except (regex.error, OverflowError, RecursionError) as error:
        return str(error) or "too deep"
    return ""


@lru_cache(maxsize=64)
def compile_regex(expression: Regex) -> regex.Pattern[str]:
    """Compile a regular expression with the `regex` package, which can stop a search after a time limit."""
    import regex  # takes 35 ms, and most queries have no pattern

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # syntax that a later version may read otherwise is fine today
        return regex.compile(expression.pattern, sum(getattr(regex, flag.upper()) for flag in expression.flags))


def _time(text: str, now: datetime | None) -> int | None:
    """An age, a date, a time or a word for a day as milliseconds since 1970; None when it is none of them."""
    here = now or datetime.now()
    zone = here.tzinfo
    try:
        age = _age.match(text)
        if age is not None:
            passed = timedelta(seconds=int(age["number"]) * _UNITS[age["unit"].lower()])
            return _milliseconds(here, minus=passed)
        month = _month.match(text)
        if month is not None:
            return _milliseconds(datetime(int(month["year"]), int(month["month"] or 1), 1, tzinfo=zone))
        if text.lower() in ("today", "yesterday"):
            day = here - timedelta(days=text.lower() == "yesterday")
            return _milliseconds(day.replace(hour=0, minute=0, second=0, microsecond=0))
        found = datetime.fromisoformat(text.upper())
        return _milliseconds(found if found.tzinfo is not None else found.replace(tzinfo=zone))
    except (ValueError, OverflowError, OSError):  # no such day, or none that a clock can tell
        return None


def _milliseconds(at: datetime, minus: timedelta = timedelta()) -> int:
    aware = at if at.tzinfo is not None else at.astimezone()
    passed = (aware - _EPOCH - minus) // timedelta(milliseconds=1)
    return min(max(passed, 0), _LAST_MILLISECOND)


def _time_text(milliseconds: int) -> str:
    at = _EPOCH + timedelta(milliseconds=milliseconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _choices(filters: Filters) -> list[tuple[str, Choice]]:
    names = ("role", "tool", "file", "agent", "project", "model")
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
        case Not(Word(text) as word) if text[0] in _NOT_NEGATED:
            return f"NOT {_expression_text(word)}"
        case Not(of):
            return f"-{_grouped(of) if isinstance(of, And | Or) else _expression_text(of)}"
        case And(parts):
            return " ".join(map(_expression_text, parts))
        case Or(parts):
            return " OR ".join(_grouped(part) if isinstance(part, And) else _expression_text(part) for part in parts)


def _grouped(expression: Expression) -> str:
    inside = _expression_text(expression)
    # A parenthesis that a last word opens would take the one that closes the group.
    return f"({inside} )" if "(" in inside.rpartition(" ")[2] else f"({inside})"


def _quoted(value: str) -> str:
    if value[0] not in _QUOTES and not any(map(str.isspace, value)):
        return value
    return f"“{value}”" if '"' in value else f'"{value}"'
