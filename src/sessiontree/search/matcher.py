"""A query in two ways: as an expression for the index, which says where to look, and as a test of what stands there.

The index is asked for no less than what fits: what it cannot tell (order, neighbourhood, patterns) is left to the test.
The test looks at one line of a session: all words have to be on it, in any of its texts that the filters let through.
Nothing of a query reaches the index but terms of our own making, in quotes.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from sessiontree.search.indexer import MARK, mark
from sessiontree.search.query_parser import (
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
    terms,
)
from sessiontree.search.text_extractor import Line, Text
from sessiontree.search.tokenizer import Folded, Unit, folded, is_border, units

Span = tuple[int, int]

_GAP = r"[\W_]{0,40}"
_BYTES_BETWEEN = rb"(?:\\[nrt]|[^a-z0-9]){0,120}"
_BETWEEN_LETTERS = "_*"
_MOST_SPANS = 200
_MOST_PATTERN_SPANS = 50


class RegexFinder:
    """Finds regular expressions in texts until a total time limit is used up."""

    def __init__(self, seconds: float) -> None:
        self._seconds_left = seconds
        self.timed_out = False
        """Whether the limit was reached: no match is reported after that."""

    def find(self, expression: Regex, text: str) -> list[Span]:
        """The non-empty matches in a text, at most 50."""
        if self.timed_out:
            return []
        spans: list[Span] = []
        start = time.perf_counter()
        try:
            # `re` cannot be interrupted while it backtracks; `regex` checks the clock.
            for match in compile_regex(expression).finditer(text, timeout=self._seconds_left):
                if match.end() > match.start():
                    spans.append(match.span())
                    if len(spans) >= _MOST_PATTERN_SPANS:
                        break
        except TimeoutError:
            spans = []
            self.timed_out = True
        self._seconds_left -= time.perf_counter() - start
        self.timed_out = self.timed_out or self._seconds_left <= 0
        return spans


class Found(Struct, frozen=True):
    """A text of a line that fits, and where in it each term stands."""

    text: Text
    said: str
    spans: tuple[Span, ...]
    counts: tuple[int, ...]
    """How often each term stands in it."""


class _Lowered(Folded):
    """A text in small letters, each of them at its place."""

    def span(self, start: int, end: int) -> Span:
        return start, end


class Said:
    """What a text says, and its other forms as soon as they are asked for."""

    def __init__(self, text: str) -> None:
        self.text = text if text.isascii() else unicodedata.normalize("NFC", text)
        self.places: dict[Word | Phrase | Regex, list[Span]] = {}
        """What was found out about terms before."""

    @cached_property
    def lowered(self) -> Folded | None:
        """In small letters, each at its place; None where letters have small forms of another length."""
        lowered = self.text.lower()
        return _Lowered(self.text, lowered) if len(lowered) == len(self.text) else None

    @cached_property
    def folded(self) -> Folded | None:
        """In its one form; None when that is the one in small letters."""
        return None if self.text.isascii() else Folded.of(self.text)


class Matcher:
    """A query as a test of lines."""

    def __init__(self, query: Query, regex_finder: RegexFinder) -> None:
        self.query = query
        self._regex_finder = regex_finder
        self._terms = terms(query.where)
        self._needles = {term: _needle(term) for term in _all_terms(query.where) if not isinstance(term, Regex)}
        self.required = _required(query.where)
        self._phrases = _phrases(query.where)
        self._either = _either(query.where)

    def lines_that_may_fit(self, block: bytes) -> Iterator[tuple[int, bytes]]:
        """The lines of a piece of a file, with their places in it, that hold every word as it is mostly written:
        without accents and escapes. Of words of which one is enough, lines that may write them otherwise are there too.
        """
        return _lines_at(block, self._numbers(_plain_bytes(block)))

    def _numbers(self, plain: bytes) -> Iterator[int]:
        """The numbers of these lines. Lines without what is looked for first are passed over, not looked at."""
        find = self._find_first(plain)
        number = start = 0
        while (at := find(start)) >= 0:
            first = max(start, plain.rfind(b"\n", start, at) + 1)
            end = plain.find(b"\n", at)
            end = len(plain) if end < 0 else end
            number += plain.count(b"\n", start, first)
            if self._may_fit(plain, first, end):
                yield number
            start, number = end + 1, number + 1

    def _find_first(self, plain: bytes) -> Callable[[int], int]:
        """How the next line is found, from a place on, that may fit: by a phrase, the longest word, or one of some."""
        if self._phrases:
            return lambda at: found.start() if (found := self._phrases[0].search(plain, at)) else -1
        words = max(self.required, key=lambda spellings: len(spellings[0]), default=None)
        if words is None and self._either and not is_odd(plain):
            words = self._either[0]
        if words is None:
            return lambda at: at if at < len(plain) else -1
        if len(words) == 1:
            return lambda at: plain.find(words[0], at)
        return lambda at: min((found for word in words if (found := plain.find(word, at)) >= 0), default=-1)

    def _may_fit(self, plain: bytes, first: int, end: int) -> bool:
        for words in self.required:
            if not _has_one(plain, words, first, end):
                return False
        for phrase in self._phrases:
            if not phrase.search(plain, first, end):
                return False
        for words in self._either:
            if not _has_one(plain, words, first, end) and not is_odd(plain[first:end]):
                return False
        return True

    def fit(self, line: Line) -> Found | None:
        """The text of a line that fits best, with its places; None when the line does not fit."""
        texts = [text for text in line.texts if fits_filters(text, line, self.query.filters)]
        if not texts:
            return None
        said = [(text, Said(text.text)) for text in texts]
        shown: dict[int, list[Span]] = {}
        if self.query.where is not None and not self._holds(self.query.where, [words for _, words in said]):
            return None
        counts: list[tuple[int, ...]] = []
        for at, (_, words) in enumerate(said):
            places = [self._places(term, words)[:_MOST_SPANS] for term in self._terms]
            counts.append(tuple(map(len, places)))
            shown[at] = sorted(span for found in places for span in found)
        best = max(range(len(said)), key=lambda at: (sum(map(bool, counts[at])), -at))
        text, words = said[best]
        return Found(text, words.text, tuple(_joined(shown[best])), counts[best])

    def _holds(self, expression: Expression, texts: Sequence[Said]) -> bool:
        match expression:
            case And(parts):
                return all(self._holds(part, texts) for part in parts)
            case Or(parts):
                return any(self._holds(part, texts) for part in parts)
            case Not(of):
                return not self._holds(of, texts)
            case _:
                return any(self._places(expression, text) for text in texts)

    def _places(self, term: Word | Phrase | Regex, text: Said) -> list[Span]:
        places = text.places.get(term)
        if places is None:
            if isinstance(term, Regex):
                places = self._regex_finder.find(term, text.text)
            else:
                places = self._needles[term].places(text)
            text.places[term] = places
        return places


class _Needle:
    """A word or phrase, as it is found in a text: in any case, accented or not, and as a part of a longer name."""

    def __init__(self, text: str, wanted: Sequence[Unit], *, is_prefix: bool) -> None:
        self._units = wanted
        self._is_prefix = is_prefix
        self._literal = folded(text)
        self._pattern = re.compile(_GAP.join(f"({_spelled(unit)})" for unit in wanted))

    def places(self, said: Said) -> list[Span]:
        """Where it stands in a text. One without case and with accents is only made when it is not there with them."""
        return self._places_in(said.text, said.lowered) or self._places_in(said.text, said.folded)

    def _places_in(self, text: str, form: Folded | None) -> list[Span]:
        if form is None:
            return []
        if not self._units:
            return list(_literal_places(form, self._literal))
        found: list[Span] = []
        at = 0
        while (match := self._pattern.search(form.text, at)) is not None:
            if all(self._stands(text, form, number, match.span(number + 1)) for number in range(len(self._units))):
                found.append(form.span(*match.span()))
                at = match.end()
            else:
                at = match.start() + 1
        return found

    def _stands(self, text: str, form: Folded, number: int, inside: Span) -> bool:
        """Whether a unit begins and ends where a word or a part of one does."""
        if self._units[number].is_cjk:
            return True
        start, end = form.span(*inside)
        is_open = self._is_prefix and number == len(self._units) - 1
        return is_border(text, start) and (is_open or is_border(text, end))


def _needle(term: Word | Phrase) -> _Needle:
    return _Needle(term.text, units(term.text), is_prefix=isinstance(term, Word) and term.prefix)


def _spelled(unit: Unit) -> str:
    if unit.is_cjk:
        return "|".join(map(re.escape, unit.spellings))
    return "|".join(_BETWEEN_LETTERS.join(map(re.escape, spelled)) for spelled in unit.spellings)


def _literal_places(form: Folded, literal: str) -> Iterator[Span]:
    at = form.text.find(literal) if literal else -1  # an accent alone has no form
    while at >= 0:
        yield form.span(at, at + len(literal))
        at = form.text.find(literal, at + len(literal))


def _joined(spans: Sequence[Span]) -> Iterator[Span]:
    """Without overlaps."""
    start = end = -1
    for one in spans:
        if one[0] >= end:
            if end > start:
                yield start, end
            start, end = one
        else:
            end = max(end, one[1])
    if end > start:
        yield start, end


def _all_terms(expression: Expression | None) -> Iterator[Word | Phrase | Regex]:
    match expression:
        case None:
            return
        case And(parts) | Or(parts):
            for part in parts:
                yield from _all_terms(part)
        case Not(of):
            yield from _all_terms(of)
        case _:
            yield expression


def _required(expression: Expression | None) -> list[list[bytes]]:
    """The words that all have to be there, each as it may be written."""
    match expression:
        case And(parts):
            return [spellings for part in parts for spellings in _required(part)]
        case Word(text) | Phrase(text):
            return [[spelled.encode("utf-8", "replace") for spelled in unit.spellings] for unit in units(text)]
        case _:
            return []


def _phrases(expression: Expression | None) -> list[re.Pattern[bytes]]:
    """Phrases of ASCII words that all have to be there, as they mostly stand in JSON."""
    match expression:
        case And(parts):
            return [pattern for part in parts for pattern in _phrases(part)]
        case Word(text) | Phrase(text):
            words = [re.escape(unit.text.encode()) for unit in units(text) if unit.text.isascii()]
            is_plain = len(words) == len(units(text)) > 1
            return [re.compile(_BYTES_BETWEEN.join(words))] if is_plain else []
        case _:
            return []


def _either(expression: Expression | None) -> list[list[bytes]]:
    """Words of which one has to be there, each as it may be written."""
    match expression:
        case And(parts):
            return [words for part in parts for words in _either(part)]
        case Or(parts):
            found = [_required(part) for part in parts]
            return [[spelled for required in found for spelled in required[0]]] if all(found) else []
        case _:
            return []


def _has_one(plain: bytes, words: Sequence[bytes], first: int, end: int) -> bool:
    for word in words:  # noqa: SIM110 - a generator takes longer, and this is done for very many lines
        if plain.find(word, first, end) >= 0:
            return True
    return False


def odd_lines(block: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of a piece of a file that may write a word in another way than it is mostly written.

    A line of plain ASCII can write it in one way only, so a closer look finds nothing new in it.
    """
    if not is_odd(block):
        return iter(())
    return _lines_at(block, [at for at, line in enumerate(block.split(b"\n")) if is_odd(line)])


def is_odd(raw: bytes) -> bool:
    """Whether some bytes of a file may write a word in another way than it is mostly written."""
    return not raw.isascii() or (b"\\" in raw and b"\\u" in raw)  # to look for a single byte takes no time


def _lines_at(block: bytes, numbers: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Some lines of a piece of a file, with their places in it."""
    lines: list[bytes] = []
    start = last = 0
    for number in numbers:
        lines = lines or block.split(b"\n")
        start += sum(map(len, lines[last:number])) + number - last
        last = number
        if lines[number]:
            yield start, lines[number]


def _plain_bytes(raw: bytes) -> bytes:
    """Bytes of a file in which words are looked for before anything is decoded."""
    return raw.lower().replace(b"_", b"")


# Filters


def fits_filters(text: Text, line: Line, filters: Filters) -> bool:
    """Whether the filters that speak of single texts let one through."""
    return (
        (filters.error is None or text.is_error == filters.error)
        and chosen(filters.kinds, lambda kind: text.kind == kind)
        and chosen(filters.role, lambda role: _is_role(role, text))
        and chosen(filters.tool, lambda tool: is_tool(tool, text.tool))
        and chosen(filters.model, lambda model: folded(model) in folded(line.model))
        and (not filters.file or _fits_file(text, filters.file))
    )


def chosen(choice: Choice, fits: Callable[[str], bool]) -> bool:
    """Whether a choice lets something through, by what is said of it."""
    return (not choice.wanted or any(map(fits, choice.wanted))) and not any(map(fits, choice.unwanted))


def _is_role(role: str, text: Text) -> bool:
    return text.role.lower() == role or (role == "toolresult" and text.role == "tool")


def is_tool(wanted: str, name: str) -> bool:
    """Whether a tool is meant: by its name, or for one of a server, by the last part of it."""
    one, other = folded(wanted), folded(name)
    return bool(other) and (one == other or one in other.split("__"))


def _fits_file(text: Text, choice: Choice) -> bool:
    files = [folded(file) for file in text.files()]
    return chosen(choice, lambda wanted: any(_is_file(folded(wanted), file) for file in files))


def _is_file(wanted: str, file: str) -> bool:
    """A whole path, its last parts, a folder on the way, or a name without its ending."""
    parts, asked = f"/{file.replace(chr(92), '/')}/", wanted.strip("/")
    return f"/{asked}/" in parts or f"/{asked}." in parts


# For the index


def index_expression(query: Query, models: Sequence[str], tools: Sequence[str]) -> str:
    """What to ask the index for. `models` and `tools` are the marks of all models and tools it knows."""
    asked = [part for part in (_asked(query.where), *_asked_filters(query.filters, models, tools)) if part]
    return " AND ".join(asked) if asked else f'"{MARK}k" *'


def _asked(expression: Expression | None) -> str:
    """An expression that every stretch fits which holds a fitting line; empty when the index cannot tell."""
    match expression:
        case Word(text, prefix):
            return _asked_units(units(text), is_prefix=prefix)
        case Phrase(text):
            return _asked_units(units(text), is_prefix=False)
        case And(parts):
            return " AND ".join(part for part in map(_asked, parts) if part)
        case Or(parts):
            asked = [_asked(part) for part in parts]
            return f"({' OR '.join(asked)})" if all(asked) else ""
        case _:
            return ""


def _asked_units(wanted: Sequence[Unit], *, is_prefix: bool) -> str:
    found: list[str] = []
    for number, unit in enumerate(wanted):
        words = unit.terms()
        if is_prefix and number == len(wanted) - 1 and not unit.is_cjk:
            words = [f"{unit.text[:60]}*"]
        asked = [_quoted(word) for word in words]
        if unit.parts:
            asked = [f"({asked[0]} OR ({' AND '.join(map(_quoted, unit.parts))}))"]
        found += asked
    return f"({' AND '.join(found)})" if found else ""


def _asked_filters(filters: Filters, models: Sequence[str], tools: Sequence[str]) -> Iterator[str]:
    if filters.tool.wanted:
        wanted = [mark("t", tool).decode() for tool in filters.tool.wanted]
        yield _any_of([tool for tool in tools if any(_is_marked(one, tool) for one in wanted)] or wanted)
    if filters.model.wanted:
        parts = [mark("m", model).decode()[2:] for model in filters.model.wanted]
        fitting = [model for model in models if any(part in model for part in parts)]
        yield _any_of(fitting or [f"{MARK}m{part}" for part in parts])
    kinds = filters.kinds.wanted
    if kinds:
        yield _any_of([f"{MARK}k{kind}_*" for kind in kinds])
    for file in filters.file.wanted[:1] if len(filters.file.wanted) == 1 else ():
        yield _asked_units(units(file), is_prefix=True)


def _is_marked(wanted: str, tool: str) -> bool:
    return tool == wanted or wanted[2:] in tool[2:].split("__")


def _any_of(found: Sequence[str]) -> str:
    return f"({' OR '.join(map(_quoted, found))})"


def _quoted(term: str) -> str:
    """A term as the index takes it; a `*` at its end stays outside the quotes."""
    plain = term.removesuffix("*").replace('"', "")
    return f'"{plain}" *' if term.endswith("*") else f'"{plain}"'
