"""A panel whose content is read and rendered in the background, so that no key waits for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from io import StringIO
from typing import TypeAlias

from rich.console import Console, Group, RenderableType
from rich.style import Style
from textual import work
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.worker import get_current_worker

Build: TypeAlias = Callable[[], Sequence[RenderableType]]

_MAX_LINES = 4_000


class RenderedPanel(ScrollView, can_focus=False):
    """Shows rich content. `show_content` replaces it."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._build: Build | None = None
        self._lines: list[Strip] = []
        self._shown: Build | None = None
        self._style = Style()

    @property
    def is_done(self) -> bool:
        """Whether the panel shows the content that was last asked for, or is hidden."""
        return self._build is self._shown or not self.display

    def show_content(self, build: Build, *, delay: float) -> None:
        """Show what a function returns. It is called in a thread after a delay, unless other content is shown then."""
        self._build = build
        if delay:
            self.set_timer(delay, lambda: self._start(build))
        else:
            self._start(build)

    def show_now(self, *content: RenderableType) -> None:
        """Show a few lines at once."""
        self._build = None
        width = self.scrollable_content_region.width
        if self.display and width > 0:
            self._show_lines(render_lines(content, width), width)

    def on_resize(self) -> None:
        if self._build is not None:
            self._start(self._build)

    def _start(self, build: Build) -> None:
        width = self.scrollable_content_region.width
        if build is self._build and self.display and width > 0:
            self._render_built(build, width)

    @work(thread=True, exclusive=True, group="panel")
    def _render_built(self, build: Build, width: int) -> None:
        worker = get_current_worker()
        lines = render_lines(build(), width)
        if not worker.is_cancelled:
            self.app.call_from_thread(self._show_if_wanted, build, lines, width)

    def _show_if_wanted(self, build: Build, lines: list[Strip], width: int) -> None:
        if self.is_attached and build is self._build:
            self._shown = build
            self._show_lines(lines, width)

    def _show_lines(self, lines: list[Strip], width: int) -> None:
        height = self.scrollable_content_region.height
        changed = max(len(self._lines), len(lines)) if self.scroll_offset.y == 0 else height
        self._lines = lines
        # A new size makes Textual arrange the whole screen, so all content that needs no scroll bar has the same size.
        self.virtual_size = Size(width, max(len(lines), height))
        self.scroll_to(0, 0, animate=False)
        self.refresh(Region(0, 0, width, min(changed, height)))

    def render_lines(self, crop: Region) -> list[Strip]:
        self._style = self.rich_style  # the same for all lines; Textual finds it each time
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width, at = self.scrollable_content_region.width, y + self.scroll_offset.y
        if at >= len(self._lines):
            return Strip.blank(width, self._style)
        return self._lines[at].adjust_cell_length(width).apply_style(self._style)


def render_lines(content: Sequence[RenderableType], width: int) -> list[Strip]:
    """Render rich content to lines, in any thread."""
    console = _console(width)
    rendered = console.render_lines(Group(*content), console.options, pad=False)
    return [Strip(line) for line in rendered[:_MAX_LINES]]


@lru_cache(4)
def _console(width: int) -> Console:
    """A console that only renders. Creating one takes longer than rendering a short entry."""
    return Console(
        file=StringIO(), width=width, force_terminal=True, color_system="truecolor", legacy_windows=False, _environ={}
    )
