"""Sample images, made here: no test needs a library for them."""

from __future__ import annotations

import base64
import struct
import zlib

from sessiontree.core.messages import Image


def png(
    width: int,
    height: int,
    *,
    color: tuple[int, int, int] = (255, 0, 0),
    filter: int = 0,
    depth: int = 8,
    more: bytes = b"",
) -> bytes:
    """A PNG image of one color; `more` is put into a text chunk."""
    sample = bytes(color) if depth == 8 else b"".join(bytes([value, 0]) for value in color)
    first = bytes([filter]) + (sample * width if filter in (0, 2) else sample + bytes(len(sample) * (width - 1)))
    if filter in (2, 4):  # the rows below have the same colors
        rest = bytes([filter]) + bytes(len(sample) * width)
    else:
        rest = first
    if filter == 3:
        raise ValueError("not needed")
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)),
            _chunk(b"tEXt", more) if more else b"",
            _chunk(b"IDAT", zlib.compress(first + rest * (height - 1))),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def image(data: bytes, mime_type: str = "image/png") -> Image:
    return Image(base64.b64encode(data).decode(), mime_type)
