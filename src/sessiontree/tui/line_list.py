"""A list whose rows are rendered only while they are visible.

Textual's own lists create an object for every row. With 50,000 rows that takes seconds, so this widget keeps a number
of rows, a cursor and an offset, and asks its source for the visible rows.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from sessiontree.tui.line_widget import LineWidget
from sessiontree.views.text import fitted


class RowSource(Protocol):
    """What a `LineList` shows: rows that are rendered one by one, only while they are visible."""

    def __len__(self) -> int: ...

    def render(self, row: int, width: int) -> list[Segment]:
        """A row as sanitized text of at most `width` columns."""

    def prepare(self, rows: range) -> None:
        """Read what is needed to render some rows, all at once."""

    def is_selectable(self, row: int) -> bool:
        """Whether the cursor can be on a row; headings are skipped."""


class NoRows:
    """The source of an empty list."""

    def __len__(self) -> int:
        return 0

    def render(self, row: int, width: int) -> list[Segment]:  # noqa: ARG002 - the protocol has it
        raise IndexError(row)

    def prepare(self, rows: range) -> None:
        pass

    def is_selectable(self, row: int) -> bool:
        raise IndexError(row)


class LineList(LineWidget, can_focus=True):
    """Rows with a cursor. Only the visible ones are rendered, and moving the cursor renders two of them again."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"line-list--cursor", "line-list--cursor-blurred"}
    DEFAULT_CSS = """
    LineList > .line-list--cursor { background: $primary; color: $text; text-style: bold; }
    LineList > .line-list--cursor-blurred { background: $surface-lighten-2; color: $text; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "jump(0)", "First", show=False),
        Binding("end", "jump(-1)", "Last", show=False),
        Binding("enter", "choose", "Choose", show=False),
    ]

    class Highlighted(Message):
        """The cursor is on another row."""

        def __init__(self, line_list: LineList, row: int | None) -> None:
            super().__init__()
            self.line_list, self.row = line_list, row

        @property
        def control(self) -> LineList:
            return self.line_list

    class Resized(Message):
        """The width for rows has changed."""

        def __init__(self, line_list: LineList) -> None:
            super().__init__()
            self.line_list = line_list

        @property
        def control(self) -> LineList:
            return self.line_list

    class Chosen(Message):
        """The user pressed Enter on a row, or clicked it twice."""

        def __init__(self, line_list: LineList, row: int) -> None:
            super().__init__()
            self.line_list, self.row = line_list, row

        @property
        def control(self) -> LineList:
            return self.line_list

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.rows: RowSource = NoRows()
        self.cursor: int | None = None

    # Content

    def show_rows(self, rows: RowSource, cursor: int | None = None) -> None:
        """Replace the rows; the cursor is put on the given one, or on the first."""
        self.rows = rows
        self.cursor = None
        self._place(0 if cursor is None else cursor, 1)
        self.repaint()

    # Cursor

    @property
    def first(self) -> int | None:
        """The first row that can be selected."""
        return self._find_selectable(0, 1)

    def move_to(self, row: int, *, step: int = 1) -> None:
        """Put the cursor on a row, or on the next one in the direction of `step` that can be selected."""
        self._place(row, step)

    def action_move(self, step: int) -> None:
        if self.cursor is None:
            self._place(0, 1)
        else:
            self._place(self.cursor + step, step)

    def action_page(self, pages: int) -> None:
        rows = max(self.visible_lines - 1, 1)
        self._place((self.cursor or 0) + pages * rows, pages)

    def action_jump(self, row: int) -> None:
        self._place(row if row >= 0 else len(self.rows) - 1, 1 if row >= 0 else -1)

    def action_choose(self) -> None:
        if self.cursor is not None:
            self.post_message(self.Chosen(self, self.cursor))

    def _place(self, row: int, step: int) -> None:
        found = self._find_selectable(row, 1 if step > 0 else -1)
        before, top = self.cursor, self.top
        self.cursor = found
        self._scroll_to_cursor()
        if self.top != top:
            self.refresh()
        else:
            for changed in {before, found} - {None}:
                assert changed is not None
                self.refresh(Region(0, changed - self.top, max(self.size.width, 1), 1))
        if found != before or found is None:
            self.post_message(self.Highlighted(self, found))

    def _find_selectable(self, row: int, step: int) -> int | None:
        """The nearest row that can be selected, first in the direction of `step`."""
        count = len(self.rows)
        if not count:
            return None
        row = min(max(row, 0), count - 1)
        ahead = range(row, count) if step > 0 else range(row, -1, -1)
        back = range(row - 1, -1, -1) if step > 0 else range(row + 1, count)
        return next((at for rows in (ahead, back) for at in rows if self.rows.is_selectable(at)), None)

    def _scroll_to_cursor(self) -> None:
        visible = self.visible_lines
        cursor = self.cursor or 0
        if cursor < self.top:
            # A heading above the first row stays visible.
            self.top = cursor - 1 if cursor == 1 and not self.rows.is_selectable(0) else cursor
        elif cursor >= self.top + visible:
            self.top = cursor - visible + 1
        self.top = max(min(self.top, len(self.rows) - visible), 0)

    # Mouse and size

    def on_click(self, event: Click) -> None:
        row = self.top + event.y
        if row < len(self.rows) and self.rows.is_selectable(row):
            self._place(row, 1)
            if event.chain > 1:
                self.action_choose()

    def on_resize(self) -> None:
        self._scroll_to_cursor()
        self.refresh()
        self.post_message(self.Resized(self))

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    # Lines

    def count_lines(self) -> int:
        return len(self.rows)

    def prepare_lines(self, lines: range) -> None:
        self.rows.prepare(lines)

    def draw_line(self, line: int, width: int) -> list[Segment]:
        return self.rows.render(line, width)

    def line_style(self, line: int) -> Style | None:
        if line != self.cursor:
            return None
        name = "line-list--cursor" if self.has_focus else "line-list--cursor-blurred"
        style = self.get_component_rich_style(name, partial=True)
        if self.app.no_color:
            style += Style(reverse=self.has_focus, underline=not self.has_focus)
        return style


class TextRow(Widget):
    """One row of sanitized text, cut at the width of the screen. Unlike `Static` it keeps spaces and parses nothing."""

    DEFAULT_CSS = "TextRow { height: 1; color: $text-muted; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text = ""

    def show(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self.refresh()

    def render_line(self, y: int) -> Strip:  # noqa: ARG002 - there is only one
        width = self.size.width
        return Strip([Segment(fitted(self._text, width), self.rich_style)], width)
