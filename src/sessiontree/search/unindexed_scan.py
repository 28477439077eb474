"""Search in files that are not indexed: scan their bytes for one word and read only the lines that contain it.

The word is compared in lowercase, in UTF-8 and in its JSON-escaped form. Other spellings (accents, underscores inside)
are found only once the file is indexed.

`ahocorasick_rs` scans with SIMD instructions but is case-sensitive. So it searches for a few letters of each word in
all combinations of case, and lines that have those are compared again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from sessiontree.search.file_chunks import as_file
from sessiontree.search.query import And, Expression, Or, Phrase, Word
from sessiontree.search.tokenizer import units
from sessiontree.stores.contract import SessionStore

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick

_BLOCK = 256 * 1024
_COMMON = b"etaoinsrlcdumphgfybwvkxzjq"
"""Letters by descending frequency: the rarest sequence of letters in a word is searched for."""
_SIDE_BY_SIDE, _PATTERNS = 4, 48
"""Four letters are rare enough and have sixteen combinations of case. Up to 64 patterns are compared at once."""
_NEVER = tuple(bytes([byte]) * _SIDE_BY_SIDE for byte in range(1, 5))
"""Patterns of bytes that JSON never contains. With three or fewer distinct first bytes the library switches to
searching for single bytes, which takes three times as long for frequent letters.
"""


def needles(expression: Expression | None) -> list[bytes] | None:
    """Lowercase byte strings, at least one of which is in every matching line; None if there are none."""
    match expression:
        case Word(text) | Phrase(text):
            found = max(units(text), key=lambda unit: len(unit.text.encode("utf-8", "replace")), default=None)
            return None if found is None else [way for spelled in found.spellings for way in _spellings(spelled)]
        case And(parts):
            known = [spelled for spelled in map(needles, parts) if spelled is not None]
            return max(known, key=lambda spelled: len(spelled[0]), default=None)
        case Or(parts):
            every: list[bytes] = []
            for part in parts:
                spelled = needles(part)
                if spelled is None:
                    return None
                every += spelled
            return every
        case _:
            return None


def _spellings(word: str) -> list[bytes]:
    """Spellings of a word in a file: as it is, capitalized if it is not ASCII, and JSON-escaped."""
    written = dict.fromkeys((word, word.upper(), word.title()) if not word.isascii() else (word,))
    found = [_lowered(form.encode("utf-8", "replace")) for form in written]
    if not word.isascii():
        found += [_lowered(_escaped(form)) for form in written]
    return list(dict.fromkeys(found))


def _lowered(raw: bytes) -> bytes:
    return raw.lower()


def _escaped(word: str) -> bytes:
    """Escape everything that is not ASCII, as JSON encoders with ASCII output do."""
    units_of_16_bits = word.encode("utf-16-be", "surrogatepass")
    pairs = (units_of_16_bits[at : at + 2] for at in range(0, len(units_of_16_bits), 2))
    return b"".join(
        pair[1:] if pair[0] == 0 and pair[1] < 0x80 else b"\\u%04x" % int.from_bytes(pair, "big") for pair in pairs
    )


class Finder:
    """Finds lines of a block that contain one of some lowercase words in any case."""

    __slots__ = ("_patterns", "_words")

    def __init__(self, words: list[bytes]) -> None:
        self._words = words
        self._patterns = _patterns(words)

    def lines(self, block: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Start and end of each matching line in a range of a block. The range consists of whole lines."""
        seen = start
        for _, at, _ in self._patterns.find_matches_as_indexes(memoryview(block)[start:end]):
            at += start
            if at < seen:
                continue
            first = block.rfind(b"\n", seen, at) + 1 or seen
            seen = block.find(b"\n", at, end) + 1 or end
            lowered = block[first:seen].lower()
            if any(word in lowered for word in self._words):
                yield first, seen


def _patterns(words: list[bytes]) -> BytesAhoCorasick:
    from ahocorasick_rs import BytesAhoCorasick, MatchKind

    length = _SIDE_BY_SIDE
    while length > 1 and sum(1 << min(length, len(word)) for word in words) > _PATTERNS:
        length -= 1
    written = {way: None for word in words for way in _written(_rarest(word, length))}
    return BytesAhoCorasick((*written, *_NEVER), matchkind=MatchKind.LeftmostFirst)


def _rarest(word: bytes, length: int) -> bytes:
    """The part of a word that is least likely to occur elsewhere."""
    parts = [word[at : at + length] for at in range(max(1, len(word) - length + 1))]
    return max(parts, key=lambda part: sum(_COMMON.find(letter) % len(_COMMON) for letter in part))


def _written(part: bytes) -> Iterator[bytes]:
    """All combinations of case of a few letters."""
    return map(bytes, product(*({letter, *bytes([letter]).upper()} for letter in part)))


def scan_lines(store: SessionStore, start: int, finder: Finder | None) -> Iterator[tuple[int, bytes]]:
    """Scan a session from an offset on; yields matching lines with their offsets, or every line without a finder."""
    offset = at = start
    held: list[bytes] = []
    with as_file(store, start) as file:
        while block := file.read(_BLOCK):
            first = block.find(b"\n") + 1 if held else 0
            last = block.rfind(b"\n") + 1
            if last and held:
                line = b"".join([*held, block[:first]])
                yield from _fitting(line, 0, len(line), offset, finder)
            if last:
                yield from _fitting(block, first, last, at, finder)
                held = []
                offset = at + last
            held.append(block[last:])
            at += len(block)
    line = b"".join(held)
    yield from _fitting(line, 0, len(line), offset, finder)


def _fitting(block: bytes, start: int, end: int, offset: int, finder: Finder | None) -> Iterator[tuple[int, bytes]]:
    """The matching lines in a range of whole lines."""
    for first, last in finder.lines(block, start, end) if finder else _every(block, start, end):
        yield offset + first, block[first:last]


def _every(block: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        last = block.find(b"\n", start, end) + 1 or end
        yield start, last
        start = last
