"""Choose what to rewind: a prompt, with a preview of file changes, and the conversation, files, or both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from msgspec import Struct
from rich.console import RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Resize

from sessiontree.agent.checkpoints import RewindPlan, RewindScope
from sessiontree.agent.prompt_points import ForkPoint
from sessiontree.agent.workspace import Workspace
from sessiontree.app.actions.contract import Done
from sessiontree.app.actions.rewind import RewindAction, plan_rewind, plan_undo_rewind
from sessiontree.errors import SessionTreeError
from sessiontree.session.session import Session
from sessiontree.tui.action_flow import ActionScreen
from sessiontree.tui.chat_dialogs import render_diff_text
from sessiontree.tui.dialogs import PlanDialog
from sessiontree.tui.key_table import KeyFooter
from sessiontree.tui.line_list import LineList, TextRow
from sessiontree.tui.rendered_panel import RenderedPanel
from sessiontree.views.graph import clock
from sessiontree.views.text import clean, fitted, one_line, plural

_WIDE = 100
_DELAY = 0.05
_DIM = Style(dim=True)
_PIECE = 40


class ChosenRewind(Struct, frozen=True):
    """A rewind that the user has confirmed, or the undo of the last one."""

    action: RewindAction
    scope: RewindScope


class PromptRows:
    """The prompts of a branch as rows, newest first."""

    def __init__(self, points: Sequence[ForkPoint]) -> None:
        self.points = points

    def __len__(self) -> int:
        return len(self.points)

    def prepare(self, rows: range) -> None:
        """Nothing to do: previews are in memory."""

    def is_selectable(self, row: int) -> bool:
        return 0 <= row < len(self.points)

    def render(self, row: int, width: int) -> list[Segment]:
        point = self.points[row]
        time = f" {fitted(clock(point.time), 12)} "
        return [Segment(time, _DIM), Segment(fitted(one_line(point.preview), width - len(time)))]


class RewindScreen(ActionScreen[ChosenRewind | None]):
    """The prompts of a branch. Choosing one shows the plan; the chat carries it out."""

    DEFAULT_CSS = """
    RewindScreen #prompts { width: 1fr; }
    RewindScreen RenderedPanel { width: 55%; display: none; }
    RewindScreen.panel RenderedPanel { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "Back", key_display="esc"),
        Binding("b", "rewind('both')", "Both"),
        Binding("c", "rewind('conversation')", "Conversation"),
        Binding("f", "rewind('files')", "Files"),
        Binding("u", "undo", "Undo the last rewind"),
        Binding("left_square_bracket", "scroll_panel(-1)", "Scroll the changes up", show=False),
        Binding("right_square_bracket", "scroll_panel(1)", "Scroll the changes down", show=False),
    ]

    def __init__(self, session: Session, workspace: Workspace, points: Sequence[ForkPoint]) -> None:
        super().__init__()
        self._session, self._workspace, self._points = session, workspace, points

    def compose(self) -> ComposeResult:
        yield TextRow(id="title")
        with Horizontal():
            yield LineList(id="prompts")
            yield RenderedPanel(id="changes")
        yield KeyFooter()

    def on_mount(self) -> None:
        title = "Rewind to just before which prompt?" if self._points else "No prompt to rewind to."
        self.query_one("#title", TextRow).show(f" {title}")
        prompts = self.query_one("#prompts", LineList)
        prompts.focus()
        prompts.show_rows(PromptRows(self._points))

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.width >= _WIDE, "panel")

    @property
    def _selected(self) -> str | None:
        row = self.query_one("#prompts", LineList).cursor
        return None if row is None else self._points[row].id

    @on(LineList.Highlighted)
    def _show_changes(self) -> None:
        entry = self._selected
        if entry is None:
            return

        def build() -> Iterator[RenderableType]:
            try:
                yield from render_plan(plan_rewind(self._session, self._workspace, entry).expected)
            except (SessionTreeError, OSError) as error:
                yield Text(clean(str(error)), "red")

        self.query_one(RenderedPanel).show_content(build, delay=_DELAY)

    # Choices

    @on(LineList.Chosen)
    def _choose_both(self) -> None:
        self.action_rewind("both")

    def action_rewind(self, scope: RewindScope) -> None:
        entry = self._selected
        if entry is not None:
            self._plan(lambda: plan_rewind(self._session, self._workspace, entry), scope)

    def action_undo(self) -> None:
        self._plan(lambda: plan_undo_rewind(self._session, self._workspace), "both")

    def _plan(self, make: Callable[[], RewindAction], scope: RewindScope) -> None:
        """Show what would change, and close when it is confirmed."""

        def show(action: RewindAction) -> None:
            def answered(is_confirmed: bool | None) -> None:
                if is_confirmed:
                    self.dismiss(ChosenRewind(action, scope))

            self.app.push_screen(PlanDialog(action.choose(scope).describe()), answered)

        self.in_background(make, show)

    def action_scroll_panel(self, pages: int) -> None:
        self.query_one(RenderedPanel).scroll_pages(pages)

    def action_close(self) -> None:
        self.dismiss(None)

    def after_action(self, done: Done[Any]) -> None:
        """Nothing to do: the chat carries actions out."""


def render_plan(plan: RewindPlan) -> Iterator[RenderableType]:
    """The files that a rewind changes, and how."""
    if not plan.changes:
        yield Text("No file would change.", "dim")
    else:
        yield Text(f"{plural(len(plan.changes), 'file')} would change:", "bold")
    for change in plan.changes:
        conflict = f"  {one_line(change.conflict)}" if change.conflict else ""
        yield Text(f"  {change.kind:6}  {one_line(change.shown)}").append(conflict, "red")
    for lost in plan.lost:
        yield Text(f"  cannot be restored: {one_line(lost)}", "red")
    lines = plan.diff.splitlines(keepends=True)
    for start in range(0, len(lines), _PIECE):
        yield render_diff_text("".join(lines[start : start + _PIECE]).removesuffix("\n"))
