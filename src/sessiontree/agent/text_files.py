"""Decode files to text and encode them back byte for byte: encoding, byte order mark, line endings. Pure."""

from __future__ import annotations

import codecs
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


def image_type(head: bytes) -> str | None:
    """The MIME type of an image that models accept, by its first bytes."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return None
