"""Output on stdout: data, as text or as one JSON object."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from sessiontree.core.jsonio import escape_controls, iter_json
from sessiontree.views.text import clean

SCHEMA_VERSION = 1
PLAIN_WIDTH = 100
PLAIN_HEIGHT = 24


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line. `schemaVersion` grows when a field changes its meaning or is removed.

    Fields that are iterators are printed as lists while they are read.
    """
    print_bytes(map(escape_controls, iter_json({"schemaVersion": SCHEMA_VERSION, **value})))
    sys.stdout.buffer.write(b"\n")


def print_bytes(pieces: Iterable[bytes]) -> None:
    sys.stdout.flush()
    for piece in pieces:
        sys.stdout.buffer.write(piece)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines that passed `clean`. Characters that stdout cannot encode become question marks."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors != "replace":
        sys.stdout.reconfigure(errors="replace")
    for line in lines:
        sys.stdout.write(line + "\n")


def print_value(text: str) -> None:
    """Print an id or a path from a session on a separate line; what a terminal would interpret is made visible."""
    print_lines([clean(text)])


def width() -> int:
    """The terminal's columns; a fixed number for other outputs."""
    return terminal_columns(PLAIN_WIDTH) if sys.stdout.isatty() else _set_columns() or PLAIN_WIDTH


def terminal_columns(fallback: int) -> int:
    """Like `shutil.get_terminal_size().columns`, without the cost of importing `shutil`."""
    columns = _set_columns()
    if columns:
        return columns
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or fallback  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):  # stdout is missing, closed, or not a terminal
        return fallback


_MOST_COLUMNS = 10_000
"""Lines are padded to the width: a larger number in the environment is a mistake."""


def _set_columns() -> int:
    return min(_number_in("COLUMNS"), _MOST_COLUMNS)


def _number_in(name: str) -> int:
    """The number in an environment variable; 0 if it is missing or not a number."""
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def is_terminal() -> bool:
    return sys.stdout.isatty()


def height() -> int:
    """The terminal's rows."""
    try:
        return _number_in("LINES") or os.get_terminal_size(sys.stdout.fileno()).lines or PLAIN_HEIGHT
    except (AttributeError, ValueError, OSError):  # stdout is closed, or not a terminal
        return PLAIN_HEIGHT


def use_color() -> bool:
    """Whether stdout is a terminal and colors are not turned off (NO_COLOR, TERM=dumb)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if use_color() else text


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if use_color() else text


def cyan(text: str) -> str:
    return f"\x1b[36m{text}\x1b[0m" if use_color() else text


def can_print(text: str) -> bool:
    """Whether stdout's encoding has all characters of a text."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
