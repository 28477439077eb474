"""Decompress streams block by block."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal

_GZIP = 16 + zlib.MAX_WBITS


def iter_decompressed(blocks: Iterable[bytes], codec: Literal["gzip", "zstd"]) -> Iterator[bytes]:
    """Decompress one or several streams; `ValueError` if the last one is incomplete."""
    decoder: Any = None
    for block in blocks:
        rest = block
        while rest:
            decoder = decoder or _decoder(codec)
            yield decoder.decompress(rest)
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
