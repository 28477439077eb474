"""Questions on top of a screen: confirm a plan, enter a text, choose from a menu, read a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.console import RenderableType
from rich.markup import escape
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from sessiontree.app.actions.contract import Description
from sessiontree.views.text import clean, one_line

_CSS = """
{name} {{ align: center middle; }}
{name} > Vertical {{
    width: 80%; max-width: 100; height: auto; max-height: 80%;
    border: round $primary; background: $surface; padding: 0 1;
}}
{name} .title {{ text-style: bold; }}
{name} .hint {{ color: $text-muted; }}
{name} .warning {{ color: $warning; }}
{name} VerticalScroll {{ height: auto; max-height: 60vh; }}
"""


class PlanDialog(ModalScreen[bool]):
    """Show what an action will do, and ask for confirmation."""

    DEFAULT_CSS = _CSS.format(name="PlanDialog")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Do it"),
        Binding("n,escape", "answer(False)", "Cancel"),
    ]

    def __init__(self, description: Description) -> None:
        super().__init__()
        self._description = description

    def compose(self) -> ComposeResult:
        plan = self._description
        with Vertical():
            yield Static(escape(clean(plan.title)), classes="title")
            with VerticalScroll():
                for line in plan.lines:
                    yield Static(escape(clean(line)))
                for line in plan.warnings:
                    yield Static(escape(clean(line)), classes="warning")
            if plan.nothing is not None:
                yield Static(escape(f"Nothing to do: {clean(plan.nothing)}"), classes="warning")
            elif plan.final is not None:
                yield Static(escape(f"This cannot be undone: {clean(plan.final)}"), classes="warning")
            yield Static(escape("Enter or y: do it   Esc or n: cancel"), classes="hint")

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer and self._description.nothing is None)


class TextDialog(ModalScreen[str | None]):
    """Ask for one line of text; None if the user cancels."""

    DEFAULT_CSS = _CSS.format(name="TextDialog")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, title: str, value: str = "", hint: str = "Enter: save   Esc: cancel") -> None:
        super().__init__()
        self._title, self._value, self._hint = title, value, hint
        self._shown = one_line(value)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(escape(clean(self._title)), classes="title")
            yield Input(self._shown, select_on_focus=False)
            yield Static(escape(self._hint), classes="hint")

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        # A text with characters that cannot be shown stays as it is unless the user changes it.
        self.dismiss(self._value if event.value == self._shown else event.value)

    def action_cancel(self) -> None:
        self.dismiss(None)


class MenuDialog(ModalScreen[str | None]):
    """Choose one of several options; None if the user cancels."""

    DEFAULT_CSS = _CSS.format(name="MenuDialog")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, title: str, options: Sequence[tuple[str, str]]) -> None:
        """`options` are pairs of an answer and its text."""
        super().__init__()
        self._title, self._options = title, options

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(escape(clean(self._title)), classes="title")
            yield OptionList(*(Option(escape(clean(text)), id=answer) for answer, text in self._options))
            yield Static(escape("Enter: choose   Esc: cancel"), classes="hint")

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def action_cancel(self) -> None:
        self.dismiss(None)


class PageDialog(ModalScreen[None]):
    """A text to read: help, findings, a comparison."""

    DEFAULT_CSS = (
        _CSS.format(name="PageDialog") + "PageDialog.wide > Vertical { width: 100%; max-width: 100%; max-height: 95%; }"
        "PageDialog.wide VerticalScroll { max-height: 85vh; }"
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "close", "Close")]

    def __init__(self, title: str, text: RenderableType, *, is_wide: bool = False) -> None:
        """A text is sanitized. A wide page takes the width of the screen, for text drawn with `text_width`."""
        super().__init__(classes="wide" if is_wide else None)
        self._title, self._text = title, text

    @staticmethod
    def text_width(screen: int) -> int:
        """Columns of text on a wide page."""
        return max(screen - 8, 20)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(escape(clean(self._title)), classes="title")
            with VerticalScroll():
                yield Static(escape(clean(self._text)) if isinstance(self._text, str) else self._text)
            yield Static(escape("↑ ↓: scroll   Esc: close"), classes="hint")

    def action_close(self) -> None:
        self.dismiss(None)
