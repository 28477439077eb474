"""Measure speed and size of zstd levels and other compressors on session lines. Run it with `python -m`."""

from __future__ import annotations

import json
import lzma
import random
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import zstandard

ROOT = Path(__file__).parents[2]


def session_like(lines: int) -> bytes:
    """Tool results with pieces of source code, as most bytes of real sessions are."""
    chance = random.Random(1)
    sources = [path.read_text() for path in sorted((ROOT / "src").rglob("*.py"))]
    made: list[bytes] = []
    for _ in range(lines):
        text = chance.choice(sources)
        start = chance.randrange(max(1, len(text) - 4000))
        result = [{"type": "tool_result", "content": text[start : start + 4000]}]
        ids = {"uuid": chance.randbytes(16).hex(), "parentUuid": chance.randbytes(16).hex()}
        made.append(
            json.dumps({"type": "user", **ids, "message": {"role": "user", "content": result}}).encode() + b"\n"
        )
    return b"".join(made)


def measure(name: str, data: bytes, compress: Callable[[bytes], bytes]) -> None:
    start = time.process_time()
    size = len(compress(data))
    seconds = time.process_time() - start
    print(f"{name:<10} {len(data) / size:5.1f} times smaller  {len(data) / seconds / 1e6:6.0f} MB/s")


if __name__ == "__main__":
    lines = session_like(3000)
    for level in (1, 3, 6, 9, 12, 15, 19):
        measure(f"zstd {level}", lines, zstandard.ZstdCompressor(level=level).compress)
    measure("zlib 6", lines, lambda data: zlib.compress(data, 6))
    measure("lzma 6", lines, lambda data: lzma.compress(data, preset=6))
