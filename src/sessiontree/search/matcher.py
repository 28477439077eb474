"""A query in its two executable forms: an FTS5 expression for the index, and a test of lines.

The expression matches a superset: conditions that the index cannot express (order, adjacency, regular expressions) are
left to the test. The test sees one line of a session. All words have to be on that line, in any of its texts that pass
the filters. Only quoted terms from our tokenizer reach FTS5, so a query can never use FTS5's own syntax.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from sessiontree.dialects.texts import Line, Text
from sessiontree.search.indexer import FACET, facet_term
from sessiontree.search.query import (
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
from sessiontree.search.tokenizer import Folded, Unit, folded, is_word_boundary, units

Span = tuple[int, int]

_GAP = r"[\W_]{0,40}"
_BYTE_GAP = rb"(?:\\[nrt]|[^a-z0-9]){0,120}"
_LETTER_GAP = "_*"
_MAX_SPANS = 200
_MAX_REGEX_SPANS = 50


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
                    if len(spans) >= _MAX_REGEX_SPANS:
                        break
        except TimeoutError:
            spans = []
            self.timed_out = True
        self._seconds_left -= time.perf_counter() - start
        self.timed_out = self.timed_out or self._seconds_left <= 0
        return spans


class Match(Struct, frozen=True):
    """The best matching text of a line, with the positions of the terms."""

    text: Text
    content: str
    spans: tuple[Span, ...]
    counts: tuple[int, ...]
    """Number of matches of each term."""


class _Lowered(Folded):
    """A lowercase copy whose offsets equal those of the text."""

    def span(self, start: int, end: int) -> Span:
        return start, end


class FoldableText:
    """A text with its lowercase and folded forms, computed on demand."""

    def __init__(self, text: str) -> None:
        self.text = text if text.isascii() else unicodedata.normalize("NFC", text)
        self.spans: dict[Word | Phrase | Regex, list[Span]] = {}
        """Cached matches of terms."""

    @cached_property
    def lowered(self) -> Folded | None:
        """Lowercase form with equal offsets; None if lowercasing changes the length."""
        lowered = self.text.lower()
        return _Lowered(self.text, lowered) if len(lowered) == len(self.text) else None

    @cached_property
    def folded(self) -> Folded | None:
        """Folded form; None for ASCII, where it equals the lowercase form."""
        return None if self.text.isascii() else Folded.of(self.text)


class Matcher:
    """Tests lines against a query."""

    def __init__(self, query: Query, regex_finder: RegexFinder) -> None:
        self.query = query
        self._regex_finder = regex_finder
        self._terms = terms(query.where)
        self._needles = {term: _needle(term) for term in _all_terms(query.where) if not isinstance(term, Regex)}
        self.required = _required(query.where)
        self._phrases = _phrases(query.where)
        self._either = _either(query.where)

    def candidate_lines(self, block: bytes) -> Iterator[tuple[int, bytes]]:
        """Lines of a block, with their offsets, that contain every required word in its usual spelling.

        The usual spelling has no accents and no JSON escapes. For alternatives (OR), lines that may spell them
        differently are also included.
        """
        return _lines_at(block, self._numbers(_normalize_bytes(block)))

    def _numbers(self, plain: bytes) -> Iterator[int]:
        """Numbers of the candidate lines. Lines without the first search term are skipped, never examined."""
        find = self._line_finder(plain)
        number = start = 0
        while (at := find(start)) >= 0:
            first = max(start, plain.rfind(b"\n", start, at) + 1)
            end = plain.find(b"\n", at)
            end = len(plain) if end < 0 else end
            number += plain.count(b"\n", start, first)
            if self._is_candidate(plain, first, end):
                yield number
            start, number = end + 1, number + 1

    def _line_finder(self, plain: bytes) -> Callable[[int], int]:
        """A function that finds the next line of interest: by a phrase, the longest word, or an alternative."""
        if self._phrases:
            return lambda at: found.start() if (found := self._phrases[0].search(plain, at)) else -1
        words = max(self.required, key=lambda spellings: len(spellings[0]), default=None)
        if words is None and self._either and not may_have_variants(plain):
            words = self._either[0]
        if words is None:
            return lambda at: at if at < len(plain) else -1
        if len(words) == 1:
            return lambda at: plain.find(words[0], at)
        return lambda at: min((found for word in words if (found := plain.find(word, at)) >= 0), default=-1)

    def _is_candidate(self, plain: bytes, first: int, end: int) -> bool:
        for words in self.required:
            if not _contains_any(plain, words, first, end):
                return False
        for phrase in self._phrases:
            if not phrase.search(plain, first, end):
                return False
        for words in self._either:
            if not _contains_any(plain, words, first, end) and not may_have_variants(plain[first:end]):
                return False
        return True

    def match(self, line: Line) -> Match | None:
        """Match a line; returns its best text, or None."""
        texts = [text for text in line.texts if passes_filters(text, line, self.query.filters)]
        if not texts:
            return None
        contents = [(text, FoldableText(text.text)) for text in texts]
        shown: dict[int, list[Span]] = {}
        found_in = [content for _, content in contents]
        if self.query.where is not None and not self._evaluate(self.query.where, found_in, self._find_term):
            return None
        counts: list[tuple[int, ...]] = []
        for at, (_, content) in enumerate(contents):
            spans = [self._find_term(term, content)[:_MAX_SPANS] for term in self._terms]
            counts.append(tuple(map(len, spans)))
            shown[at] = sorted(span for found in spans for span in found)
        best = max(range(len(contents)), key=lambda at: (sum(map(bool, counts[at])), -at))
        text, content = contents[best]
        return Match(text, content.text, tuple(_joined(shown[best])), counts[best])

    def is_match(self, line: Line) -> bool:
        """Whether a line matches; faster than finding all places."""
        texts = [text for text in line.texts if passes_filters(text, line, self.query.filters)]
        if not texts or self.query.where is None:
            return bool(texts)
        return self._evaluate(self.query.where, [FoldableText(text.text) for text in texts], self._has_term)

    def _evaluate(
        self,
        expression: Expression,
        texts: Sequence[FoldableText],
        is_in: Callable[[Word | Phrase | Regex, FoldableText], object],
    ) -> bool:
        match expression:
            case And(parts):
                return all(self._evaluate(part, texts, is_in) for part in parts)
            case Or(parts):
                return any(self._evaluate(part, texts, is_in) for part in parts)
            case Not(of):
                return not self._evaluate(of, texts, is_in)
            case _:
                return any(is_in(expression, text) for text in texts)

    def _has_term(self, term: Word | Phrase | Regex, text: FoldableText) -> bool:
        return bool(self._find_term(term, text)) if isinstance(term, Regex) else self._needles[term].is_in(text)

    def _find_term(self, term: Word | Phrase | Regex, text: FoldableText) -> list[Span]:
        spans = text.spans.get(term)
        if spans is None:
            if isinstance(term, Regex):
                spans = self._regex_finder.find(term, text.text)
            else:
                spans = self._needles[term].find(text)
            text.spans[term] = spans
        return spans


class _Needle:
    """A word or phrase as it is matched in a text: any case, with or without accents, or part of a compound name."""

    def __init__(self, text: str, wanted: Sequence[Unit], *, is_prefix: bool) -> None:
        self._units = wanted
        self._is_prefix = is_prefix
        self._literal = folded(text)
        self._pattern = re.compile(_GAP.join(f"({_unit_pattern(unit)})" for unit in wanted))

    def find(self, text: FoldableText) -> list[Span]:
        """Find all matches. The folded form is computed only if the lowercase one has none."""
        return [*self._iter_in(text.text, text.lowered)] or [*self._iter_in(text.text, text.folded)]

    def is_in(self, text: FoldableText) -> bool:
        return next(self._iter_in(text.text, text.lowered), None) is not None or (
            next(self._iter_in(text.text, text.folded), None) is not None
        )

    def _iter_in(self, text: str, form: Folded | None) -> Iterator[Span]:
        if form is None:
            return
        if not self._units:
            yield from _find_literal(form, self._literal)
            return
        at = 0
        while (match := self._pattern.search(form.text, at)) is not None:
            if all(
                self._is_at_word_boundaries(text, form, number, match.span(number + 1))
                for number in range(len(self._units))
            ):
                yield form.span(*match.span())
                at = match.end()
            else:
                at = match.start() + 1

    def _is_at_word_boundaries(self, text: str, form: Folded, number: int, inside: Span) -> bool:
        """Whether a unit begins and ends at word boundaries, or at boundaries within a compound name."""
        if self._units[number].is_cjk:
            return True
        start, end = form.span(*inside)
        is_open = self._is_prefix and number == len(self._units) - 1
        return is_word_boundary(text, start) and (is_open or is_word_boundary(text, end))


def _needle(term: Word | Phrase) -> _Needle:
    return _Needle(term.text, units(term.text), is_prefix=isinstance(term, Word) and term.prefix)


def _unit_pattern(unit: Unit) -> str:
    if unit.is_cjk:
        return "|".join(map(re.escape, unit.spellings))
    return "|".join(_LETTER_GAP.join(map(re.escape, spelled)) for spelled in unit.spellings)


def _find_literal(form: Folded, literal: str) -> Iterator[Span]:
    at = form.text.find(literal) if literal else -1  # a combining accent alone folds to nothing
    while at >= 0:
        yield form.span(at, at + len(literal))
        at = form.text.find(literal, at + len(literal))


def _joined(spans: Sequence[Span]) -> Iterator[Span]:
    """Merge overlapping spans."""
    start = end = -1
    for span in spans:
        if span[0] >= end:
            if end > start:
                yield start, end
            start, end = span
        else:
            end = max(end, span[1])
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
    """Spellings of each word that every matching line contains."""
    match expression:
        case And(parts):
            return [spellings for part in parts for spellings in _required(part)]
        case Word(text) | Phrase(text):
            return [[spelled.encode("utf-8", "replace") for spelled in unit.spellings] for unit in units(text)]
        case _:
            return []


def _phrases(expression: Expression | None) -> list[re.Pattern[bytes]]:
    """Required phrases of ASCII words, as patterns of JSON bytes."""
    match expression:
        case And(parts):
            return [pattern for part in parts for pattern in _phrases(part)]
        case Word(text) | Phrase(text):
            words = [re.escape(unit.text.encode()) for unit in units(text) if unit.text.isascii()]
            is_plain = len(words) == len(units(text)) > 1
            return [re.compile(_BYTE_GAP.join(words))] if is_plain else []
        case _:
            return []


def _either(expression: Expression | None) -> list[list[bytes]]:
    """Alternatives: lists of spellings, one of which a matching line contains."""
    match expression:
        case And(parts):
            return [words for part in parts for words in _either(part)]
        case Or(parts):
            found = [_required(part) for part in parts]
            return [[spelled for required in found for spelled in required[0]]] if all(found) else []
        case _:
            return []


def _contains_any(plain: bytes, words: Sequence[bytes], first: int, end: int) -> bool:
    for word in words:  # noqa: SIM110 - a generator takes longer, and this is done for very many lines
        if plain.find(word, first, end) >= 0:
            return True
    return False


def variant_lines(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines of a block that may have another spelling of a word.

    An ASCII line without escapes has only the usual spelling, so the slow pass would find nothing new in it.
    """
    if not may_have_variants(block):
        return iter(())
    return _lines_at(block, [at for at, line in enumerate(block.split(b"\n")) if may_have_variants(line)])


def may_have_variants(raw: bytes) -> bool:
    """Whether bytes may have another spelling of a word: they are not ASCII, or have a Unicode escape."""
    return not raw.isascii() or (b"\\" in raw and b"\\u" in raw)  # searching for a single byte first is much faster


def _lines_at(block: bytes, numbers: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """The given lines of a block with their offsets."""
    lines: list[bytes] = []
    start = last = 0
    for number in numbers:
        lines = lines or block.split(b"\n")
        start += sum(map(len, lines[last:number])) + number - last
        last = number
        if lines[number]:
            yield start, lines[number]


def _normalize_bytes(raw: bytes) -> bytes:
    """Lowercase bytes without underscores: words are searched in this form before a line is decoded."""
    return raw.lower().replace(b"_", b"")


# Filters


def passes_filters(text: Text, line: Line, filters: Filters) -> bool:
    """Whether a text passes the filters on texts."""
    return (
        (filters.error is None or text.is_error == filters.error)
        and filters.kinds.accepts(lambda kind: text.kind == kind)
        and filters.role.accepts(lambda role: _is_role(role, text))
        and filters.tool.accepts(lambda tool: is_tool(tool, text.tool))
        and filters.model.accepts(lambda model: folded(model) in folded(line.model))
        and (not filters.file or _fits_file(text, filters.file))
    )


def _is_role(role: str, text: Text) -> bool:
    return text.role.lower() == role or (role == "toolresult" and text.role == "tool")


def is_tool(wanted: str, name: str) -> bool:
    """Whether a tool name matches: the whole name, or a part of an MCP tool's name."""
    wanted, name = folded(wanted), folded(name)
    return bool(name) and (wanted == name or wanted in name.split("__"))


def _fits_file(text: Text, choice: Choice) -> bool:
    files = [folded(file) for file in text.files()]
    return choice.accepts(lambda wanted: any(_is_file(folded(wanted), file) for file in files))


def _is_file(wanted: str, file: str) -> bool:
    """Whether a path matches: as a whole, by its last parts, a folder in it, or a name without its extension."""
    parts, name = f"/{file.replace(chr(92), '/')}/", wanted.strip("/")
    return f"/{name}/" in parts or f"/{name}." in parts


# FTS5 expressions


def fts_expression(query: Query, models: Sequence[str], tools: Sequence[str]) -> str:
    """The FTS5 expression of a query. `models` and `tools` are all facet terms in the index."""
    clauses = [part for part in (_to_fts(query.where), *_filters_to_fts(query.filters, models, tools)) if part]
    return " AND ".join(clauses) if clauses else f'"{FACET}k" *'


def _to_fts(expression: Expression | None) -> str:
    """An expression that matches every chunk with a matching line; empty if the index cannot narrow it down."""
    match expression:
        case Word(text, prefix):
            return _units_to_fts(units(text), is_prefix=prefix)
        case Phrase(text):
            return _units_to_fts(units(text), is_prefix=False)
        case And(parts):
            return " AND ".join(part for part in map(_to_fts, parts) if part)
        case Or(parts):
            clauses = [_to_fts(part) for part in parts]
            return f"({' OR '.join(clauses)})" if all(clauses) else ""
        case _:
            return ""


def _units_to_fts(wanted: Sequence[Unit], *, is_prefix: bool) -> str:
    found: list[str] = []
    for number, unit in enumerate(wanted):
        words = unit.terms()
        if is_prefix and number == len(wanted) - 1 and not unit.is_cjk:
            words = [f"{unit.text[:60]}*"]
        quoted = [_quoted(word) for word in words]
        if unit.parts:
            quoted = [f"({quoted[0]} OR ({' AND '.join(map(_quoted, unit.parts))}))"]
        found += quoted
    return f"({' AND '.join(found)})" if found else ""


def _filters_to_fts(filters: Filters, models: Sequence[str], tools: Sequence[str]) -> Iterator[str]:
    if filters.tool.wanted:
        wanted = [facet_term("t", tool).decode() for tool in filters.tool.wanted]
        yield _any_of([tool for tool in tools if any(_is_tool_facet(facet, tool) for facet in wanted)] or wanted)
    if filters.model.wanted:
        parts = [facet_term("m", model).decode()[2:] for model in filters.model.wanted]
        matching = [model for model in models if any(part in model for part in parts)]
        yield _any_of(matching or [f"{FACET}m{part}" for part in parts])
    kinds = filters.kinds.wanted
    if kinds:
        yield _any_of([f"{FACET}k{kind}_*" for kind in kinds])
    for file in filters.file.wanted[:1] if len(filters.file.wanted) == 1 else ():
        yield _units_to_fts(units(file), is_prefix=True)


def _is_tool_facet(wanted: str, tool: str) -> bool:
    return tool == wanted or wanted[2:] in tool[2:].split("__")


def _any_of(found: Sequence[str]) -> str:
    return f"({' OR '.join(map(_quoted, found))})"


def _quoted(term: str) -> str:
    """Quote a term for FTS5; a `*` at its end stays outside the quotes."""
    plain = term.removesuffix("*").replace('"', "")
    return f'"{plain}" *' if term.endswith("*") else f'"{plain}"'
