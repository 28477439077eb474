"""The first lines of a file, by which dialects recognize their own."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from sessiontree.core.jsonio import parse_json

_LINES = 32


@functools.lru_cache(1)
def head_records(head: bytes) -> tuple[dict[str, Any], ...]:
    """The JSON objects among the first lines of a file. Cached, because every dialect needs the same ones."""
    return tuple(_iter_records(head))


def _iter_records(head: bytes) -> Iterator[dict[str, Any]]:
    for line in head.removeprefix(b"\xef\xbb\xbf").split(b"\n", _LINES)[:_LINES]:
        line = line.strip(b"\x00 \t\r")
        if not line.endswith(b"}"):
            continue  # not an object, or one that continues beyond the head
        try:
            fields = parse_json(line)
        except ValueError:
            continue
        if isinstance(fields, dict):
            yield fields
