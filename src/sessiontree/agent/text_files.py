"""The text of files: decoded, encoded back byte for byte (encoding, byte order mark, line endings), compared. Pure."""

from __future__ import annotations

import codecs
import difflib
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 8192
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))
"""Control characters that do not occur in text."""


class FileText(Struct, frozen=True):
    """The text of a file and how it is encoded."""

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""
    errors: Literal["strict", "surrogateescape"] = "strict"
    """`surrogateescape` preserves bytes that are not valid UTF-8."""

    def encode(self, text: str) -> bytes:
        """Encode another text the same way; `UnicodeEncodeError` if that is impossible."""
        return self.bom + text.encode(self.encoding, self.errors)


def decode(data: bytes) -> FileText | None:
    """Decode a file; None if it is binary."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            try:
                return FileText(data[len(bom) :].decode(encoding), encoding, bom)
            except UnicodeDecodeError:
                break
    if is_binary(data):
        return None
    try:
        return FileText(data.decode())
    except UnicodeDecodeError:
        return FileText(data.decode("utf-8", "surrogateescape"), errors="surrogateescape")


def is_binary(data: bytes) -> bool:
    """Whether a file is binary, by its beginning: it has a NUL, or more than a tenth of control characters."""
    head = data[:_SAMPLE]
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    controls = len(head) - len(head.translate(None, _CONTROL))
    return b"\0" in head or controls * 10 > len(head)


def line_end_of(text: str) -> str:
    """The line ending of a text: CRLF if all lines have it, else LF."""
    ends = text.count("\n")
    return "\r\n" if ends and text.count("\r\n") == ends else "\n"


def with_line_ends(text: str, end: str) -> str:
    plain = text.replace("\r\n", "\n")
    return plain if end == "\n" else plain.replace("\n", end)


# Diffs

_MAX_LINES = 50_000
_MAX_PAIRS = 1_000_000
"""Differing lines of one side times those of the other, up to which difflib matches them. Its time is quadratic."""
_CONTEXT = 3
_NO_NEWLINE = "\\ No newline at end of file"


def render_size(size: int) -> str:
    """A number of bytes with its noun: "1 byte", "2 bytes"."""
    return f"{size:,} {'byte' if size == 1 else 'bytes'}"


def render_diff(shown: str, old: bytes | None, new: bytes | None) -> str:
    """The diff between two contents of a file; None if the file does not exist."""
    if old == new:
        return ""
    before, after = _text(old), _text(new)
    names = (f"a/{shown}" if old is not None else "/dev/null", f"b/{shown}" if new is not None else "/dev/null")
    if before is None or after is None or max(before.count("\n"), after.count("\n")) > _MAX_LINES:
        sizes = " -> ".join("nothing" if data is None else render_size(len(data)) for data in (old, new))
        return _printable(f"--- {names[0]}\n+++ {names[1]}\n{sizes}\n")
    lines = [line if line.endswith("\n") else line + "\n" for line in _with_ends(_unified(before, after, names))]
    return _printable("".join(lines) or f"--- {names[0]}\n+++ {names[1]}\nonly the encoding differs\n")


def _unified(before: str, after: str, names: tuple[str, str]) -> Iterable[str]:
    """Lines of a unified diff, in bounded time: a very large change becomes one hunk."""
    old, new = _lines(before), _lines(after)
    head = _common_prefix(old, new)
    tail = min(_common_prefix(old[::-1], new[::-1]), len(old) - head, len(new) - head)
    removed, added = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(removed) * len(added) <= _MAX_PAIRS:
        return difflib.unified_diff(old, new, *names, n=_CONTEXT, lineterm="")
    first, last = old[max(0, head - _CONTEXT) : head], old[len(old) - tail : len(old) - tail + _CONTEXT]
    start, around = max(0, head - _CONTEXT) + 1, len(first) + len(last)
    hunk = f"@@ -{start},{len(removed) + around} +{start},{len(added) + around} @@"
    lines = [*(f" {line}" for line in first), *(f"-{line}" for line in removed), *(f"+{line}" for line in added)]
    return [f"--- {names[0]}", f"+++ {names[1]}", hunk, *lines, *(f" {line}" for line in last)]


def _common_prefix(left: list[str], right: list[str]) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(left), len(right)))


def _printable(text: str) -> str:
    """Replace bytes that are invalid in the file's encoding."""
    return text.encode("utf-8", "replace").decode()


def _text(data: bytes | None) -> str | None:
    if data is None:
        return ""
    found = decode(data)
    return None if found is None else found.text


def _lines(text: str) -> list[str]:
    """Split at LF only, as diff does; the last line may lack one."""
    lines = text.split("\n")
    ended = [line + "\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def _with_ends(lines: Iterable[str]) -> list[str]:
    """Make line endings visible: CR as a symbol, a missing newline as a note."""
    shown: list[str] = []
    for number, line in enumerate(lines):
        shown.append(line.replace("\r\n", "␍\n"))
        if number > 1 and not line.endswith("\n") and not line.startswith("@@"):
            shown.append(_NO_NEWLINE)
    return shown
