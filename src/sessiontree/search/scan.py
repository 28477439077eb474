"""Searching files without an index: their bytes are looked through for one word, and only lines that have it are read.

The word is looked for in small letters, as it is written in UTF-8 and as JSON may escape it. What it cannot find this
way (another accent, underscores within) is found once there is an index.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from sessiontree.search.lines import open_file, read_at
from sessiontree.search.query import And, Expression, Or, Phrase, Word
from sessiontree.search.tokens import units

_BLOCK = 256 * 1024
_RARE = b"jqxz"
"""Letters of which most files have so few that it is quickest to look at each of them. Others are not tried."""
_SAMPLE, _FEW, _TRIED = 4096, 16, 1024


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


def scan_file(path: str, start: int, wanted: list[bytes] | None) -> Iterator[tuple[int, bytes]]:
    """The lines of a file from a place on that have one of some words, with their offsets; all lines for None."""
    try:
        descriptor = open_file(path)
    except OSError:
        return
    try:
        yield from _scan(descriptor, start, wanted)
    finally:
        os.close(descriptor)


def _scan(descriptor: int, start: int, wanted: list[bytes] | None) -> Iterator[tuple[int, bytes]]:
    offset = at = start
    held: list[bytes] = []
    while block := read_at(descriptor, at, _BLOCK):
        first = block.find(b"\n") + 1 if held else 0
        last = block.rfind(b"\n") + 1
        if last and held:
            line = b"".join([*held, block[:first]])
            yield from _fitting(line, 0, len(line), offset, wanted)
        if last:
            yield from _fitting(block, first, last, at, wanted)
            held = []
            offset = at + last
        held.append(block[last:])
        at += len(block)
    line = b"".join(held)
    yield from _fitting(line, 0, len(line), offset, wanted)


def _fitting(
    block: bytes, start: int, end: int, offset: int, wanted: list[bytes] | None
) -> Iterator[tuple[int, bytes]]:
    """The lines in a part of a block that have one of some words. The part begins and ends where lines do."""
    if wanted is None:
        while start < end:
            stop = block.find(b"\n", start, end) + 1 or end
            yield offset + start, block[start:stop]
            start = stop
        return
    if not any(_may_have(block, needle) for needle in wanted):
        return
    lowered = block.lower()
    found: set[int] = set()
    for needle in wanted:
        at = lowered.find(needle, start, end)
        while at >= 0:
            found.add(max(start, block.rfind(b"\n", start, at) + 1))
            stop = block.find(b"\n", at, end)
            at = lowered.find(needle, stop, end) if stop >= 0 else -1
    for first in sorted(found):
        stop = block.find(b"\n", first, end) + 1 or end
        yield offset + first, block[first:stop]


def _may_have(block: bytes, needle: bytes) -> bool:
    """Whether a block may have some bytes in any case. False only where one of their letters is rare and tells so.

    To look for one byte takes a small part of the time that any other look at all bytes takes, making them small too.
    """
    before = next((at for at, letter in enumerate(needle) if letter in _RARE), None)
    if before is None:
        return True
    letter, tried = needle[before : before + 1], 0
    either = letter, letter.upper()
    if sum(block.count(one, 0, _SAMPLE) for one in either) > _FEW:
        return True
    for one in either:
        at = block.find(one)
        while at >= 0:
            tried += 1
            if tried > _TRIED or block[max(0, at - before) : at - before + len(needle)].lower() == needle:
                return True
            at = block.find(one, at + 1)
    return False
