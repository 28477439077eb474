"""What a person sees. Every text passes `clean` on its way, also when it comes in pieces."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import TextIO

from sessiontree.views.text import clean

DIM, BOLD, RED, GREEN, CYAN = "2", "1", "31", "32", "36"
PLAIN_WIDTH = 100


class Screen:
    """Writes to a terminal, or to whatever stands for one."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.is_terminal = out.isatty()
        self._has_colour = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._is_at_start = True

    @property
    def width(self) -> int:
        if not self.is_terminal:
            return int(os.environ.get("COLUMNS") or PLAIN_WIDTH)
        return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns

    def write(self, text: str, style: str = "") -> None:
        """A piece of text, as it comes. No character of it can do anything but be seen."""
        harmless = clean(text)
        if not harmless:
            return
        encoding = self._out.encoding or "utf-8"
        shown = harmless.encode(encoding, "replace").decode(encoding)
        self._out.write(self._styled(shown, style))
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
        if not self._is_at_start:
            self._out.write("\n")
            self._out.flush()
            self._is_at_start = True

    def was_entered(self) -> None:
        """A person has ended the line with the return key."""
        self._is_at_start = True

    def _styled(self, text: str, style: str) -> str:
        if not style or not self._has_colour:
            return text
        # A style that runs over the end of a line colours what a terminal adds there.
        return "\n".join(f"\x1b[{style}m{part}\x1b[0m" if part else "" for part in text.split("\n"))
