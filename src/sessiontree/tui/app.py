"""The application: its screens, and the request with which it closes."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.console import RenderableType
from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen

from sessiontree.app.workbench import Workbench
from sessiontree.errors import SessionTreeError
from sessiontree.tui.requests import Chat, Request
from sessiontree.tui.sessions import SessionsScreen
from sessiontree.tui.terminal_watch import HANGUP, TerminalWatch
from sessiontree.views.text import clean

if TYPE_CHECKING:
    from sessiontree.app.start import StartOptions
    from sessiontree.tui.chat import ChatScreen


class SessionTreeApp(App[Request | None]):
    """The terminal UI. Its result is what to do in the terminal after it has closed."""

    TITLE = "sessiontree"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", show=False),
        Binding("f2", "toggle_theme", "Light or dark", show=False),
    ]

    def __init__(
        self,
        workbench: Workbench,
        *,
        everywhere: bool = False,
        first: Callable[[], ChatScreen] | None = None,
        start_options: Callable[[Chat], StartOptions] | None = None,
    ) -> None:
        """`first` makes the first screen; default: the list of sessions.

        With `start_options`, a session is continued in a chat of the same app; else the app closes with the request.
        """
        # Until the first frame, almost everything that is created stays: collecting garbage only delays it.
        gc.disable()
        # Without colors, Textual would paint shades of gray: those may not fit the terminal's own colors.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.workbench = workbench
        self._first: Callable[[], Screen[None]] = first or (lambda: SessionsScreen(everywhere=everywhere))
        self._start_options = start_options
        self.late_errors: list[str] = []
        """Errors of actions that ended after the screens had closed."""
        self.is_closing = False
        self.last_words: list[str] = []
        """Lines to print after the screens have closed."""
        self.error: SessionTreeError | None = None
        """Why the app closed, if it failed."""
        self.exit_code = 0
        self._watch: TerminalWatch | None = None

    def on_mount(self) -> None:
        self.theme = "textual-light" if _has_light_background(os.environ) else "textual-dark"
        self.push_screen(self._first())
        self.call_after_refresh(self._collect_garbage)
        if not self.is_headless and sys.__stdin__ is not None and sys.__stderr__ is not None and sys.__stdin__.isatty():
            loop = asyncio.get_running_loop()
            hangup = partial(loop.call_soon_threadsafe, self._end_by_hangup)
            self._watch = TerminalWatch(sys.__stdin__.fileno(), sys.__stderr__.fileno(), hangup)
            self._watch.start()

    def on_unmount(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def _end_by_hangup(self) -> None:
        self.exit_code = HANGUP
        self.call_later(self.action_quit)

    @staticmethod
    def _collect_garbage() -> None:
        gc.freeze()  # modules and known sessions need not be visited each time
        gc.enable()

    def action_toggle_theme(self) -> None:
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def exit(self, result: Request | None = None, return_code: int = 0, message: RenderableType | None = None) -> None:
        self.is_closing = True
        super().exit(result, return_code, message)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a text without control characters: of a session, they could end a paste and start a command."""
        from sessiontree.export.sanitize import safe  # not needed for the first frame

        super().copy_to_clipboard(safe(text))

    def leave(self, request: Request) -> None:
        """Carry a request out: a chat on another screen, anything else in the terminal."""
        if isinstance(request, Chat) and self._start_options is not None:
            from sessiontree.tui.chat import ChatScreen  # the agent: the list needs none of it

            try:
                options = self._start_options(request)
            except SessionTreeError as error:
                self.notify(clean(str(error)), severity="error", timeout=10, markup=False)
                return
            self.push_screen(ChatScreen(options))
        else:
            self.exit(request)

    async def action_quit(self) -> None:
        from sessiontree.tui.chat import ChatScreen

        chat = next((screen for screen in self.screen_stack if isinstance(screen, ChatScreen)), None)
        if chat is None:
            self.exit()
        else:
            chat.leave()

    def chat_ended(self, resume_line: str | None, draft: str) -> None:
        """Close after a chat: the user gets the command that resumes it, and what was not sent."""
        if resume_line is not None:
            self.last_words.append(f"Resume with: {resume_line}")
        if draft.strip():
            self.last_words.append(f"Not sent: {clean(draft)}")
        self.exit()

    def chat_failed(self, chat: ChatScreen, error: SessionTreeError) -> None:
        """Report that a chat could not be opened: in the list it was opened from, or after closing."""
        if any(isinstance(screen, SessionsScreen) for screen in self.screen_stack):
            chat.dismiss()
            self.notify(clean(str(error)), severity="error", timeout=10, markup=False)
        else:
            self.error = error
            self.exit()


def _has_light_background(environment: Mapping[str, str]) -> bool:
    """Whether `COLORFGBG` reports a light background. Querying the terminal would delay the first frame."""
    return environment.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
