"""The preview of the selected session."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from sessiontree.errors import SessionTreeError
from sessiontree.library.summary import Summary
from sessiontree.tui.rendered_panel import RenderedPanel
from sessiontree.views.text import clean, plural

if TYPE_CHECKING:
    from sessiontree.app.preview import Preview
    from sessiontree.tui.app import SessionTreeApp

_DELAY = 0.08
"""Seconds before a session is read: a user who moves on does not need it."""
_KEPT = 64


class PreviewPanel(RenderedPanel):
    """First prompt, first reply, last prompt, last reply, and the branches."""

    app: SessionTreeApp

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._previews: OrderedDict[tuple[str, int, int], Preview | str] = OrderedDict()
        self._key: tuple[str, int, int] | None = None

    def show(self, summary: Summary | None) -> None:
        """Show a session; it is read in the background unless it is known."""
        if summary is None:
            self._key = None
            self.show_now()
            return
        key = _key(summary)
        if key != self._key:
            self.show_now(self._head(summary))
        self._key = key
        self.show_content(lambda: self._build_preview(summary), delay=0 if key in self._previews else _DELAY)

    def _head(self, summary: Summary) -> Text:
        text = Text()
        text.append(clean(summary.title or "(no title)") + "\n", "bold")
        folder = self.app.workbench.with_short_paths(summary.cwd)
        where = " · ".join(filter(None, [summary.agent, folder, summary.git_branch, summary.model]))
        text.append(clean(where) + "\n", "dim")
        return text

    def _build_preview(self, summary: Summary) -> list[RenderableType]:
        found = self._previews.get(_key(summary))
        if found is None:
            from sessiontree.app.preview import preview_session  # not needed for the first frame

            try:
                with self.app.workbench.open_session(summary) as session:
                    found = preview_session(session)
            except (SessionTreeError, OSError) as error:
                found = str(error)
            self._previews[_key(summary)] = found
            while len(self._previews) > _KEPT:
                self._previews.popitem(last=False)
        return _render(self._head(summary), found)


def _render(text: Text, found: Preview | str) -> list[RenderableType]:
    if isinstance(found, str):
        text.append(clean(found), "red")
        return [text]
    where = " on the current branch" if found.branches > 1 else ""
    facts = [f"{plural(found.messages, 'message')}{where}", plural(found.branches, "branch", "branches")]
    if found.problems:
        facts.append(plural(found.problems, "problem"))
    text.append(" · ".join(facts) + "\n", "dim")
    _add(text, "▌ ", found.first_prompt, "bold")
    _add(text, "", found.first_reply, "")
    if found.hidden_turns:
        text.append(f"\n⋯ {plural(found.hidden_turns, 'more turn')} ⋯\n", "dim")
    elif found.hidden > 0:
        text.append(f"\n⋯ {plural(found.hidden, 'more message')} ⋯\n", "dim")
    _add(text, "▌ ", found.last_prompt, "bold")
    _add(text, "", found.last_reply, "")
    tree = [
        Text(line, "" if "●" in line or "◆" in line else "dim", no_wrap=True, overflow="ellipsis")
        for line in found.tree
    ]
    return [text, *tree]


def _key(summary: Summary) -> tuple[str, int, int]:
    return summary.ref, summary.size, summary.modified


def _add(text: Text, mark: str, content: str, style: str) -> None:
    if content:
        text.append("\n")
        text.append("\n".join(mark + line for line in clean(content).splitlines()) + "\n", style)
