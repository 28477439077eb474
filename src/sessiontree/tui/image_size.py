"""The size in pixels of PNG, JPEG, GIF and WebP images, from their headers. Nothing is decompressed."""

from __future__ import annotations

_PNG_HEADER = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR"
_FRAME_HEADERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers of segments that begin with the size of the image."""
_NO_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height; None if the header is damaged, or the size is zero."""
    if data.startswith(_PNG_HEADER):
        found = (_big(data, 16, 4), _big(data, 20, 4)) if len(data) >= 24 else None
    elif data.startswith(b"\xff\xd8"):
        found = _jpeg_size(data)
    elif data.startswith((b"GIF87a", b"GIF89a")):
        found = (_little(data, 6, 2), _little(data, 8, 2)) if len(data) >= 10 else None
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        found = _webp_size(data)
    else:
        found = None
    return found if found is not None and min(found) > 0 else None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _FRAME_HEADERS:
            return _big(data, at + 7, 2), _big(data, at + 5, 2)
        at += 1 if marker == 0xFF else 2 if marker in _NO_LENGTH else 2 + max(_big(data, at + 2, 2), 2)
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 30:
        return None
    match data[12:16]:
        case b"VP8X":
            return _little(data, 24, 3) + 1, _little(data, 27, 3) + 1
        case b"VP8L":
            bits = _little(data, 21, 4)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
        case _:
            return None


def _big(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "big")


def _little(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "little")
