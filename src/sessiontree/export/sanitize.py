"""Sanitize session text for files that people open: no control characters, nothing that reorders a line.

The rules are those for a terminal (`views.text`), except that tabs are kept and color codes are dropped. Texts are
checked first: nearly all need no change, and the replacement is slow.
"""

from __future__ import annotations

import re

from sessiontree.views.text import clean

_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U0010eeee]"
)
_CONTROLS = bytes(code for code in (*range(0x20), 0x7F) if code not in b"\t\n")
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,32}m")


def safe(text: str) -> str:
    """Replace invisible characters that have an effect; line breaks and tabs are kept."""
    if not _is_odd(text):
        return text
    text = _COLOUR.sub("", text).replace("\r\n", "\n")
    return _ODD.sub(_visible, text)


def _is_odd(text: str) -> bool:
    if text.isascii():  # deleting bytes is several times as fast as a regular expression
        data = text.encode()
        return len(data.translate(None, _CONTROLS)) != len(data)
    return _ODD.search(text) is not None


def _visible(found: re.Match[str]) -> str:
    return clean(found[0])


class Block:
    """A part of a message: prose, or fenced code."""

    __slots__ = ("code", "language", "text")

    def __init__(self, text: str, *, code: bool = False, language: str = "") -> None:
        self.text, self.code, self.language = text, code, language


_FENCE = re.compile(r"^([ \t]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+)?)(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)$", re.MULTILINE)


def blocks(text: str) -> list[Block]:
    """Split a message into prose and fenced code. An unclosed fence extends to the end."""
    if "```" not in text and "~~~" not in text:
        return [Block(text)]
    found: list[Block] = []
    at = 0
    while (opening := _FENCE.search(text, at)) is not None:
        indent, fence, language = opening[1], opening[2], opening[3].strip()
        before = text[at : opening.start()] + indent.rstrip()
        if before.strip():
            found.append(Block(before.strip("\n")))
        body_at = min(opening.end() + 1, len(text))
        closing = _closing(fence).search(text, body_at)
        body = text[body_at : closing.start() if closing else len(text)].removesuffix("\n")
        found.append(Block(_dedented(body, indent), code=True, language=language))
        if closing is None:
            return found
        at = closing.end()
    rest = text[at:].strip("\n")
    if rest.strip():
        found.append(Block(rest))
    return found


def _closing(fence: str) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$", re.MULTILINE)


def _dedented(body: str, indent: str) -> str:
    """Remove the indentation of the surrounding list."""
    width = len(indent)
    if not width:
        return body
    blank = " " * width
    return "\n".join(line.removeprefix(blank) for line in body.split("\n"))
