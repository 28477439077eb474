"""Questions of a chat: approvals, the list of prompts, earlier prompts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from sessiontree.agent.approval import Question, Reply
from sessiontree.chat.styles import CYAN, DIFF_STYLES, GREEN, RED
from sessiontree.views.text import clean, one_line

_GRACE = 0.3
"""Seconds during which keys still go to the input: the user may have been typing when the question appeared."""
_SHOWN = 200
_COLORS = {GREEN: "green", RED: "red", CYAN: "cyan"}


class ApprovalDialog(ModalScreen[Reply | None]):
    """May a call run? The result is None if the user interrupts the run instead."""

    DEFAULT_CSS = """
    ApprovalDialog { align: center bottom; background: $background 40%; }
    ApprovalDialog > Vertical {
        width: 100%; height: auto; max-height: 85%; border: round $warning; background: $surface; padding: 0 1;
    }
    ApprovalDialog .title { text-style: bold; }
    ApprovalDialog .hint { color: $text-muted; }
    ApprovalDialog VerticalScroll { height: auto; max-height: 50vh; }
    ApprovalDialog OptionList, ApprovalDialog OptionList:focus { height: auto; border: none; background: $surface; }
    ApprovalDialog Input { display: none; }
    ApprovalDialog.reason Input { display: block; }
    ApprovalDialog.reason OptionList { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,1", "answer('once')", "Once"),
        Binding("a,2", "answer('always')", "For this session"),
        Binding("n,3", "reason", "No"),
        Binding("pageup", "scroll(-1)", "Back", show=False),
        Binding("pagedown", "scroll(1)", "On", show=False),
        Binding("escape", "back", "Interrupt"),
        Binding("ctrl+c", "interrupt", "Interrupt", show=False, priority=True),
    ]

    class Typed(Message):
        """A character that was typed for the input, not for the question."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question
        self._shown_at = time.monotonic()

    @property
    def is_ready(self) -> bool:
        """Whether keys answer the question."""
        return time.monotonic() - self._shown_at >= _GRACE

    def compose(self) -> ComposeResult:
        question = self.question
        with Vertical():
            yield Static(Text(f"{one_line(question.tool)}: {one_line(question.title)}"), classes="title")
            with VerticalScroll(id="preview", can_focus=False):
                yield Static(render_diff_text(question.preview))
            for reason in question.reasons:
                yield Static(Text(f"({one_line(reason)})"), classes="hint")
            options = [Option("y  Yes, once", id="once")]
            if question.may_always:
                options.append(Option(Text(f"a  Yes, and {one_line(question.tool)} for this session"), id="always"))
            yield OptionList(*options, Option("n  No, with a reason", id="no"))
            yield Input(placeholder="Why not? Enter: no · Esc: back", select_on_focus=False)
            keys = "y, a, n" if question.may_always else "y, n"
            yield Static(f"{keys} or arrows and Enter · PgUp PgDn scroll · Esc interrupts", classes="hint")

    def on_mount(self) -> None:
        self._shown_at = time.monotonic()
        self.query_one(OptionList).focus()

    def on_key(self, event: Key) -> None:
        # Bindings of the list come first, so Enter is guarded in `_choose`.
        if not self.is_ready and event.is_printable and event.character:
            event.stop()
            event.prevent_default()
            self.post_message_to_chat(event.character)
        elif self.has_class("reason") and event.is_printable and event.character:
            # The line for the reason has no focus yet.
            event.stop()
            self.query_one(Input).insert_text_at_cursor(event.character)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        is_typing = self.has_class("reason")
        return action not in ("answer", "reason") or (self.is_ready and not is_typing)

    def post_message_to_chat(self, text: str) -> None:
        self.app.screen_stack[-2].post_message(self.Typed(text))

    def action_answer(self, answer: str) -> None:
        if answer == "once":
            self.dismiss(Reply("once"))
        elif answer == "always" and self.question.may_always:
            self.dismiss(Reply("always"))

    def action_reason(self) -> None:
        self.add_class("reason")
        self.query_one(Input).focus()

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if not self.is_ready:
            return
        if self.has_class("reason"):  # Enter came before the line for the reason had the focus
            self.dismiss(Reply("no", self.query_one(Input).value.strip()))
        elif event.option_id == "no":
            self.action_reason()
        else:
            self.action_answer(event.option_id or "")

    @on(Input.Submitted)
    def _refuse(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(Reply("no", event.value.strip()))

    def action_scroll(self, pages: int) -> None:
        preview = self.query_one("#preview", VerticalScroll)
        preview.scroll_relative(y=pages * max(preview.size.height - 1, 1), animate=False)

    def action_back(self) -> None:
        if self.has_class("reason"):
            self.remove_class("reason")
            self.query_one(OptionList).focus()
        else:
            self.dismiss(None)

    def action_interrupt(self) -> None:
        self.dismiss(None)


def render_diff_text(text: str) -> Text:
    """A command or a diff, in full, with colors."""
    rendered = Text()
    for line in clean(text).rstrip("\n").split("\n"):
        rendered.append(line + "\n", _COLORS.get(DIFF_STYLES.get(line[:1], ""), ""))
    return rendered


class ChoiceDialog(ModalScreen[tuple[str, int] | None]):
    """Choose a row with the arrows; type to filter. The result is a key and the index of the row."""

    DEFAULT_CSS = """
    ChoiceDialog { align: center middle; }
    ChoiceDialog > Vertical {
        width: 90%; height: auto; max-height: 85%; border: round $primary; background: $surface; padding: 0 1;
    }
    ChoiceDialog .title { text-style: bold; }
    ChoiceDialog .hint { color: $text-muted; }
    ChoiceDialog OptionList, ChoiceDialog OptionList:focus { height: auto; max-height: 60vh; border: none; }
    ChoiceDialog Input { border: none; height: 1; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "cancel", "Cancel", priority=True),
    ]

    def __init__(
        self, title: str, rows: Sequence[str], keys: Sequence[tuple[str, str]] = (), *, cursor: int = 0
    ) -> None:
        """`keys` are other keys besides Enter that choose, with their descriptions: `f`, "new session"."""
        super().__init__()
        self._title, self._rows, self._keys, self._cursor = title, rows, keys, cursor

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(clean(self._title)), classes="title")
            if not self._keys:
                yield Input(placeholder="Type to filter")
            yield OptionList()
            more = "".join(f" · {key}: {note}" for key, note in self._keys)
            yield Static(Text(f"↑ ↓ Enter: choose{more} · Esc: cancel"), classes="hint")

    def on_mount(self) -> None:
        self._fill("")
        found = self.query_one(OptionList)
        found.highlighted = self._cursor if self._rows else None
        (found if self._keys else self.query_one(Input)).focus()

    def _fill(self, typed: str) -> None:
        words = typed.lower().split()
        found = [at for at, row in enumerate(self._rows) if all(word in row.lower() for word in words)][:_SHOWN]
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(Text(one_line(self._rows[at])), id=str(at)) for at in found])
        options.highlighted = 0 if found else None

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        event.stop()
        self._fill(event.value)

    @on(Input.Submitted)
    def _submit(self, event: Input.Submitted) -> None:
        event.stop()
        self._finish("enter")

    @on(OptionList.OptionSelected)
    def _select(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._finish("enter")

    def on_key(self, event: Key) -> None:
        options = self.query_one(OptionList)
        if self.focused is not options and event.key in ("up", "down"):
            event.stop()
            options.action_cursor_up() if event.key == "up" else options.action_cursor_down()
        elif event.key in dict(self._keys):
            event.stop()
            self._finish(event.key)

    def _finish(self, key: str) -> None:
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            chosen = options.get_option_at_index(options.highlighted)
            self.dismiss((key, int(chosen.id or 0)))

    def action_cancel(self) -> None:
        self.dismiss(None)
