"""A widget of lines that implements its own scrolling and caches painted lines.

Textual asks a widget for all of its lines when anything next to it has changed, and takes several steps to style, pad
and filter each of them. This widget does that once for each style, and once for each line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.events import MouseScrollDown, MouseScrollUp
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

WHEEL_ROWS = 3
_MAX_KEPT = 128
"""Painted lines that are kept: a few screens."""
_AFTER = -1
"""A line after the last one."""


class WheelScrolled(Widget):
    """A widget that scrolls by lines when the mouse wheel turns."""

    def scroll_rows(self, rows: int) -> None:
        """Scroll down or, with a negative number, up."""
        raise NotImplementedError

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self.scroll_rows(WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self.scroll_rows(-WHEEL_ROWS)


class LineWidget(WheelScrolled):
    """Lines with a scroll bar in the last column. The widget has no border and no padding."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"line-widget--scrollbar"}
    DEFAULT_CSS = """
    LineWidget { height: 1fr; }
    LineWidget > .line-widget--scrollbar { color: $primary; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.top = 0
        """The first visible line."""
        self._kept: dict[tuple[int, bool, Style | None], Strip] = {}
        """Painted lines, with and without a part of the scroll bar, by the style of the whole line."""
        self._paint: _Paint | None = None
        """What they were painted with."""
        self._prepared = range(0)

    # Content

    def count_lines(self) -> int:
        """The number of lines, visible or not."""
        raise NotImplementedError

    def prepare_lines(self, lines: range) -> None:
        """Called before some lines are drawn."""

    def draw_line(self, line: int, width: int) -> Iterable[Segment]:
        """A line as sanitized text of at most `width` columns."""
        raise NotImplementedError

    def draw_margin(self) -> list[Segment]:
        """The prefix of every line, including the empty ones after the last."""
        return []

    def line_style(self, line: int) -> Style | None:  # noqa: ARG002 - most widgets have one style for all
        """A style that replaces the colors of a line."""
        return None

    @property
    def line_width(self) -> int:
        """Columns for a line, without the scroll bar."""
        return self.size.width - (self.count_lines() > self.visible_lines)

    @property
    def visible_lines(self) -> int:
        return max(self.size.height, 1)

    def repaint(self, *regions: Region) -> None:
        """Draw lines again, after their content has changed."""
        self._kept, self._prepared = {}, range(0)
        self.refresh(*regions)

    def scroll_rows(self, rows: int) -> None:
        self.top = max(min(self.top + rows, self.count_lines() - self.visible_lines), 0)
        self.refresh()

    # Painting

    def render_lines(self, crop: Region) -> list[Strip]:
        width, height = self.size
        key = (tuple(self.get_line_filters()), width, self.line_width)
        if self._paint is None or key != self._paint.key:
            self._kept, self._paint = {}, _Paint(self.rich_style, self.background_colors[1], *key)
        count, top, paint = self.count_lines(), self.top, self._paint
        bar = bar_rows(top, height, count)
        visible = range(top, min(top + height, count))
        if visible != self._prepared:
            self.prepare_lines(visible)
            self._prepared = visible
        strips = [self._line(top + y if top + y < count else _AFTER, paint, is_bar=y in bar) for y in crop.line_range]
        return strips if crop.column_span == (0, width) else [strip.crop(*crop.column_span) for strip in strips]

    def notify_style_update(self) -> None:
        """Called by Textual when styles have changed, for example by another theme."""
        super().notify_style_update()
        self._paint = None

    def render_line(self, y: int) -> Strip:
        return self.render_lines(Region(0, y, self.size.width, 1))[0]

    def _line(self, line: int, paint: _Paint, *, is_bar: bool) -> Strip:
        """A line, with its part of the scroll bar."""
        style = self.line_style(line)
        kept = self._kept.get((line, is_bar, style))
        if kept is not None:
            return kept
        drawn = self.draw_margin()
        if line != _AFTER:
            drawn += self.draw_line(line, paint.room - sum(segment.cell_length for segment in drawn))
        segments = [Segment(text, paint.style_of(of_text, style)) for text, of_text, _ in drawn]
        used = sum(segment.cell_length for segment in segments)
        if used > paint.room:
            segments, used = Segment.adjust_line_length(segments, paint.room), paint.room
        if used < paint.room:
            segments.append(Segment(" " * (paint.room - used), paint.style_of(None, style)))
        if paint.room < paint.width:
            bar_style = self.get_component_rich_style("line-widget--scrollbar", partial=True) if is_bar else None
            segments.append(Segment("▐" if is_bar else " ", paint.style_of(bar_style, None)))
        strip = self._kept[line, is_bar, style] = Strip(segments, paint.width)
        if len(self._kept) > _MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return strip


def bar_rows(top: int, height: int, count: int) -> range:
    """The rows of the screen with the scroll bar: `height` of `count` rows are visible, from `top` on."""
    if count <= height:
        return range(0)
    size = max(height * height // count, 1)
    start = (height - size) * top // (count - height)
    return range(start, start + size)


class _Paint:
    """What all lines of a widget have in common: its style, filters and width."""

    def __init__(self, style: Style, background: Color, filters: tuple[LineFilter, ...], width: int, room: int) -> None:
        self.key = (filters, width, room)
        """What may change without another style."""
        self._style, self._background, self._filters = style, background, filters
        self.width = width
        self.room = room
        """Columns for a line, without the scroll bar."""
        self._styles: dict[tuple[Style | None, Style | None], Style] = {}

    def style_of(self, of_text: Style | None, of_line: Style | None) -> Style:
        """The style on the screen of a text in a line that may have a style of its own."""
        known = self._styles.get((of_text, of_line))
        if known is not None:
            return known
        if of_line is None:
            style = self._style + of_text
        else:
            # The line's colors replace those of the text, so that every theme keeps its contrast.
            style = self._style + of_line + Style(bold=bool(of_text and of_text.bold))
        segments = [Segment(" ", style)]
        for each in self._filters:
            segments = each.apply(segments, self._background)
        found = self._styles[of_text, of_line] = segments[0].style or Style()
        return found
