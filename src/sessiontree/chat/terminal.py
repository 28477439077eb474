"""What a person sees. Every text passes `clean` on its way, also when it comes in pieces."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from typing import TextIO

from sessiontree.views.text import clean, columns, cut

DIM, BOLD, RED, GREEN, CYAN = "2", "1", "31", "32", "36"
PLAIN_WIDTH = 100


class Screen:
    """Writes to a terminal, or to whatever stands for one."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.is_terminal = out.isatty()
        self.can_redraw = self.is_terminal and os.environ.get("TERM") not in ("dumb", None)
        self._has_colour = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._is_at_start = True
        self._passing: list[str] = []
        """The lines that stand at the end and go with the next word."""
        self._drawn_at = 0
        """The width of the terminal when they were written."""

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
        except OSError:  # the terminal is gone, or only says that it is one
            size = os.terminal_size((PLAIN_WIDTH, 24))
        return shutil.get_terminal_size(size)  # which looks at standard output, and that may be a file

    def _rows(self) -> int:
        """How many rows the lines take that go with the next word.

        Most terminals fold lines that have become too long when they are made narrower.
        """
        width = self.width
        if width >= self._drawn_at or not _folds():
            return len(self._passing)
        return sum(_rows_of(line, width) for line in self._passing)

    def write(self, text: str, style: str = "") -> None:
        """A piece of text, as it comes. No character of it can do anything but be seen."""
        harmless = clean(text)
        if not harmless:
            return
        self._out.write(self._without_passing() + self._styled(self._encodable(harmless), style))
        self._out.flush()
        self._is_at_start = harmless.endswith("\n")

    def line(self, text: str = "", style: str = "") -> None:
        """A line of its own, whatever was written before."""
        self.end_line()
        self.write(text, style)
        self._out.write("\n")
        self._out.flush()
        self._is_at_start = True

    def lines(self, texts: Iterable[str], style: str = "") -> None:
        for text in texts:
            self.line(text, style)

    def end_line(self) -> None:
        """Go to the beginning of a line, if something stands in this one."""
        if self._passing:
            self._out.write(self._without_passing())
            self._out.flush()
        if not self._is_at_start:
            self._out.write("\n")
            self._out.flush()
            self._is_at_start = True

    def pass_by(self, texts: Sequence[str], style: str = "") -> None:
        """Lines that stand at the end until something else is written. Nothing where they could not go again."""
        if not self.can_redraw:
            return
        if not self._passing:
            self.end_line()
        # A line must not run over the edge, or it would be two when it is to go.
        width = self.width
        lines = [line for text in texts for line in clean(text).split("\n")]
        shown = [cut(self._encodable(line), width - 1) for line in lines]
        up = f"\x1b[{self._rows()}A" if self._passing else ""
        # Each line is written over the one before it, so that nothing blinks. That one is erased first: some terminals
        # remember how long it was, and fold blanks when they are made narrower.
        self._out.write(up + "".join(f"\x1b[2K{self._styled(line, style)}\n" for line in shown) + "\x1b[J")
        self._out.flush()
        self._passing, self._drawn_at = shown, width

    def _without_passing(self) -> str:
        """What takes the lines away that were only passing by: up, and erase what follows."""
        count, self._passing = self._rows() if self._passing else 0, []
        return f"\x1b[{count}A\x1b[J" if count else ""

    def _encodable(self, text: str) -> str:
        encoding = self._out.encoding or "utf-8"
        return text.encode(encoding, "replace").decode(encoding)

    def was_entered(self) -> None:
        """A person has ended the line with the return key."""
        self._is_at_start = True

    def _styled(self, text: str, style: str) -> str:
        if not style or not self._has_colour:
            return text
        # A style that runs over the end of a line colours what a terminal adds there.
        return "\n".join(f"\x1b[{style}m{part}\x1b[0m" if part else "" for part in text.split("\n"))


def _folds() -> bool:
    """Whether the terminal folds lines that have become too long, where a few cut them off."""
    cuts = os.environ.get("TERM") == "linux" or "XTERM_VERSION" in os.environ or "STY" in os.environ
    return "TMUX" in os.environ or not cuts


def _rows_of(line: str, width: int) -> int:
    """How many rows a clean line takes when it is folded at the edge, and not at blanks."""
    rows, used = 1, 0
    for character in line:
        size = columns(character)
        rows, used = (rows + 1, size) if used + size > width else (rows, used + size)
    return rows
