"""Tokenizer: text to terms. The same rules build the index and read queries.

* A word is a run of letters, digits and underscores. It is folded: no case, accents, compatibility forms or
  underscores, so `build_session_context` and `buildSessionContext` are both `buildsessioncontext`.
* A compound word, by case or underscores, also has its parts as terms: `HTTPServer2` has `http`, `server`, `server2`
  and `2`.
* Chinese, Japanese and Korean have no spaces between words. Each pair of neighbors is a term, and the last character of
  a run. A single character is searched as the prefix of a pair, so no word is too short.
* A symbol (an emoji) is a term. Everything else separates.

Every byte of every session passes through here. So the terms of each distinct word are computed once and cached
(`Terms`). Each text then only needs a split and dictionary lookups, both in C.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec
from msgspec import Raw, Struct

from sessiontree.dialects.texts import DECODE_ERRORS, all_strings

MAX_WORD = 64
"""Significant length of a word. Longer ones are data, not words."""

_MAX_KNOWN = 60_000
_MAX_RUN = 1 << 20
_WORD_BYTES = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_" + bytes(range(0x80, 0x100))
_WORDS = bytes(byte if byte in _WORD_BYTES else 0x20 for byte in range(256))
_WORDS_WITH_ESCAPES = bytes(byte if byte in b"\\" + _WORD_BYTES else 0x20 for byte in range(256))

CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3105-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_rare_escape = re.compile(rb"\\[tu\\rbf]")
_QUOTE = 0x22
_decode_raws = msgspec.json.Decoder(dict[str, Raw]).decode
_ascii_word = re.compile("[A-Za-z0-9_]+")
_compound = re.compile(r"_|[a-z0-9][A-Z]|[A-Z][A-Z][a-z]")
_compound_bytes = re.compile(rb"_|[a-z0-9][A-Z]|[A-Z][A-Z][a-z]")
_characters = re.compile(rb"(?:\\u[0-9a-fA-F]{4})+")
_blank = re.compile(rb"\\[ntrbf]?")
_part = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?(?:[a-z]|[^\W\d_A-Z])+|[0-9]+")
# Marks that fold away: accents, points, joiners and selectors. Those of kana make another letter and stay.
_marks = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff"
    "\u200b-\u200f\u2060\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\u00ad]"
)


@lru_cache(maxsize=1)
def _any_run() -> re.Pattern[str]:
    """Pattern of the runs in a text that is not ASCII. Compiled on demand, since that takes milliseconds."""
    return re.compile(f"(?P<cjk>[{CJK}]+)|(?P<word>[^\\W{CJK}]+)|(?P<symbol>[^\\w\\s])")


def joined_texts(raws: Sequence[bytes]) -> tuple[bytes, bool]:
    """Join texts as UTF-8 for the tokenizer. The flag is set if escapes are left that may be part of words.

    Most escapes separate words. `\\n` is in nearly every text and is replaced by spaces here. The tokenizer
    resolves the others, once for each distinct word that has one.
    """
    strings: list[bytes | Raw] = []
    others: list[str] = []
    for raw in raws:
        if raw[0] == _QUOTE:
            strings.append(raw)
        elif (named := _strings_of(raw)) is not None:
            strings += named
        else:
            others.append(all_strings(raw))
    joined = b" ".join(strings)
    is_escaped = _rare_escape.search(joined) is not None
    if is_escaped:
        joined = joined.replace(b"\\\\", b"  ")  # every backslash that is left now begins an escape
    joined = joined.replace(b"\\n", b"  ")
    if others:
        joined += b" " + "\n".join(others).encode("utf-8", "replace").replace(b"\\", b" ")
    return joined, is_escaped


def _strings_of(raw: bytes) -> list[Raw] | None:
    """The values of an object that holds only strings, as JSON; None for any other value."""
    try:
        named = _decode_raws(raw)
    except DECODE_ERRORS:
        return None
    values = list(named.values())
    is_other = any(memoryview(value)[0] != _QUOTE for value in values) or "type" in named
    return None if is_other else values


class Unit(Struct, frozen=True):
    """A folded search unit: a word, a run of Chinese, Japanese or Korean, or a symbol."""

    text: str
    is_cjk: bool = False
    written: str = ""
    """The typed form in lowercase, if it differs from the folded one."""
    parts: tuple[str, ...] = ()
    """The parts of a compound word: it may itself be part of a longer one."""

    def terms(self) -> list[str]:
        """Terms that every text with this unit has; one that ends in `*` is a prefix."""
        if not self.is_cjk:
            return [self.text] if len(self.text) < MAX_WORD else [f"{self.text[:MAX_WORD]}*"]
        return [f"{self.text}*"] if len(self.text) == 1 else _pairs(self.text)[:-1]

    @property
    def is_exact(self) -> bool:
        """Whether every text with these terms has the unit."""
        return len(self.text) <= (2 if self.is_cjk else MAX_WORD - 1)

    @property
    def spellings(self) -> list[str]:
        return [self.text, self.written] if self.written else [self.text]


def units(text: str) -> list[Unit]:
    """Split a typed text into search units, in order."""
    if text.isascii():
        return [unit for word in _ascii_word.findall(text) if (unit := _word_unit(word)).text]
    found: list[Unit] = []
    for run in _any_run().finditer(unicodedata.normalize("NFC", text)):
        if run["cjk"]:
            found.append(_unit(run["cjk"], folded(run["cjk"]), is_cjk=True))
        elif run["word"]:
            found.append(_word_unit(run["word"]))
        elif not run["symbol"].isascii() and _is_symbol(run["symbol"]):
            found.append(Unit(folded(run["symbol"])))
    return [unit for unit in found if unit.text]


def _word_unit(word: str) -> Unit:
    return _unit(word, folded(word).replace("_", ""))


def _unit(typed: str, form: str, *, is_cjk: bool = False) -> Unit:
    written = typed.lower().replace("_", "")
    parts = () if is_cjk else tuple(map(folded, _parts(typed)))
    return Unit(form, is_cjk, written if written != form else "", parts if len(parts) > 1 else ())


@lru_cache(maxsize=4096)
def fold_character(character: str) -> str:
    """Fold a character: no case, accents or compatibility forms; empty for a combining mark."""
    plain = unicodedata.normalize("NFKD", character).casefold()
    return unicodedata.normalize("NFC", _marks.sub("", unicodedata.normalize("NFKD", plain)))


def folded(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_folding)


class _Folding(dict[int, str]):
    """Table for `str.translate` that is filled when a character is first seen."""

    def __missing__(self, code: int) -> str:
        form = self[code] = fold_character(chr(code))
        return form


_folding = _Folding()


class Folded:
    """A transformed text that maps its offsets back to those of the original."""

    def __init__(self, text: str, form: str) -> None:
        self.text = form
        self._of = text
        self._offsets: list[int] | None = None

    @classmethod
    def of(cls, text: str) -> Folded:
        return cls(text, text.lower() if text.isascii() else text.translate(_folding))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Map a span of the transformed text to the original."""
        if self._of.isascii() or self.text == self._of:
            return start, end
        if self._offsets is None:
            self._offsets = [offset for offset, character in enumerate(self._of) for _ in fold_character(character)]
        first = self._offsets[start]
        return first, self._offsets[end - 1] + 1 if end > start else first


def is_word_boundary(text: str, at: int) -> bool:
    """Whether a word, or a part of a compound word, may begin or end at a position."""
    if at <= 0 or at >= len(text):
        return True
    before, here = text[at - 1], text[at]
    if not (before.isalnum() and here.isalnum()):
        return True
    if before.isdigit() != here.isdigit():
        return True
    if here.isupper():
        return not before.isupper() or (at + 1 < len(text) and text[at + 1].islower())
    return not (before.isascii() and here.isascii()) and (_is_cjk(before) or _is_cjk(here))


def _is_cjk(character: str) -> bool:
    found = _any_run().match(character)
    return found is not None and found.lastgroup == "cjk"


class Terms:
    """Caches the terms of each distinct word."""

    def __init__(self) -> None:
        self._known = _TermsByWord()

    def of(self, text: bytes, *, is_escaped: bool = False) -> bytes:
        """Terms of a text in UTF-8, separated by spaces, in any order and possibly repeated.

        With `is_escaped`, a backslash begins a JSON escape of any character other than a backslash.
        """
        # Bounded memory: hashes and other data add distinct words without end. Frequent words are back at once.
        if len(self._known) > _MAX_KNOWN:
            self._known.clear()
        words = text.translate(_WORDS_WITH_ESCAPES if is_escaped else _WORDS).split()
        return b" ".join(map(self._known.__getitem__, set(words)))


class _TermsByWord(dict[bytes, bytes]):
    def __missing__(self, word: bytes) -> bytes:
        terms = self[word] = word_terms(word)
        return terms


def word_terms(word: bytes) -> bytes:
    """Terms of the bytes between two separators, separated by spaces."""
    if b"\\" in word:
        return b" ".join(map(word_terms, _unescaped(word).translate(_WORDS).split()))
    if word.isascii() and not _compound_bytes.search(word):
        return word[:MAX_WORD].lower()
    text = unicodedata.normalize("NFC", word[:_MAX_RUN].decode("utf-8", "replace"))
    found: dict[str, None] = {}
    for run in _any_run().finditer(text):
        found.update(dict.fromkeys(_terms_of_word(run["word"]) if run["word"] else _run_terms(run)))
    return " ".join(term for term in found if term).encode("utf-8", "replace")


def _unescaped(word: bytes) -> bytes:
    """Resolve JSON escapes; those of separators become spaces."""
    return _blank.sub(b" ", _characters.sub(_named_characters, word))


def _named_characters(found: re.Match[bytes]) -> bytes:
    units_of_16_bits = bytes.fromhex(found[0].decode().replace("\\u", ""))
    named = units_of_16_bits.decode("utf-16-be", "surrogatepass").encode("utf-8", "replace")
    return named.replace(b"\\", b" ")


def _run_terms(found: re.Match[str]) -> list[str]:
    """Terms of a CJK run or a symbol."""
    if found["cjk"]:
        return _pairs(folded(found["cjk"]))
    if _is_symbol(found["symbol"]):
        return [form for form in folded(found["symbol"]).split() if form]
    return []


def _terms_of_word(word: str) -> list[str]:
    term = folded(word).replace("_", "")[:MAX_WORD]
    if len(word) > MAX_WORD:
        return [term]
    parts = _parts(word)
    counted = [first + two for first, two in pairwise(parts) if two.isdigit() and not first.isdigit()]
    return [term, *map(folded, parts), *map(folded, counted)]


def _parts(word: str) -> list[str]:
    return [part for run in word.split("_") for part in _part.findall(run)] if _compound.search(word) else []


def _pairs(run: str) -> list[str]:
    return [*map("".join, pairwise(run)), run[-1:]]


def _is_symbol(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character) in ("So", "Sm")
