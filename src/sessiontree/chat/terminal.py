"""Terminal output. All text passes through `clean`, even if it arrives in pieces."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from typing import TextIO

from sessiontree.views.text import clean, columns, cut

PLAIN_WIDTH = 100


class Screen:
    """Writes to a terminal, or to a file or pipe instead."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.is_terminal = out.isatty()
        self.can_redraw = self.is_terminal and os.environ.get("TERM") not in ("dumb", None)
        self._has_color = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._is_at_start = True
        self._temporary: list[str] = []
        """Temporary lines at the end, which the next output replaces."""
        self._drawn_at = 0
        """The terminal's width when they were written."""

    @property
    def width(self) -> int:
        if not self.is_terminal:
            return int(os.environ.get("COLUMNS") or PLAIN_WIDTH)
        return self._size().columns

    @property
    def height(self) -> int:
        return self._size().lines

    def _size(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._out.fileno())
        except OSError:  # the terminal is gone
            size = os.terminal_size((PLAIN_WIDTH, 24))
        return shutil.get_terminal_size(size)  # $COLUMNS first; standard output may be a file

    def _rows(self) -> int:
        """How many rows the temporary lines take."""
        # Most terminals rewrap lines that became too long when the window was made narrower.
        width = self.width
        if width >= self._drawn_at or not _rewraps():
            return len(self._temporary)
        return sum(_rows_of(line, width) for line in self._temporary)

    def write(self, text: str, style: str = "") -> None:
        """Write a piece of text without its control characters."""
        cleaned = clean(text)
        if not cleaned:
            return
        self._out.write(self._erase_temporary() + self._styled(self._encodable(cleaned), style))
        self._out.flush()
        self._is_at_start = cleaned.endswith("\n")

    def line(self, text: str = "", style: str = "") -> None:
        """Write a separate line, after ending the current one."""
        self.end_line()
        self.write(text, style)
        self._out.write("\n")
        self._out.flush()
        self._is_at_start = True

    def lines(self, texts: Iterable[str], style: str = "") -> None:
        for text in texts:
            self.line(text, style)

    def end_line(self) -> None:
        """Go to the beginning of a new line, unless at one already."""
        if self._temporary:
            self._out.write(self._erase_temporary())
            self._out.flush()
        if not self._is_at_start:
            self._out.write("\n")
            self._out.flush()
            self._is_at_start = True

    def show_temporary(self, texts: Sequence[str], style: str = "") -> None:
        """Show lines until something else is written. Does nothing if they cannot be erased again."""
        if not self.can_redraw:
            return
        if not self._temporary:
            self.end_line()
        # A line must not wrap, or erasing would miss a row.
        width = self.width
        lines = [line for text in texts for line in clean(text).split("\n")]
        shown = [cut(self._encodable(line), width - 1) for line in lines]
        up = f"\x1b[{self._rows()}A" if self._temporary else ""
        # Overwrite each line in place, so that nothing flickers. Erase it first: some terminals remember how long it
        # was, and rewrap its blanks when the window is made narrower.
        self._out.write(up + "".join(f"\x1b[2K{self._styled(line, style)}\n" for line in shown) + "\x1b[J")
        self._out.flush()
        self._temporary, self._drawn_at = shown, width

    def _erase_temporary(self) -> str:
        """The escape sequence that erases the temporary lines: up, and clear to the end."""
        count, self._temporary = self._rows() if self._temporary else 0, []
        return f"\x1b[{count}A\x1b[J" if count else ""

    def _encodable(self, text: str) -> str:
        encoding = self._out.encoding or "utf-8"
        return text.encode(encoding, "replace").decode(encoding)

    def note_line_entered(self) -> None:
        """Note that the user ended the line with Enter."""
        self._is_at_start = True

    def _styled(self, text: str, style: str) -> str:
        if not style or not self._has_color:
            return text
        # A style across a line break would also color the rest of the row.
        return "\n".join(f"\x1b[{style}m{part}\x1b[0m" if part else "" for part in text.split("\n"))


def _rewraps() -> bool:
    """Whether the terminal rewraps long lines when it is made narrower; a few cut them off."""
    cuts = os.environ.get("TERM") == "linux" or "XTERM_VERSION" in os.environ or "STY" in os.environ
    return "TMUX" in os.environ or not cuts


def _rows_of(line: str, width: int) -> int:
    """How many rows a line takes when wrapped at the edge."""
    rows, used = 1, 0
    for character in line:
        size = columns(character)
        rows, used = (rows + 1, size) if used + size > width else (rows, used + size)
    return rows
