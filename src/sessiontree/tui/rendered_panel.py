"""A panel whose content is read and rendered in the background, so that no key waits for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from io import StringIO
from typing import ClassVar, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.segment import Segment
from rich.style import Style
from textual import work
from textual.events import MouseScrollDown, MouseScrollUp
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import get_current_worker

from sessiontree.tui.line_list import WHEEL_ROWS, bar_rows

Build: TypeAlias = Callable[[], Sequence[RenderableType]]

_MAX_LINES = 4_000


class RenderedPanel(Widget, can_focus=False):
    """Shows rich content. `show_content` replaces it.

    Textual arranges the whole screen again when the content of its own scroll views gets another height, so this widget
    scrolls itself, with a scroll bar in its last column.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rendered-panel--scrollbar"}
    DEFAULT_CSS = """
    RenderedPanel { height: 1fr; padding: 0 0 0 1; }
    RenderedPanel > .rendered-panel--scrollbar { color: $primary; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._build: Build | None = None
        self._lines: list[Strip] = []
        self._shown: Build | None = None
        self._top = 0
        """The first visible line."""
        self._style = self._bar_style = Style()

    @property
    def is_done(self) -> bool:
        """Whether the panel shows the content that was last asked for, or is hidden."""
        return self._build is self._shown or not self.display

    @property
    def _text_width(self) -> int:
        return self.size.width - 1

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
        width = self._text_width
        if self.display and width > 0:
            self._show_lines(render_lines(content, width))

    def on_resize(self) -> None:
        if self._build is not None:
            self._start(self._build)

    def _start(self, build: Build) -> None:
        width = self._text_width
        if build is self._build and self.display and width > 0:
            self._render_built(build, width)

    @work(thread=True, exclusive=True, group="panel")
    def _render_built(self, build: Build, width: int) -> None:
        worker = get_current_worker()
        lines = render_lines(build(), width)
        if not worker.is_cancelled:
            self.app.call_from_thread(self._show_if_wanted, build, lines)

    def _show_if_wanted(self, build: Build, lines: list[Strip]) -> None:
        if self.is_attached and build is self._build:
            self._shown = build
            self._show_lines(lines)

    def _show_lines(self, lines: list[Strip]) -> None:
        changed = max(len(self._lines), len(lines))
        self._lines, self._top = lines, 0
        self.refresh(Region(0, 0, self.size.width, min(changed, self.size.height)))

    # Scrolling

    def scroll_pages(self, pages: int) -> None:
        """Scroll down or, with a negative number, up."""
        self._scroll(pages * max(self.size.height - 2, 1))

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self._scroll(WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self._scroll(-WHEEL_ROWS)

    def _scroll(self, rows: int) -> None:
        self._top = max(min(self._top + rows, len(self._lines) - self.size.height), 0)
        self.refresh()

    # Rendering

    def render_lines(self, crop: Region) -> list[Strip]:
        # The same for all lines; Textual finds styles each time.
        self._style = self.rich_style
        self._bar_style = self._style + self.get_component_rich_style("rendered-panel--scrollbar", partial=True)
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        (width, height), at = self.size, y + self._top
        if at >= len(self._lines):
            return Strip.blank(width, self._style)
        strip = self._lines[at].adjust_cell_length(width - 1).apply_style(self._style)
        is_bar = y in bar_rows(self._top, height, len(self._lines))
        bar = Segment("▐", self._bar_style) if is_bar else Segment(" ", self._style)
        return Strip([*strip, bar], width)


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
