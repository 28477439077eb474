"""The input of a chat: several lines, history, completion and pastes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Key, Paste
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import TextArea

from sessiontree.views.text import clean, fitted

_MOST_ROWS = 10
_MENU_ROWS = 8
_NAME_COLUMNS = 28
_HINT = "Message, /command, @file or !shell command · F1: keys"

Completions = Sequence[tuple[str, str]]
"""Texts that replace the last word, with descriptions."""


class CompletionMenu(Widget, can_focus=False):
    """Completions above the input. The editor handles its keys."""

    DEFAULT_CSS = "CompletionMenu { height: auto; max-height: 8; display: none; background: $surface; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.items: Completions = ()
        self.cursor = 0
        self.is_chosen = False
        """Whether the user has moved to an item."""

    @property
    def is_open(self) -> bool:
        return bool(self.items)

    def show(self, items: Completions) -> None:
        self.items, self.cursor, self.is_chosen = items, 0, False
        self.display = bool(items)
        self.refresh(layout=True)

    def move(self, step: int) -> None:
        self.cursor, self.is_chosen = (self.cursor + step) % len(self.items), True
        self.refresh()

    def get_content_height(self, *_: object) -> int:
        return min(len(self.items), _MENU_ROWS)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        row = y + max(self.cursor - _MENU_ROWS + 1, 0)
        if row >= len(self.items):
            return Strip.blank(width, self.rich_style)
        name, note = self.items[row]
        style = self.rich_style + (Style(reverse=True) if row == self.cursor else Style())
        return Strip([Segment(fitted(f" {fitted(clean(name), _NAME_COLUMNS)} {clean(note)}", width), style)], width)


class PromptEditor(TextArea):
    """Enter sends, Ctrl+J starts a new line. Up and Down recall earlier prompts at the first and the last line."""

    DEFAULT_CSS = """
    PromptEditor { height: auto; max-height: 12; border: round $primary; padding: 0 1; }
    PromptEditor:focus { border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "screen.clear_or_leave", "Clear", show=False, priority=True),
    ]

    class Submitted(Message):
        """The user has entered a text."""

        def __init__(self, text: str, *, steers: bool = False) -> None:
            super().__init__()
            self.text, self.steers = text, steers

    def __init__(
        self,
        complete: Callable[[str], Completions],
        take_paste: Callable[[str], str],
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id, soft_wrap=True, show_line_numbers=False, tab_behavior="focus", placeholder=_HINT)
        self._complete, self._take_paste = complete, take_paste
        self.menu = CompletionMenu()
        """Shown by the screen, above the editor."""
        self.earlier: Sequence[str] = ()
        """Earlier prompts, newest first."""
        self._recalled = -1
        self._draft = ""
        self.last_key = 0.0
        """When the user last typed, by the monotonic clock."""

    def set_text(self, text: str) -> None:
        """Replace the text; the cursor goes to its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def take(self) -> str:
        """Remove and return the text."""
        text = self.text
        self.load_text("")
        self._recalled = -1
        self.menu.show(())
        return text

    def get_line(self, line_index: int) -> Text:
        # One character for each: the cursor's column counts them. The text itself is unchanged.
        line = self.document.get_line(line_index)
        if not line.isprintable():
            line = "".join(c if c.isprintable() or (c == "\t") else "\ufffd" for c in line)
        return Text(line, end="", no_wrap=True)

    # Keys

    async def _on_key(self, event: Key) -> None:
        self.last_key = time.monotonic()
        menu, key = self.menu, event.key
        handled = True
        if menu.is_open and key in ("up", "down"):
            menu.move(-1 if key == "up" else 1)
        elif menu.is_open and key in ("tab", "enter") and self._accept(is_enter=key == "enter"):
            pass
        elif key == "enter":
            self._submit(steers=False)
        elif key in ("ctrl+j", "shift+enter", "alt+enter"):
            self.insert("\n")
        elif key == "ctrl+s":
            self._submit(steers=True)
        elif key == "up" and self.cursor_at_first_line:
            self._recall(1)
        elif key == "down" and self.cursor_at_last_line and self._recalled >= 0:
            self._recall(-1)
        else:
            handled = False
        if handled:
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)

    def _submit(self, *, steers: bool) -> None:
        if self.text.endswith("\\"):  # for terminals that send no other key for a new line
            start, end = (self.document.end[0], self.document.end[1] - 1), self.document.end
            self.replace("\n", start, end)
        elif self.text.strip():
            self.post_message(self.Submitted(self.take(), steers=steers))

    def _recall(self, step: int) -> None:
        at = self._recalled + step
        if at >= len(self.earlier):
            return
        if self._recalled < 0:
            self._draft = self.text
        self._recalled = at
        self.set_text(self.earlier[at] if at >= 0 else self._draft)
        self.menu.show(())

    async def _on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()
        self.last_key = time.monotonic()
        self.insert(self._take_paste(event.text.replace("\r\n", "\n").replace("\r", "\n")))

    # Completion

    def refresh_menu(self) -> None:
        """Show the completions of what is typed."""
        before = self._before_cursor()
        word = _last_word(before)
        wants = (before.startswith("/") and self.cursor_location[0] == 0) or word.startswith("@")
        found = self._complete(before) if wants and self._recalled < 0 else ()
        # A complete name is first, so that Enter sends it.
        ordered = sorted(found, key=lambda item: item[0] != word)
        is_complete = len(ordered) == 1 and ordered[0][0] == word
        if ordered or self.menu.is_open:
            self.menu.show(() if is_complete else ordered)

    def _before_cursor(self) -> str:
        """The line up to the cursor."""
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    def _accept(self, *, is_enter: bool) -> bool:
        """Insert the selected completion. On a complete command, Enter sends it instead, even if arguments could
        follow.
        """
        text, _ = self.menu.items[self.menu.cursor]
        word = _last_word(self._before_cursor())
        if is_enter and (text == word or not (word or self.menu.is_chosen)):
            return False
        row, column = self.cursor_location
        self.replace(f"{text} ", (row, column - len(word)), (row, column))
        self.menu.show(())
        return True


def _last_word(text: str) -> str:
    return text.rpartition(" ")[2]
