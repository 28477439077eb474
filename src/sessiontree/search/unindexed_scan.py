"""Searching files without an index: their bytes are looked through for one word, and only lines that have it are read.

The word is looked for in small letters, as it is written in UTF-8 and as JSON may escape it. What it cannot find this
way (another accent, underscores within) is found once there is an index.

All bytes are looked at by `ahocorasick_rs`, which compares many at once. It tells capitals from small letters, so it is
given a few letters of each word in all ways to write them, and lines that have those are looked at again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from sessiontree.search.file_chunks import open_file, read_at
from sessiontree.search.query_parser import And, Expression, Or, Phrase, Word
from sessiontree.search.tokenizer import units

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick

_BLOCK = 256 * 1024
_COMMON = b"etaoinsrlcdumphgfybwvkxzjq"
"""Letters, the most frequent first: of a word, those letters are looked for that are seldom side by side."""
_SIDE_BY_SIDE, _PATTERNS = 4, 48
"""Four letters are rare enough, in sixteen ways to write them. Up to 64 patterns are compared at once."""
_NEVER = tuple(bytes([byte]) * _SIDE_BY_SIDE for byte in range(1, 5))
"""Patterns with bytes that no JSON has. With three first bytes or fewer the library looks for those one by one, which
takes three times as long for frequent letters."""


def needles(expression: Expression | None) -> list[bytes] | None:
    """Bytes in small letters of which every fitting line has one; None when nothing is known of fitting lines."""
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
    """A word as it may stand in a file: as it is, in capitals where those are not ASCII, and escaped."""
    written = dict.fromkeys((word, word.upper(), word.title()) if not word.isascii() else (word,))
    found = [_lowered(one.encode("utf-8", "replace")) for one in written]
    if not word.isascii():
        found += [_lowered(_escaped(one)) for one in written]
    return list(dict.fromkeys(found))


def _lowered(raw: bytes) -> bytes:
    return raw.lower()


def _escaped(word: str) -> bytes:
    """A word in which everything that is not ASCII is escaped, the way encoders for ASCII write it."""
    units_of_16_bits = word.encode("utf-16-be", "surrogatepass")
    pairs = (units_of_16_bits[at : at + 2] for at in range(0, len(units_of_16_bits), 2))
    return b"".join(
        pair[1:] if pair[0] == 0 and pair[1] < 0x80 else b"\\u%04x" % int.from_bytes(pair, "big") for pair in pairs
    )


class Finder:
    """Finds the lines of a block that have one of some words in small letters, whichever way they are written."""

    __slots__ = ("_patterns", "_words")

    def __init__(self, words: list[bytes]) -> None:
        self._words = words
        self._patterns = _patterns(words)

    def lines(self, block: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Where fitting lines begin and end in a part of a block, which itself begins and ends where lines do."""
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
    """The part of a word that is least likely to stand elsewhere."""
    parts = [word[at : at + length] for at in range(max(1, len(word) - length + 1))]
    return max(parts, key=lambda part: sum(_COMMON.find(letter) % len(_COMMON) for letter in part))


def _written(part: bytes) -> Iterator[bytes]:
    """A few letters, each small and as a capital."""
    return map(bytes, product(*({letter, *bytes([letter]).upper()} for letter in part)))


def scan_file(path: str, start: int, finder: Finder | None) -> Iterator[tuple[int, bytes]]:
    """The lines of a file from a place on that are found, with their offsets; all lines for None."""
    try:
        descriptor = open_file(path)
    except OSError:
        return
    try:
        yield from _scan(descriptor, start, finder)
    finally:
        os.close(descriptor)


def _scan(descriptor: int, start: int, finder: Finder | None) -> Iterator[tuple[int, bytes]]:
    offset = at = start
    held: list[bytes] = []
    while block := read_at(descriptor, at, _BLOCK):
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
    """The lines in a part of a block that are found. The part begins and ends where lines do."""
    for first, last in finder.lines(block, start, end) if finder else _every(block, start, end):
        yield offset + first, block[first:last]


def _every(block: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        last = block.find(b"\n", start, end) + 1 or end
        yield start, last
        start = last
