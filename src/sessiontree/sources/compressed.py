"""Decompress streams block by block."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal

_GZIP = 16 + zlib.MAX_WBITS
_LONG_LINE = 64 << 20
_MOST_EXPANSION = 200
"""Largest expansion ratio of a long line. A line is held in memory, and a few KB can expand to a line of several GB.
Many lines are not a problem, and even repetitive sessions stay below this ratio.
"""


def iter_decompressed(blocks: Iterable[bytes], codec: Literal["gzip", "zstd"]) -> Iterator[bytes]:
    """Decompress one or several streams; `ValueError` if the last one is incomplete, or a line expands too much."""
    decoder: Any = None
    line = taken = 0  # bytes of the current line, and compressed bytes since its beginning
    for block in blocks:
        rest = block
        taken += len(block)
        while rest:
            decoder = decoder or _decoder(codec)
            expanded = decoder.decompress(rest)
            newline = expanded.rfind(b"\n")
            if newline >= 0:
                line, taken = len(expanded) - newline - 1, len(block)
            else:
                line += len(expanded)
            if line > max(_LONG_LINE, _MOST_EXPANSION * taken):
                yield expanded[: newline + 1]
                raise ValueError(f"a line has over {_MOST_EXPANSION} times its compressed size; the rest is not read")
            yield expanded
            rest = decoder.unused_data if decoder.eof else b""
            if decoder.eof:
                decoder = None
    if decoder is not None:
        raise ValueError("the compressed data ends early")


def _decoder(codec: Literal["gzip", "zstd"]) -> Any:
    if codec == "gzip":
        return zlib.decompressobj(_GZIP)
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()
