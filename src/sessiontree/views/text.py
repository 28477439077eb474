"""Terminal text: sanitizing, width in columns, cutting and wrapping.

Session content is untrusted. Everything a front end prints goes through `clean` first: control characters, escape
sequences and invisible characters that reorder text are replaced by visible ones.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from sessiontree.core.ids import SHORTEST_PREFIX, IdPrefixes

_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if code not in (0x09, 0x0A)}
# Characters that change the text direction can make a line read as something else.
_VISIBLE.update(
    {code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
)
_VISIBLE[0x0D] = ""
_VISIBLE[0x1B] = "␛"
_VISIBLE[0xFEFF] = ""
_VISIBLE[0x10EEEE] = "\ufffd"  # terminals with kitty's protocol show an image instead
_random_uuid = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[2-589a-fA-F]")
_LONGEST_ID = 40
_SURROGATE = "[\ud800-\udfff]"
_BLANK_CONTROLS = "\r\x0b\x0c\x1c\x1d\x1e\x1f\x85"
"""Control characters that Python counts as white space; they are replaced like all others."""
TAB = "    "

# Ranges of characters with a fixed width whatever their neighbors, and that width: letters, signs and box drawing;
# Chinese, Japanese and Korean; emoji. Text made of them alone does not need wcwidth, which is slow to import.
_PLAIN = (
    (0x20, 0x7E, 1), (0xA1, 0xAC, 1), (0xAE, 0x2FF, 1), (0x391, 0x3A1, 1), (0x3A3, 0x3C9, 1), (0x400, 0x482, 1),
    (0x48A, 0x52F, 1), (0x2010, 0x2027, 1), (0x2030, 0x205E, 1), (0x2190, 0x22FF, 1), (0x2400, 0x2426, 1),
    (0x2500, 0x257F, 1), (0x25A0, 0x25FC, 1), (0x2699, 0x2699, 1), (0x26A1, 0x26A1, 2), (0x2705, 0x2705, 2),
    (0x2713, 0x2713, 1), (0x2717, 0x2717, 1), (0x2728, 0x2728, 2), (0x274C, 0x274C, 2), (0x274E, 0x274E, 2),
    (0x2753, 0x2755, 2), (0x2757, 0x2757, 2), (0x2795, 0x2797, 2), (0x3001, 0x3029, 2), (0x3041, 0x3096, 2),
    (0x30A1, 0x30FA, 2), (0x30FC, 0x30FC, 2), (0x4E00, 0x9FFF, 2), (0xAC00, 0xD7A3, 2), (0xFF01, 0xFF60, 2),
    (0xFFFD, 0xFFFD, 1), (0x1F300, 0x1F320, 2), (0x1F330, 0x1F335, 2), (0x1F337, 0x1F37C, 2), (0x1F37E, 0x1F393, 2),
    (0x1F3A0, 0x1F3CA, 2), (0x1F3E0, 0x1F3F0, 2), (0x1F400, 0x1F43E, 2), (0x1F442, 0x1F4FC, 2), (0x1F500, 0x1F53D, 2),
    (0x1F550, 0x1F567, 2), (0x1F600, 0x1F64F, 2), (0x1F680, 0x1F6C5, 2), (0x1F7E0, 0x1F7EB, 2), (0x1F910, 0x1F93A, 2),
    (0x1F947, 0x1F9CB, 2), (0x1F9D0, 0x1F9FF, 2),
)  # fmt: skip

_WIDENS = "\ufe0f"
"""Variation selector: shows the character before it as an emoji, two columns wide."""
_TONES = "\U0001f3fb-\U0001f3ff"
_ONE_COLUMN = frozenset({1})
_not_ascii = re.compile("[^ -~]")
_PIECE = f"(?s)[\U0001f300-\U0001f9ff][{_TONES}]|."


class _Widths(dict[str, int]):
    """The width of each character if it does not depend on its neighbors; else 0. Found on first use."""

    def __missing__(self, character: str) -> int:
        code = ord(character)
        first, last, width = _PLAIN[bisect_right(_PLAIN, code, key=lambda row: row[0]) - 1]
        found = self[character] = width if first <= code <= last else 0
        return found


plain_width = _Widths().__getitem__


def clean(text: str) -> str:
    """Replace everything that a terminal would interpret; line breaks are kept."""
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_SURROGATE, "\ufffd", text.replace("\r\n", "\n").translate(_VISIBLE)).replace("\t", TAB)


def one_line(text: str) -> str:
    """Sanitize a text and collapse its white space, on one line."""
    start = text[:4096]
    folded = " ".join(start.split())
    if start.isprintable() or (folded.isprintable() and not _has_blank_controls(start)):
        return folded
    return " ".join(clean(start).split())


def _has_blank_controls(text: str) -> bool:
    for mark in _BLANK_CONTROLS:  # noqa: SIM110  # `any` takes twice as long, and every row of a view asks
        if mark in text:
            return True
    return False


def columns(text: str) -> int:
    """The number of terminal columns of a sanitized line; a CJK character takes two."""
    if _is_narrow(text):
        return len(text)
    plain = _plain_pieces(text)
    if plain is not None:
        return sum(plain[1])
    from wcwidth import wcswidth, wcwidth

    width = wcswidth(text)
    return width if width >= 0 else sum(max(wcwidth(character), 0) for character in text)


def cut(text: str, width: int) -> str:
    """Cut a sanitized line to at most `width` columns, with an ellipsis."""
    if width <= 0:
        return ""
    quick = _cut_plain(text, width)
    if quick is not None:
        return quick[0]
    if columns(text) <= width:
        return text
    kept = ""
    used = last = 0
    for character in text:
        more = 2 - last if character == _WIDENS and last else columns(character)
        last = last + more if character == _WIDENS else more or last
        used += more
        if used > width - 1:
            break
        kept += character
    return kept.rstrip() + "…"


def fitted(text: str, width: int) -> str:
    """Cut or pad a sanitized line to exactly `width` columns."""
    quick = _cut_plain(text, width)
    if quick is None:
        return pad(cut(text, width), width)
    return quick[0] + " " * (width - quick[1])


def _cut_plain(text: str, width: int) -> tuple[str, int] | None:
    """A line cut to at most `width` columns and its width; None if characters may combine."""
    head = text[: width + 1]  # a character takes at least one column, so the rest cannot be visible
    if _is_narrow(head):
        if len(text) <= width:
            return text, len(text)
        kept = head[: width - 1].rstrip() + "…"
        return kept, len(kept)
    plain = _plain_pieces(head)
    if plain is not None and len(plain[0]) < len(head):  # skin tone modifiers take no columns
        head = text[: 2 * width + 2]
        plain = _plain_pieces(head)
    if plain is None:
        return None
    pieces, widths = plain
    used = sum(widths)
    if used <= width and len(head) == len(text):
        return text, used
    at = len(pieces)
    while at and (used >= width or pieces[at - 1].isspace()):  # one column is for the ellipsis
        at -= 1
        used -= widths[at]
    return "".join(pieces[:at]) + "…", used + 1


def _is_narrow(text: str) -> bool:
    """Whether each character takes one column: letters, signs and box drawing, but no control character."""
    return text.isascii() or _ONE_COLUMN.issuperset(map(plain_width, _not_ascii.findall(text)))


def _plain_pieces(text: str) -> tuple[Sequence[str], list[int]] | None:
    """Split a text into pieces of known width; None if characters may combine.

    A piece is a character, or an emoji with its skin tone.
    """
    widths = list(map(plain_width, text))
    if all(widths):
        return text, widths
    pieces = re.findall(_PIECE, text) if _TONES[0] <= max(text) else ()
    widths = [plain_width(piece[0]) for piece in pieces]
    return (pieces, widths) if pieces and all(widths) else None


def pad(text: str, width: int) -> str:
    """Pad a sanitized line to at least `width` columns."""
    return text + " " * max(width - columns(text), 0)


def plural(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun: "1 call", "2 calls"."""
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"


def number_range(last: int) -> str:
    """The numbers that can be chosen: "1", "1-9"."""
    return "1" if last == 1 else f"1-{last}"


def human_size(size: int) -> str:
    """A number of bytes with a unit, to two or three digits."""
    if size < 1000:
        return f"{size} B"
    value, unit = size / 1000, "kB"
    for larger in ("MB", "GB"):
        if value >= 999.5:
            value, unit = value / 1000, larger
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"


def short_entry_id(id: str, known: IdPrefixes | None = None) -> str:
    """The first characters of a random UUID or of a very long id; other ids unchanged. Sanitized.

    With `known`, those of the session, there are enough characters to find the entry.
    """
    # A UUID of version 1, 6 or 7 begins with the time: entries of the same minute would get the same text.
    if len(id) == 36 and _random_uuid.match(id):
        return id[:SHORTEST_PREFIX] if known is None else known.shortest(id)
    shown = id[:_LONGEST_ID]
    if known is not None and len(id) > _LONGEST_ID:
        shown = id[: max(len(known.shortest(id)), _LONGEST_ID)]
    return shown if shown.isascii() and shown.isalnum() else one_line(shown)
