"""The preview of the selected session."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static
from textual.worker import get_current_worker

from sessiontree.app.preview import Preview, preview_session
from sessiontree.errors import SessionTreeError
from sessiontree.library.summary import Summary
from sessiontree.views.text import clean, plural

if TYPE_CHECKING:
    from sessiontree.tui.app import SessionTreeApp

_DELAY = 0.08
"""Seconds before a session is read: a user who moves on does not need it."""
_KEPT = 64


class PreviewPanel(VerticalScroll, can_focus=False):
    """First prompt, first reply, last prompt, last reply."""

    app: SessionTreeApp

    def compose(self) -> ComposeResult:
        yield Static(id="preview-text")

    def on_mount(self) -> None:
        self._previews: OrderedDict[tuple[str, int, int], Preview | str] = OrderedDict()
        self._wanted: Summary | None = None

    def show(self, summary: Summary | None) -> None:
        """Show a session; it is read in the background unless it is known."""
        self._wanted = summary
        if not self.display:
            return
        if summary is None:
            self._render_text(Text())
            return
        known = self._previews.get(_key(summary))
        if known is not None:
            self._render_preview(summary, known)
            return
        self._render_text(_head(summary))
        self.set_timer(_DELAY, lambda: self._load(summary) if self._wanted is summary else None)

    @work(thread=True, exclusive=True, group="preview")
    def _load(self, summary: Summary) -> None:
        worker = get_current_worker()
        found: Preview | str
        try:
            with self.app.workbench.open_session(summary) as session:
                found = preview_session(session)
        except (SessionTreeError, OSError) as error:
            found = str(error)
        if not worker.is_cancelled:
            self.app.call_from_thread(self._loaded, summary, found)

    def _loaded(self, summary: Summary, found: Preview | str) -> None:
        self._previews[_key(summary)] = found
        while len(self._previews) > _KEPT:
            self._previews.popitem(last=False)
        if self._wanted is summary:
            self._render_preview(summary, found)

    def _render_preview(self, summary: Summary, found: Preview | str) -> None:
        text = _head(summary)
        if isinstance(found, str):
            text.append(clean(found), "red")
            self._render_text(text)
            return
        facts = [plural(found.messages, "message"), plural(found.branches, "branch", "branches")]
        if found.problems:
            facts.append(plural(found.problems, "problem"))
        text.append(" · ".join(facts) + "\n", "dim")
        _add(text, "▌ ", found.first_prompt, "bold")
        _add(text, "", found.first_reply, "")
        if found.hidden > 0:
            text.append(f"\n⋯ {plural(found.hidden, 'more message', 'more messages')} ⋯\n", "dim")
        _add(text, "▌ ", found.last_prompt, "bold")
        _add(text, "", found.last_reply, "")
        self._render_text(text)

    def _render_text(self, text: Text) -> None:
        self.query_one("#preview-text", Static).update(text)
        self.scroll_home(animate=False)


def _key(summary: Summary) -> tuple[str, int, int]:
    return summary.ref, summary.size, summary.modified


def _head(summary: Summary) -> Text:
    text = Text()
    text.append(clean(summary.title or "(no title)") + "\n", "bold")
    where = " · ".join(filter(None, [summary.agent, summary.cwd, summary.git_branch, summary.model]))
    text.append(clean(where) + "\n", "dim")
    return text


def _add(text: Text, mark: str, content: str, style: str) -> None:
    if content:
        text.append("\n")
        text.append("\n".join(mark + line for line in clean(content).splitlines()) + "\n", style)
