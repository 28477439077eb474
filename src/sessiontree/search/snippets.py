"""Snippets: the matches of a hit with the text around them, on one line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

_blank = re.compile(r"\s+")
_control = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")


class Part(Struct, frozen=True):
    """A part of a snippet; `is_hit` if it is a match."""

    text: str
    is_hit: bool = False


def snippet(text: str, spans: Sequence[tuple[int, int]], longest: int = 160) -> tuple[Part, ...]:
    """Cut a snippet around the densest group of matches, the first of several.

    An ellipsis marks text that was cut off. White space and control characters become spaces.
    """
    start, end = _window(text, spans, longest)
    parts = [Part("…")] if start else []
    at = start
    for first, last in spans:
        first, last = max(first, start), min(last, end)
        if first >= last:
            continue
        parts += [Part(text[at:first]), Part(text[first:last], is_hit=True)]
        at = last
    parts.append(Part(text[at:end]))
    parts += [Part("…")] if end < len(text) else []
    shown = (Part(_blank.sub(" ", _control.sub(" ", part.text)), part.is_hit) for part in parts)
    return tuple(part for part in shown if part.text)


def _window(text: str, spans: Sequence[tuple[int, int]], longest: int) -> tuple[int, int]:
    if not spans:
        return 0, min(len(text), longest)
    best, most = 0, 0
    ahead = 0
    for number, (first, _) in enumerate(spans):
        while ahead < len(spans) and spans[ahead][1] <= first + longest * 3 // 4:
            ahead += 1
        if ahead - number > most:
            best, most = number, ahead - number
    first, last = spans[best][0], max(spans[best][1], spans[best + max(most, 1) - 1][1])
    room = max(0, longest - (last - first))
    start = max(0, first - room // 3)
    end = min(len(text), max(start + longest, first + 1))
    space = text.find(" ", start, first)
    if start and 0 <= space - start < 20:
        start = space + 1
    space = text.rfind(" ", min(last, end), end)
    if end < len(text) and end - space < 20 and space > first:
        end = space
    return start, end
