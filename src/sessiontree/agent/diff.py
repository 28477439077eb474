"""What a change looks like: a unified diff for text, sizes for anything else. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from sessiontree.agent.text_files import decode

_MOST_LINES = 50_000
_MOST_PAIRS = 1_000_000
"""Lines that differ on one side times those on the other, up to which it is worked out which belong together."""
_AROUND = 3
_NO_END = "\\ No newline at end of file"


def render_diff(shown: str, old: bytes | None, new: bytes | None) -> str:
    """The difference between two contents of a file; None means that there is no file."""
    if old == new:
        return ""
    before, after = _text(old), _text(new)
    names = (f"a/{shown}" if old is not None else "/dev/null", f"b/{shown}" if new is not None else "/dev/null")
    if before is None or after is None or max(before.count("\n"), after.count("\n")) > _MOST_LINES:
        sizes = " -> ".join("nothing" if data is None else f"{len(data):,} bytes" for data in (old, new))
        return _printable(f"--- {names[0]}\n+++ {names[1]}\n{sizes}\n")
    told = [line if line.endswith("\n") else line + "\n" for line in _with_ends(_unified(before, after, names))]
    return _printable("".join(told) or f"--- {names[0]}\n+++ {names[1]}\nonly the encoding differs\n")


def _unified(before: str, after: str, names: tuple[str, str]) -> Iterable[str]:
    """The lines of a unified diff, in bounded time: where very much differs, all of it goes and all of it comes."""
    old, new = _lines(before), _lines(after)
    head = _common(old, new)
    tail = min(_common(old[::-1], new[::-1]), len(old) - head, len(new) - head)
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(gone) * len(come) <= _MOST_PAIRS:
        return difflib.unified_diff(old, new, *names, n=_AROUND, lineterm="")
    first, last = old[max(0, head - _AROUND) : head], old[len(old) - tail : len(old) - tail + _AROUND]
    start, around = max(0, head - _AROUND) + 1, len(first) + len(last)
    place = f"@@ -{start},{len(gone) + around} +{start},{len(come) + around} @@"
    lines = [*(f" {line}" for line in first), *(f"-{line}" for line in gone), *(f"+{line}" for line in come)]
    return [f"--- {names[0]}", f"+++ {names[1]}", place, *lines, *(f" {line}" for line in last)]


def _common(one: list[str], other: list[str]) -> int:
    """How many lines are the same from the beginning on."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _printable(text: str) -> str:
    """Without bytes that are no text in the file's encoding."""
    return text.encode("utf-8", "replace").decode()


def _text(data: bytes | None) -> str | None:
    if data is None:
        return ""
    found = decode(data)
    return None if found is None else found.text


def _lines(text: str) -> list[str]:
    """Lines as a diff has them: only LF ends one, and what is not ended is marked."""
    lines = text.split("\n")
    ended = [line + "\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def _with_ends(lines: Iterable[str]) -> list[str]:
    told: list[str] = []
    for number, line in enumerate(lines):
        told.append(line.replace("\r\n", "␍\n"))
        if number > 1 and not line.endswith("\n") and not line.startswith("@@"):
            told.append(_NO_END)
    return told
