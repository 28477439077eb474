"""The application: its screens, and what the user asked for at the end."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from typing import ClassVar

from rich.console import RenderableType
from textual.app import App
from textual.binding import Binding, BindingType

from sessiontree.app.workbench import Workbench
from sessiontree.tui.requests import Request
from sessiontree.tui.sessions import SessionsScreen


class SessionTreeApp(App[Request | None]):
    """The terminal UI. Its result is what to do in the terminal after it has closed."""

    TITLE = "sessiontree"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", show=False),
        Binding("f2", "toggle_theme", "Light or dark", show=False),
    ]

    def __init__(self, workbench: Workbench, *, everywhere: bool = False) -> None:
        # Until the first frame, almost everything that is created stays: collecting garbage only delays it.
        gc.disable()
        # Without colors, Textual would paint shades of gray: those may not fit the terminal's own colors.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.workbench = workbench
        self.late_errors: list[str] = []
        """Errors of actions that ended after the screens had closed."""
        self.is_closing = False
        self._is_everywhere = everywhere

    def on_mount(self) -> None:
        self.theme = "textual-light" if _has_light_background(os.environ) else "textual-dark"
        self.push_screen(SessionsScreen(everywhere=self._is_everywhere))
        self.call_after_refresh(self._collect_garbage)

    @staticmethod
    def _collect_garbage() -> None:
        gc.freeze()  # modules and known sessions need not be visited each time
        gc.enable()

    def action_toggle_theme(self) -> None:
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def exit(self, result: Request | None = None, return_code: int = 0, message: RenderableType | None = None) -> None:
        self.is_closing = True
        super().exit(result, return_code, message)

    def leave(self, request: Request) -> None:
        """Close the screens and carry a request out in the terminal."""
        self.exit(request)


def _has_light_background(environment: Mapping[str, str]) -> bool:
    """Whether the terminal told programs that its background is light. Asking it would delay the first frame."""
    return environment.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
