"""Text -> the terms it is found by. The same rules make the index and read the query.

* A word is a run of letters, digits and underscores. Its one form has no case, no accents, no compatibility forms and
  no underscores: `build_session_context` and `buildSessionContext` are both `buildsessioncontext`.
* A word that is made of several, by case or underscores, is found by each of them too: `HTTPServer2` by `http`,
  `server`, `server2` and `2`.
* Chinese, Japanese and Korean have no spaces to go by: each pair of neighbours is a term, and the last character of a
  run by itself. A single character is found as the beginning of a pair, so no word is too short.
* A symbol (an emoji) is a term. All else separates.

Every byte of every session comes by here, so no word is looked at twice: what the bytes of a distinct word are found by
is worked out once and remembered (`Terms`). What is left to do for each text is a split and a look-up, both in C.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct

LONGEST_WORD = 64
"""Letters of a word that count. What is longer is data."""

_MOST_KNOWN = 60_000
_LONGEST_RUN = 1 << 20
_WORD_BYTES = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_" + bytes(range(0x80, 0x100))
_WORDS = bytes(byte if byte in _WORD_BYTES else 0x20 for byte in range(256))
_WORDS_WITH_ESCAPES = bytes(byte if byte in b"\\" + _WORD_BYTES else 0x20 for byte in range(256))

CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3105-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_ascii_word = re.compile("[A-Za-z0-9_]+")
_made = re.compile(r"_|[a-z0-9][A-Z]|[A-Z][A-Z][a-z]")
_made_bytes = re.compile(rb"_|[a-z0-9][A-Z]|[A-Z][A-Z][a-z]")
_characters = re.compile(rb"(?:\\u[0-9a-fA-F]{4})+")
_blank = re.compile(rb"\\[ntrbf]?")
_part = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?(?:[a-z]|[^\W\d_A-Z])+|[0-9]+")
# Marks that fold away: accents, points, joiners and selectors. Those of kana, which make another letter, do not.
_marks = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff"
    "\u200b-\u200f\u2060\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\u00ad]"
)


@lru_cache(maxsize=1)
def _any_run() -> re.Pattern[str]:
    """What texts are made of that are more than ASCII. Made when needed: it takes milliseconds."""
    return re.compile(f"(?P<cjk>[{CJK}]+)|(?P<word>[^\\W{CJK}]+)|(?P<symbol>[^\\w\\s])")


class Unit(Struct, frozen=True):
    """One thing to look for: a word, a run of Chinese, Japanese or Korean, or a symbol, in its one form."""

    text: str
    is_cjk: bool = False
    written: str = ""
    """How it was typed, in small letters, where that is another form."""
    parts: tuple[str, ...] = ()
    """What a word is made of, where it is made of several: it may be a part of a longer one."""

    def terms(self) -> list[str]:
        """The terms that a text has which holds this; one that ends in `*` stands for all that begin so."""
        if not self.is_cjk:
            return [self.text] if len(self.text) < LONGEST_WORD else [f"{self.text[:LONGEST_WORD]}*"]
        return [f"{self.text}*"] if len(self.text) == 1 else _pairs(self.text)[:-1]

    @property
    def is_exact(self) -> bool:
        """Whether every text with its terms holds it."""
        return len(self.text) <= (2 if self.is_cjk else LONGEST_WORD - 1)

    @property
    def spellings(self) -> list[str]:
        return [self.text, self.written] if self.written else [self.text]


def units(text: str) -> list[Unit]:
    """What a typed text asks for, in order."""
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
    """A character without case, accents and compatibility forms; nothing at all for a mark."""
    plain = unicodedata.normalize("NFKD", character).casefold()
    return unicodedata.normalize("NFC", _marks.sub("", unicodedata.normalize("NFKD", plain)))


def folded(text: str) -> str:
    """A text in its one form."""
    return text.lower() if text.isascii() else text.translate(_folding)


class _Folding(dict[int, str]):
    """For `str.translate`: what each character folds to, found out when it is first met."""

    def __missing__(self, code: int) -> str:
        form = self[code] = fold_character(chr(code))
        return form


_folding = _Folding()


class Folded:
    """A text in another form, and where in the text each part of that came from."""

    def __init__(self, text: str, form: str) -> None:
        self.text = form
        self._of = text
        self._places: list[int] | None = None

    @classmethod
    def of(cls, text: str) -> Folded:
        """A text in its one form."""
        return cls(text, text.lower() if text.isascii() else text.translate(_folding))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The part of the text that a part of the form came from."""
        if self._of.isascii() or self.text == self._of:
            return start, end
        if self._places is None:
            self._places = [place for place, one in enumerate(self._of) for _ in fold_character(one)]
        first = self._places[start]
        return first, self._places[end - 1] + 1 if end > start else first


def is_border(text: str, at: int) -> bool:
    """Whether a word, or a part of one, may begin or end at a place of a text."""
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
    """Words to terms, remembering what each distinct word is found by."""

    def __init__(self) -> None:
        self._known = _KnownWords()

    def of(self, text: bytes, *, is_escaped: bool = False) -> bytes:
        """The terms of a text in UTF-8 with spaces between them, in no order, some perhaps more than once.

        In one that is escaped, backslashes begin escapes of JSON, which may stand for any character but a backslash.
        """
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        words = text.translate(_WORDS_WITH_ESCAPES if is_escaped else _WORDS).split()
        return b" ".join(map(self._known.__getitem__, set(words)))


class _KnownWords(dict[bytes, bytes]):
    """What each word is found by, worked out when it is first met."""

    def __missing__(self, word: bytes) -> bytes:
        terms = self[word] = word_terms(word)
        return terms


def word_terms(word: bytes) -> bytes:
    """What the bytes between two separators are found by, with spaces between the terms."""
    if b"\\" in word:
        return b" ".join(map(word_terms, _unescaped(word).translate(_WORDS).split()))
    if word.isascii() and not _made_bytes.search(word):
        return word[:LONGEST_WORD].lower()
    text = unicodedata.normalize("NFC", word[:_LONGEST_RUN].decode("utf-8", "replace"))
    found: dict[str, None] = {}
    for run in _any_run().finditer(text):
        found.update(dict.fromkeys(_terms_of_word(run["word"]) if run["word"] else _run_terms(run)))
    return " ".join(term for term in found if term).encode("utf-8", "replace")


def _unescaped(word: bytes) -> bytes:
    """What stands between two separators in a JSON string, as text; blanks for escapes of what separates."""
    return _blank.sub(b" ", _characters.sub(_named_characters, word))


def _named_characters(found: re.Match[bytes]) -> bytes:
    units_of_16_bits = bytes.fromhex(found[0].decode().replace("\\u", ""))
    named = units_of_16_bits.decode("utf-16-be", "surrogatepass").encode("utf-8", "replace")
    return named.replace(b"\\", b" ")


def _run_terms(found: re.Match[str]) -> list[str]:
    """The terms of a run that is no word of letters with case."""
    if found["cjk"]:
        return _pairs(folded(found["cjk"]))
    if _is_symbol(found["symbol"]):
        return [form for form in folded(found["symbol"]).split() if form]
    return []


def _terms_of_word(word: str) -> list[str]:
    whole = folded(word).replace("_", "")[:LONGEST_WORD]
    if len(word) > LONGEST_WORD:
        return [whole]
    parts = _parts(word)
    counted = [one + two for one, two in pairwise(parts) if two.isdigit() and not one.isdigit()]
    return [whole, *map(folded, parts), *map(folded, counted)]


def _parts(word: str) -> list[str]:
    return [part for one in word.split("_") for part in _part.findall(one)] if _made.search(word) else []


def _pairs(run: str) -> list[str]:
    return [*map("".join, pairwise(run)), run[-1:]]


def _is_symbol(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character) in ("So", "Sm")
