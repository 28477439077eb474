"""Session text made fit for a terminal: harmless, measured in columns, cut and wrapped by them.

Session content is untrusted. Everything a front end prints goes through `clean` first: control characters, escape
sequences and the invisible characters that reorder text are shown as visible stand-ins, never passed on.
"""

from __future__ import annotations

import re

from wcwidth import wcswidth, wcwidth

_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if code not in (0x09, 0x0A)}
# Marks that change the direction of text can make a line read as something it is not.
_VISIBLE.update(
    {code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
)
_VISIBLE[0x0D] = ""
_VISIBLE[0x1B] = "␛"
_VISIBLE[0xFEFF] = ""
_surrogate = re.compile("[\ud800-\udfff]")
TAB = "    "


def clean(text: str) -> str:
    """Text that cannot do anything to a terminal; line breaks stay."""
    if text.isascii() and text.isprintable():
        return text
    return _surrogate.sub("\ufffd", text.replace("\r\n", "\n").translate(_VISIBLE)).replace("\t", TAB)


def one_line(text: str) -> str:
    """Text on one line, clean, with runs of white space folded."""
    return " ".join(clean(text[:4096]).split())


def columns(text: str) -> int:
    """How many terminal columns a clean line takes; a Chinese, Japanese or Korean character takes two."""
    if text.isascii():
        return len(text)
    width = wcswidth(text)
    return width if width >= 0 else sum(max(wcwidth(character), 0) for character in text)


def cut(text: str, width: int) -> str:
    """A clean line in at most `width` columns, with an ellipsis where it was cut."""
    if columns(text) <= width:
        return text
    if width <= 0:
        return ""
    kept = ""
    used = 0
    for character in text:
        used += max(wcwidth(character), 0)
        if used > width - 1:
            break
        kept += character
    return kept.rstrip() + "…"


def pad(text: str, width: int) -> str:
    """A clean line filled with blanks to `width` columns."""
    return text + " " * max(width - columns(text), 0)
