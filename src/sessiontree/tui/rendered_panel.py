"""A panel whose content is read and rendered in the background, so that no key waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import lru_cache
from io import StringIO
from typing import ClassVar, TypeAlias

from rich.console import Console, RenderableType
from rich.segment import Segment
from textual import work
from textual.geometry import Region

from sessiontree.tui.line_widget import LineWidget

Build: TypeAlias = Callable[[], Iterable[RenderableType]]
"""Returns content, or yields it part by part: parts that are not visible are not asked for."""

_MAX_LINES = 4_000


class RenderedPanel(LineWidget, can_focus=False):
    """Shows rich content to the right of a line. `show_content` replaces it.

    Textual arranges the whole screen again when the content of its own scroll views changes height, so this widget
    scrolls itself. Content is rendered as far as it is visible, and the rest when the user scrolls.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rendered-panel--edge"}
    DEFAULT_CSS = "RenderedPanel > .rendered-panel--edge { color: $surface-lighten-2; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._build: Build | None = None
        self._lines: list[list[Segment]] = []
        self._shown: Build | None = None
        self._is_whole = True
        """Whether all of the content is rendered, not only the beginning."""
        self._rows_to_scroll = 0
        """Rows that the user scrolled while the rest was being rendered."""

    @property
    def is_done(self) -> bool:
        """Whether the panel shows the content that was last asked for, or is hidden."""
        return self._build is self._shown or not self.display

    @property
    def _text_width(self) -> int:
        return self.line_width - len("│ ")

    def show_content(self, build: Build, *, delay: float) -> None:
        """Show what a function returns. It is called in a thread after a delay, unless other content is shown then."""
        self._build = build
        self._rows_to_scroll = 0
        self._show_built(build, delay)

    def show_now(self, *content: RenderableType) -> None:
        """Show a few lines at once."""
        self._build = None
        width = self._text_width
        if self.display and width > 0:
            self._show_lines(render_lines(content, width))

    def on_resize(self) -> None:
        if self._build is not None:
            self._show_built(self._build, 0)

    @work(exclusive=True, group="panel")
    async def _show_built(self, build: Build, delay: float, *, is_whole: bool = False) -> None:
        await asyncio.sleep(delay)
        width, enough = self._text_width, _MAX_LINES if is_whole else self.visible_lines
        if build is not self._build or not self.display or width <= 0:
            return
        lines = await asyncio.to_thread(lambda: render_lines(build(), width, enough))
        if not self.is_attached or build is not self._build:  # other content was requested meanwhile
            return
        self._shown = build
        if is_whole:
            self._lines, self._is_whole = lines, True
            self.repaint()
            self.scroll_rows(self._rows_to_scroll)
        else:
            self._show_lines(lines, is_whole=len(lines) <= enough)

    def _show_lines(self, lines: list[list[Segment]], *, is_whole: bool = True) -> None:
        changed = max(len(self._lines), len(lines))
        self._lines, self._is_whole, self.top = lines, is_whole, 0
        self.repaint(Region(0, 0, self.size.width, min(changed, self.size.height)))

    # Scrolling

    def scroll_pages(self, pages: int) -> None:
        """Scroll down or, with a negative number, up."""
        self.scroll_rows(pages * max(self.size.height - 2, 1))

    def scroll_rows(self, rows: int) -> None:
        if self._is_whole or self._build is None:
            super().scroll_rows(rows)
        else:
            self._rows_to_scroll += rows
            self._show_built(self._build, 0, is_whole=True)

    # Lines

    def count_lines(self) -> int:
        return len(self._lines)

    @property
    def line_width(self) -> int:
        return self.size.width - 1  # the scroll bar has its column even if all lines fit

    def draw_margin(self) -> list[Segment]:
        return [Segment("│", self.get_component_rich_style("rendered-panel--edge", partial=True)), Segment(" ")]

    def draw_line(self, line: int, width: int) -> Iterable[Segment]:  # noqa: ARG002 - lines were rendered for it
        return self._lines[line]


def render_lines(content: Iterable[RenderableType], width: int, enough: int = _MAX_LINES) -> list[list[Segment]]:
    """Render rich content to lines, in any thread: all of it, or the parts up to more than `enough` lines."""
    console = _console(width)
    lines: list[list[Segment]] = []
    for part in content:
        lines += console.render_lines(part, console.options, pad=False)
        if len(lines) > enough:
            break
    return lines[:_MAX_LINES]


@lru_cache(4)
def _console(width: int) -> Console:
    """A console that only renders. Creating one takes longer than rendering a short entry."""
    return Console(
        file=StringIO(), width=width, force_terminal=True, color_system="truecolor", legacy_windows=False, _environ={}
    )
