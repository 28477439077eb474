"""Convert a PNG image to sixels, as a program from stdin to stdout.

It runs as a separate process with limits on time and memory, because images come from sessions. It is written in
Python, with zlib as the only native code, and zlib is never asked for more bytes than the header's size needs. It
imports nothing of sessiontree, so that it starts quickly.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from itertools import groupby, pairwise

MAX_PIXELS = 4_000_000
_SECONDS = 20
_MEMORY = 512 * 1024 * 1024
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By color type: values for each pixel."""
_LEVELS = 6
"""Shades of each of red, green and blue."""
_OPAQUE = 128
_NOTHING = -1


class DecodeError(Exception):
    """The data is not a PNG image of a kind that is supported."""


def main() -> int:
    """`sixel WIDTH HEIGHT < image.png`: at most that many pixels, with the same proportions."""
    import resource  # not on Windows; there, this program is not started

    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    width, height = map(int, sys.argv[1:3])
    try:
        sys.stdout.write(encode(sys.stdin.buffer.read(), width, height))
    except (DecodeError, zlib.error) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def encode(data: bytes, width: int, height: int) -> str:
    """A PNG image as the data of a sixel sequence, scaled down to a size."""
    source = _Png(data)
    factor = min(1.0, width / source.width, height / source.height)
    width, height = max(int(source.width * factor), 1), max(int(source.height * factor), 1)
    rows = [_quantize(row) for row in _scale(source, width, height)]
    used = sorted({color for row in rows for color in row} - {_NOTHING})
    palette = "".join(f"#{color};2;{_describe(color)}" for color in used)
    bands = "-".join(_band(rows[top : top + 6], width) for top in range(0, height, 6))
    return f'"1;1;{width};{height}{palette}{bands}'


def _describe(color: int) -> str:
    levels = (color // (_LEVELS * _LEVELS), color // _LEVELS % _LEVELS, color % _LEVELS)
    return ";".join(str(level * 100 // (_LEVELS - 1)) for level in levels)


def _band(rows: list[list[int]], width: int) -> str:
    """Six rows of pixels: for each color, which of them have it."""
    bits: dict[int, bytearray] = {}
    for at, row in enumerate(rows):
        bit = 1 << at
        for x, color in enumerate(row):
            if color != _NOTHING:
                if color not in bits:
                    bits[color] = bytearray(width)
                bits[color][x] |= bit
    return "$".join(f"#{color}{_run_lengths(found)}" for color, found in bits.items())


def _run_lengths(values: bytearray) -> str:
    parts: list[str] = []
    for value, run in groupby(values.rstrip(b"\0")):
        count, character = len(list(run)), chr(63 + value)
        parts.append(f"!{count}{character}" if count > 3 else character * count)
    return "".join(parts)


def _quantize(row: list[tuple[int, int, int, int]]) -> list[int]:
    most = _LEVELS - 1
    return [
        _NOTHING
        if alpha < _OPAQUE
        else ((red * most + 127) // 255 * _LEVELS + (green * most + 127) // 255) * _LEVELS + (blue * most + 127) // 255
        for red, green, blue, alpha in row
    ]


def _scale(source: _Png, width: int, height: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """Rows of the average colors of rectangles."""
    starts = [x * source.width // width for x in range(width + 1)]
    columns = [(first, max(end, first + 1)) for first, end in pairwise(starts)]
    collected: list[list[tuple[int, int, int, int]]] = []
    y = 0
    for at, row in enumerate(source.rows(), 1):
        collected.append(row)
        if at >= (y + 1) * source.height // height:
            yield [_average([pixel for each in collected for pixel in each[first:end]]) for first, end in columns]
            collected = []
            y += 1


def _average(pixels: list[tuple[int, int, int, int]]) -> tuple[int, int, int, int]:
    if len(pixels) == 1:
        return pixels[0]
    red, green, blue, alpha = (sum(channel) // len(pixels) for channel in zip(*pixels, strict=True))
    return red, green, blue, alpha


class _Png:
    """A PNG image, decoded row by row."""

    def __init__(self, data: bytes) -> None:
        if not data.startswith(b"\x89PNG\r\n\x1a\n"):
            raise DecodeError("not a PNG image")
        self._palette: list[tuple[int, int, int, int]] = []
        header, self._compressed = b"", bytearray()
        for kind, chunk in _chunks(data):
            match kind:
                case b"IHDR":
                    header = chunk
                case b"PLTE":
                    self._palette = [(*chunk[at : at + 3], 255) for at in range(0, len(chunk) - 2, 3)]
                case b"tRNS":
                    for at, alpha in enumerate(chunk[: len(self._palette)]):
                        self._palette[at] = (*self._palette[at][:3], alpha)
                case b"IDAT":
                    self._compressed += chunk
                case _:
                    pass
        if len(header) != 13:
            raise DecodeError("no header")
        self.width, self.height = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")
        self._depth, self._type, interlaced = header[8], header[9], header[12]
        if not 0 < self.width * self.height <= MAX_PIXELS:
            raise DecodeError("too large")
        if self._type not in _CHANNELS or self._depth not in (1, 2, 4, 8, 16) or interlaced:
            raise DecodeError("unsupported")

    def rows(self) -> Iterator[list[tuple[int, int, int, int]]]:
        """The pixels of each row: red, green, blue and alpha."""
        bits = _CHANNELS[self._type] * self._depth
        size, step = (self.width * bits + 7) // 8, max(bits // 8, 1)
        inflated = zlib.decompressobj().decompress(bytes(self._compressed), (size + 1) * self.height)
        before = bytearray(size)
        for y in range(self.height):
            at = y * (size + 1)
            line = bytearray(inflated[at + 1 : at + 1 + size])
            if len(line) < size:
                raise DecodeError("incomplete")
            _unfilter(inflated[at], line, before, step)
            before = line
            yield self._pixels(self._values(line))

    def _values(self, line: bytearray) -> list[int]:
        """The values of a row, each as 8 bits; indexes into a palette as they are."""
        if self._depth == 8:
            return list(line)
        if self._depth == 16:
            return list(line[::2])
        mask, scale = (1 << self._depth) - 1, 1 if self._type == 3 else 255 // ((1 << self._depth) - 1)
        shifts = range(8 - self._depth, -1, -self._depth)
        return [(byte >> shift & mask) * scale for byte in line for shift in shifts][: self.width]

    def _pixels(self, values: list[int]) -> list[tuple[int, int, int, int]]:
        match self._type:
            case 0:
                return [(value, value, value, 255) for value in values]
            case 2:
                return [
                    (red, green, blue, 255)
                    for red, green, blue in zip(values[::3], values[1::3], values[2::3], strict=True)
                ]
            case 3:
                known = dict(enumerate(self._palette))
                return [known.get(value, (0, 0, 0, 255)) for value in values]
            case 4:
                return [(value, value, value, alpha) for value, alpha in zip(values[::2], values[1::2], strict=True)]
            case _:
                return list(zip(values[::4], values[1::4], values[2::4], values[3::4], strict=True))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length


def _unfilter(kind: int, line: bytearray, before: bytearray, step: int) -> None:
    """Restore a row whose bytes are stored as differences from those to the left and above."""
    match kind:
        case 0:
            pass
        case 1:
            for at in range(step, len(line)):
                line[at] = (line[at] + line[at - step]) & 255
        case 2:
            line[:] = bytes((value + above) & 255 for value, above in zip(line, before, strict=True))
        case 3:
            for at, above in enumerate(before):
                left = line[at - step] if at >= step else 0
                line[at] = (line[at] + (left + above) // 2) & 255
        case 4:
            for at, above in enumerate(before):
                left, corner = (line[at - step], before[at - step]) if at >= step else (0, 0)
                to_left, to_above, to_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
                nearest = (
                    left if to_left <= to_above and to_left <= to_corner else above if to_above <= to_corner else corner
                )
                line[at] = (line[at] + nearest) & 255
        case _:
            raise DecodeError("unknown filter")


if __name__ == "__main__":
    sys.exit(main())
