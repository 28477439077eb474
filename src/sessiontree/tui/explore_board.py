"""The board of an exploration: a column for each lane, its conversation live, and the decision about the lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.markup import escape
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import HorizontalScroll
from textual.screen import Screen
from textual.widgets import Static

from sessiontree.agent.events import AgentEnd, Persisted, Retry, TextDelta
from sessiontree.agent.tools.base import Tools
from sessiontree.app.exploration import LaneApprover
from sessiontree.app.summaries import summary_options
from sessiontree.chat.base_chat import LaneApprovers
from sessiontree.chat.lane_view import LaneDecider, decision_lines, is_undecided
from sessiontree.chat.styles import DIM
from sessiontree.core.entries import ApprovalMode
from sessiontree.errors import SessionTreeError
from sessiontree.explore.compare import Result
from sessiontree.explore.decisions import DecisionResult
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.lane import ENDED, Lane
from sessiontree.explore.lane_table import cost, duration
from sessiontree.explore.state import ExplorationLike
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.session.session import Session
from sessiontree.tui.chat_dialogs import render_diff_text
from sessiontree.tui.chat_events import EventView
from sessiontree.tui.chat_transcript import Transcript
from sessiontree.tui.dialogs import PageDialog
from sessiontree.tui.key_table import KeyFooter, KeyRow, Shortcut, make_bindings, make_help
from sessiontree.tui.line_list import TextRow
from sessiontree.views.listing import amount
from sessiontree.views.text import clean, one_line, plural

if TYPE_CHECKING:
    from sessiontree.tui.app import SessionTreeApp
    from sessiontree.tui.chat_host import FullScreenChat

_REDRAW_SECONDS = 0.2
_ANSWER_CHARACTERS = 600
_STATES = {"done": "green", "failed": "red", "limit": "yellow", "stopped": "yellow", "running": "cyan"}

_KEYS = (
    KeyRow("← →", "select a lane", Shortcut("left", "select(-1)"), Shortcut("right,tab", "select(1)")),
    KeyRow("Enter", "its conversation, live", Shortcut("enter", "open", "Open")),
    KeyRow("Space", "mark lanes to merge or drop together", Shortcut("space", "mark", "Mark")),
    KeyRow("k", "keep: make the lane current and apply its files", Shortcut("k", "keep", "Keep")),
    KeyRow("m", "merge the marked lanes, or this one", Shortcut("m", "merge", "Merge")),
    KeyRow("x", "drop the marked lanes, or this one", Shortcut("x", "drop", "Drop")),
    KeyRow("d", "the lane's changes as a diff", Shortcut("d", "diff", "Diff")),
    KeyRow("s  S", "stop this lane, stop all", Shortcut("s", "stop(False)", "Stop"), Shortcut("S", "stop(True)")),
    KeyRow("?", "this help", Shortcut("question_mark", "help", "Help", "?")),
    KeyRow("Esc", "decide later", Shortcut("escape", "later", "Later")),
)


class ExploreBoard:
    """The lanes of /explore in a chat on the screen."""

    def __init__(self, chat: FullScreenChat) -> None:
        self._chat = chat
        self._exploration: Exploration | None = None

    def approver_for(self, mode: ApprovalMode, tools: Tools) -> LaneApprovers:
        return lambda lane: LaneApprover(lane, mode, tools, self._chat.ask)

    def stop(self) -> None:
        """Stop all lanes."""
        if self._exploration is not None:
            self._exploration.stop()

    async def watch(self, exploration: Exploration) -> None:
        self._exploration, self._chat.board = exploration, self
        screen = ExploreScreen(self._chat.controller.session, exploration, stop=exploration.stop)
        shown = asyncio.create_task(self._chat.show(screen))
        try:
            async with exploration:
                async for event in exploration:
                    screen.take(event.lane, event.event)
        finally:
            self._exploration = self._chat.board = None
            shown.cancel()
            await asyncio.wait([shown])

    async def decide(self, exploration: ExplorationLike, worktrees: LaneWorktrees | None) -> None:
        """Let the user decide; Esc leaves the lanes undecided."""
        controller = self._chat.controller
        summary = summary_options(controller.settings, summarizer=controller.summarizer())
        decider = LaneDecider(controller.session, exploration, worktrees, summary=summary)
        screen = ExploreScreen(controller.session, exploration, decider=decider)
        await self._chat.show(screen)
        output = self._chat.screen
        for result in screen.decisions:
            output.lines(decision_lines(controller.session, result, output.width), DIM)
        last = screen.decisions[-1] if screen.decisions else None
        if is_undecided(exploration.lanes, last):
            output.line("· decide later with /explore", DIM)


class LaneColumn(Static, can_focus=False):
    """A lane: state, check, files, tokens, cost, and what it does."""

    DEFAULT_CSS = """
    LaneColumn { width: 1fr; min-width: 26; height: 100%; border: round $surface-lighten-2; padding: 0 1; }
    LaneColumn.selected { border: round $accent; }
    """

    def show(self, lane: Lane, result: Result | None, *, is_marked: bool) -> None:
        text = Text()
        mark = "✓ " if is_marked else ""
        text.append(f"{mark}{lane.number} {one_line(lane.name)}\n", "bold")
        text.append(f"{one_line(lane.record.model)}\n", "dim")
        verdict = f" ({lane.verdict.verdict})" if lane.verdict is not None else ""
        text.append(f"{lane.state}{verdict}\n", _STATES.get(lane.state, ""))
        if lane.check is not None:
            passed = lane.check.passed
            text.append("check " + {True: "passed", False: "failed", None: "unknown"}[passed] + "\n")
        if result is not None and result.files is not None:
            changes = f" +{result.added} -{result.removed}" if result.files else ""
            text.append(f"{plural(len(result.files), 'file')}{changes}\n")
        spent = lane.spent
        facts = [f"{amount(spent.tokens)} tokens", cost(spent.cost, spent.tokens), duration(spent.seconds)]
        text.append(" · ".join(filter(None, facts)) + "\n", "dim")
        if lane.state == "running" and lane.last_tool:
            text.append(f"→ {one_line(lane.last_tool)}\n", "yellow")
        if lane.why:
            text.append(f"{one_line(lane.why)}\n", "red" if lane.state == "failed" else "")
        text.append("\n" + clean(lane.text[-_ANSWER_CHARACTERS:] if lane.state == "running" else lane.text[:2000]))
        self.update(text)


class ExploreScreen(Screen[None]):
    """One column for each lane."""

    app: SessionTreeApp
    BINDINGS: ClassVar[list[BindingType]] = make_bindings(*_KEYS)

    def __init__(
        self,
        session: Session,
        exploration: ExplorationLike,
        *,
        decider: LaneDecider | None = None,
        stop: Callable[..., None] | None = None,
    ) -> None:
        """While lanes run, `stop` ends one or all; afterwards `decider` carries out decisions."""
        super().__init__()
        self._session, self._exploration = session, exploration
        self._decider, self._stop = decider, stop
        self._results: dict[int, Result] = {}
        self._selected = 0
        self._marked: set[int] = set()
        self._open: LaneScreen | None = None
        self._answers: dict[int, str] = {}
        """What has arrived of the answer of each lane."""
        self.decisions: list[DecisionResult] = []
        self._is_deciding = self._is_leaving = False

    @property
    def lanes(self) -> Sequence[Lane]:
        return self._exploration.lanes

    def compose(self) -> ComposeResult:
        yield TextRow(id="title")
        yield HorizontalScroll(id="lanes", can_focus=False)
        yield KeyFooter()

    async def on_mount(self) -> None:
        self.set_interval(_REDRAW_SECONDS, self.show)
        await self.show()
        if self._decider is not None:
            self._load_results()

    @work(exclusive=True, group="results")
    async def _load_results(self) -> None:
        assert self._decider is not None
        self._results = {result.lane: result for result in await self._decider.results()}
        await self.show()

    async def show(self) -> None:
        columns = self.query_one("#lanes")
        missing = len(self.lanes) - len(columns.children)
        if missing > 0:
            await columns.mount(*(LaneColumn() for _ in range(missing)))
        for at, (lane, column) in enumerate(zip(self.lanes, columns.query(LaneColumn), strict=False)):
            column.show(lane, self._results.get(lane.number), is_marked=lane.number in self._marked)
            column.set_class(at == self._selected, "selected")
        ended = sum(lane.state in ENDED for lane in self.lanes)
        state = "decide: k keep, m merge, x drop" if self._decider is not None else "s stops a lane, S stops all"
        self.query_one("#title", TextRow).show(f" {plural(len(self.lanes), 'lane')}, {ended} ended · {state}")

    def take(self, lane: int, event: object) -> None:
        """Show an event of a lane that is open, and remember the answers in progress."""
        if isinstance(event, TextDelta):
            self._answers[lane] = self._answers.get(lane, "") + event.text
        elif isinstance(event, Persisted | Retry | AgentEnd):
            self._answers.pop(lane, None)
        if self._open is not None and self._open.lane.number == lane:
            self._open.take(event)

    @property
    def selected(self) -> Lane | None:
        return self.lanes[self._selected] if self._selected < len(self.lanes) else None

    def _chosen(self) -> list[int]:
        return sorted(self._marked) or ([self.selected.number] if self.selected is not None else [])

    # Keys

    async def action_select(self, step: int) -> None:
        if self.lanes:
            self._selected = (self._selected + step) % len(self.lanes)
            await self.show()
            self.query(LaneColumn)[self._selected].scroll_visible(animate=False)

    async def action_mark(self) -> None:
        if self.selected is not None:
            self._marked ^= {self.selected.number}
            await self.show()

    def action_open(self) -> None:
        if self.selected is not None:
            self._open = LaneScreen(self._session, self.selected, self._answers)
            self.app.push_screen(self._open, lambda _: setattr(self, "_open", None))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """Lanes are stopped while they run, and decided on afterwards; the footer shows what is possible."""
        if action == "stop":
            return self._stop is not None
        return self._decider is not None or action not in ("keep", "merge", "drop", "diff")

    def action_stop(self, is_all: bool) -> None:
        if self._stop is not None and self.selected is not None:
            self._stop(None if is_all else self.selected.number)
        else:
            self.notify("No lane is running.")

    def action_keep(self) -> None:
        lane = self.selected
        if lane is not None:
            self._decide(lambda decider: decider.keep(lane.number), is_last=True)

    def action_merge(self) -> None:
        lanes = self._chosen()
        self._decide(lambda decider: decider.merge(lanes), is_last=True)

    def action_drop(self) -> None:
        lanes = self._chosen()
        self._decide(lambda decider: decider.drop(lanes), is_last=False)

    def action_later(self) -> None:
        if self._decider is None:
            self.notify("Lanes are running: s stops one, S stops all.")
        elif self._is_deciding:  # worktrees are being changed
            self._is_leaving = True
        else:
            self.dismiss()

    def action_help(self) -> None:
        self.app.push_screen(PageDialog("Keys", make_help(*_KEYS)))

    @work(group="diff", exclusive=True)
    async def action_diff(self) -> None:
        lane = self.selected
        if lane is None:
            return
        if self._decider is None:
            self.notify("The diff is available when the lanes have ended.")
            return
        self.app.push_screen(DiffScreen(f"Lane {lane.number}", await self._decider.diff(lane.number)))

    def _decide(self, decide: Callable[[LaneDecider], Awaitable[DecisionResult]], *, is_last: bool) -> None:
        if self._decider is None:
            self.notify("Lanes are running: s stops one, S stops all.")
        elif self._is_deciding:
            self.notify("The last decision is being carried out.")
        else:
            self._is_deciding = True
            self._carry_out(decide(self._decider), is_last=is_last)

    @work(group="decision")
    async def _carry_out(self, decision: Awaitable[DecisionResult], *, is_last: bool) -> None:
        try:
            self.decisions.append(await decision)
        except SessionTreeError as error:
            self.notify(clean(str(error)), severity="error", timeout=10, markup=False)
            is_last = False
        finally:
            self._is_deciding = False
        self._marked.clear()
        if is_last or self._is_leaving or not any(lane.verdict is None for lane in self.lanes):
            self.dismiss()
        else:
            await self.show()


class LaneScreen(Screen[None]):
    """The conversation of a lane; new entries appear as they are written."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "Back"),
        Binding("up", "lines(-1)", "Up", show=False),
        Binding("down", "lines(1)", "Down", show=False),
        Binding("pageup", "pages(-1)", "Back", show=False),
        Binding("pagedown", "pages(1)", "On", show=False),
    ]

    def __init__(self, session: Session, lane: Lane, answers: Mapping[int, str]) -> None:
        """`answers` has the answers in progress, by the number of the lane."""
        super().__init__()
        self.lane, self._session, self._answers = lane, session, answers
        self.transcript = Transcript()
        self._events = EventView(self.transcript, lambda: session)
        self._is_shown = False

    def compose(self) -> ComposeResult:
        yield TextRow(id="title")
        yield self.transcript
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one("#title", TextRow).show(f" lane {self.lane.number} · {one_line(self.lane.name)}")
        self.transcript.show_session(self._session, self.lane.leaf)
        self._is_shown = True
        if self._answers.get(self.lane.number):
            self._events.show(TextDelta(self._answers[self.lane.number]))

    def take(self, event: object) -> None:
        """Show an event of the lane. What happened before the screen is shown is read from the session."""
        if self._is_shown:
            self._events.show(event)

    def action_close(self) -> None:
        self.dismiss()

    def action_lines(self, lines: int) -> None:
        self.transcript.scroll_rows(lines)

    def action_pages(self, pages: int) -> None:
        self.transcript.scroll_pages(pages)


class DiffScreen(PageDialog):
    """A diff with colors."""

    DEFAULT_CSS = PageDialog.DEFAULT_CSS.replace("PageDialog", "DiffScreen")

    def __init__(self, title: str, diff: str) -> None:
        super().__init__(title, diff)
        self._diff = diff

    def on_mount(self) -> None:
        statics: list[Any] = list(self.query("VerticalScroll Static"))
        for static in statics:
            static.update(render_diff_text(self._diff) if self._diff else escape("(no changes)"))
