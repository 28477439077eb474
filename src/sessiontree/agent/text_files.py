"""Files as text and back, byte for byte: which encoding, which mark at the beginning, which line ends. Pure."""

from __future__ import annotations

import codecs
from typing import Literal

from msgspec import Struct

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LOOKED_AT = 8192
_ODD = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))
"""Control characters that texts do not have."""


class FileText(Struct, frozen=True):
    """The text of a file and how it was written down."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    errors: Literal["strict", "surrogateescape"] = "strict"
    """Bytes that are no UTF-8 are kept as they are."""

    def encode(self, text: str) -> bytes:
        """Another text written down the same way; UnicodeEncodeError where it cannot be."""
        return self.mark + text.encode(self.encoding, self.errors)


def decode(data: bytes) -> FileText | None:
    """The text of a file; None when it is none."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return FileText(data[len(mark) :].decode(encoding), encoding, mark)
            except UnicodeDecodeError:
                break
    if is_binary(data):
        return None
    try:
        return FileText(data.decode())
    except UnicodeDecodeError:
        return FileText(data.decode("utf-8", "surrogateescape"), errors="surrogateescape")


def is_binary(data: bytes) -> bool:
    """Whether the beginning of a file is not that of a text: a NUL in it, or mostly control characters."""
    head = data[:_LOOKED_AT]
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    odd = len(head) - len(head.translate(None, _ODD))
    return b"\0" in head or odd * 10 > len(head)


def line_end_of(text: str) -> str:
    """How lines end in a text: CRLF when all do so, else LF."""
    ends = text.count("\n")
    return "\r\n" if ends and text.count("\r\n") == ends else "\n"


def with_line_ends(text: str, end: str) -> str:
    """A text with its line ends written otherwise."""
    plain = text.replace("\r\n", "\n")
    return plain if end == "\n" else plain.replace("\n", end)


def image_type(head: bytes) -> str | None:
    """The MIME type of an image that models can be sent, by its first bytes."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return None
