"""The session list and the tree, opened from a chat: a choice returns to the chat instead of acting on its own."""

from __future__ import annotations

from typing import Any

from textual.widgets import Input

from sessiontree.library.summary import Summary
from sessiontree.tui.sessions import SessionsScreen
from sessiontree.tui.tree import TreeScreen


class SessionChooser(SessionsScreen):
    """Choose the session to continue in the chat."""

    chosen: str | None = None

    def action_resume(self) -> None:
        def choose(summary: Summary) -> None:
            self.chosen = summary.ref
            self.dismiss()

        self._with_selected(choose)

    def action_chat(self) -> None:
        self.action_resume()

    def action_back(self) -> None:
        box = self.query_one("#box", Input)
        if self.focused is box and not box.value:
            self.dismiss()
        else:
            super().action_back()


class BranchScreen(TreeScreen):
    """The tree of the chat's session. Going to an entry is left to the chat, which returns prompts to the input."""

    chosen: tuple[str, bool | str] | None = None
    """The entry to go to, and whether to summarize the branch that is left, or what to focus on."""

    def go_to(self, chosen: str, target: str | None, prompt: str, **how: Any) -> None:  # noqa: ARG002
        self.chosen = (chosen, how.get("instructions") or bool(how.get("summarize")))
        self.dismiss()
