"""The complete objects in a JSON document that ends early or is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any

_BETWEEN = " \t\r\n:,["


def find_value(text: str, key: str, start: int = 0) -> tuple[Any, int] | None:
    """The value of the first key with this name from a position on, and its end; None if it is not complete."""
    at = text.find(f'"{key}"', start)
    return None if at < 0 else _value_at(text, at + len(key) + 2)


def iter_list(text: str, key: str, start: int = 0) -> Iterator[Any]:
    """The complete values of a list, up to the damage."""
    at = text.find(f'"{key}"', start)
    found = None if at < 0 else _value_at(text, text.find("[", at) + 1)
    while found is not None:
        yield found[0]
        found = _value_at(text, found[1])


def _value_at(text: str, at: int) -> tuple[Any, int] | None:
    while at < len(text) and text[at] in _BETWEEN:
        at += 1
    try:
        return JSONDecoder(strict=False).raw_decode(text, at)
    except (JSONDecodeError, RecursionError):
        return None
