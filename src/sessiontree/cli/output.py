"""Everything that goes to stdout: data, as text or as exactly one JSON object."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from sessiontree.core.jsonio import render_json

SCHEMA_VERSION = 1
PLAIN_WIDTH = 100


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on one line. Its `schemaVersion` grows when a field changes its meaning or goes away."""
    data = render_json({"schemaVersion": SCHEMA_VERSION, **value}) + b"\n"
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def print_bytes(pieces: Iterable[bytes]) -> None:
    """A document as it is made, piece by piece."""
    sys.stdout.flush()
    for piece in pieces:
        sys.stdout.buffer.write(piece)


def print_lines(lines: Iterable[str]) -> None:
    """Text that has been made clean. What the encoding of stdout has no character for becomes a question mark."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors != "replace":
        sys.stdout.reconfigure(errors="replace")
    for line in lines:
        sys.stdout.write(line + "\n")


def width() -> int:
    """The terminal's columns; a fixed number when the output goes elsewhere."""
    if not sys.stdout.isatty():
        return int(os.environ.get("COLUMNS") or PLAIN_WIDTH)
    return terminal_columns(PLAIN_WIDTH)


def terminal_columns(otherwise: int) -> int:
    """As `shutil.get_terminal_size` has it, without what comes along with importing that."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or otherwise  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):  # there is no output, it is closed, or it is no terminal
        return otherwise


def use_color() -> bool:
    """Colours only where a person looks and has not asked for none (NO_COLOR, TERM=dumb)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if use_color() else text


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if use_color() else text


def cyan(text: str) -> str:
    return f"\x1b[36m{text}\x1b[0m" if use_color() else text


def can_print(text: str) -> bool:
    """Whether the encoding of the output has all characters of a text."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
