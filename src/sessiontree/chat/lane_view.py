"""The live view of an exploration in a terminal: progress, approval questions, and the decision at the end.

On a terminal a table at the bottom of the screen is redrawn in place; elsewhere plain lines are printed. Ctrl-C asks
which lane to stop while the others continue; a second Ctrl-C stops all.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial

from sessiontree.agent.async_bridge import in_background
from sessiontree.agent.events import ToolStart, TurnStart
from sessiontree.agent.tools.base import Tools, short
from sessiontree.app.exploration import LaneApprover
from sessiontree.branches.summarize import SummaryOptions
from sessiontree.chat.line_editor import Prompter
from sessiontree.chat.styles import BOLD, DIM, RED
from sessiontree.chat.terminal import Screen
from sessiontree.chat.type_ahead import TypeAhead
from sessiontree.chat.user_prompts import ApprovalPrompts, show_diff
from sessiontree.core.entries import ApprovalMode
from sessiontree.errors import SessionTreeError
from sessiontree.explore import decisions
from sessiontree.explore.compare import Result, compare
from sessiontree.explore.decisions import DecisionResult
from sessiontree.explore.events import Delivered, ForkedByRule, LaneEnded, LaneEvent, LaneMade, LaneRefused
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.lane import Lane, find_lane
from sessiontree.explore.lane_table import LineStyle, cost, draw_files, draw_progress, duration, result_lines
from sessiontree.explore.state import ExplorationLike
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.session.session import Session
from sessiontree.views.listing import amount
from sessiontree.views.text import clean, one_line, short_entry_id

_REDRAW_SECONDS = 0.12
_QUIET_SECONDS = 0.5
"""Seconds after which a message explains the wait."""
_HINT = "Ctrl-C: stop a lane · twice: stop all"
_STYLES: dict[LineStyle, str] = {"plain": "", "heading": BOLD, "quiet": DIM, "bad": RED, "command": DIM}
_CHOICE = "Decide [keep N, merge N N, drop N, diff N, show N, leave, Enter to decide later]:"


class LaneView:
    """Shows an exploration from start to end."""

    def __init__(
        self,
        screen: Screen,
        asks: Prompter | None,
        asking: ApprovalPrompts | None = None,
        ahead: TypeAhead | None = None,
    ) -> None:
        """`asks` reads answers; None if there is no user. `asking` has the approval questions of runs.

        With `ahead`, nothing is drawn while the user types there.
        """
        self._screen, self._asks, self._ahead = screen, asks, ahead
        self._asking = ApprovalPrompts(screen, asks, self.interrupt) if asking is None and asks is not None else asking
        self._starting: Exploration | None = None
        self._exploration: Exploration | None = None
        self._began: dict[int, float] = {}
        self._stop_question: asyncio.Task[None] | None = None
        self._is_asking = False
        self.was_stopped = False
        """Whether the user stopped all lanes."""

    def approver_for(self, mode: ApprovalMode, tools: Tools) -> Callable[[Lane], LaneApprover]:
        """Approvers of lanes: by the mode, and otherwise by the user."""
        ask = None if self._asking is None else self._asking.ask
        return lambda lane: LaneApprover(lane, mode, tools, ask)

    @contextlib.asynccontextmanager
    async def begun(self, exploration: Exploration) -> AsyncIterator[None]:
        """Enter an exploration, with its progress on the screen. Ctrl-C stops the creation of worktrees."""
        self._starting = exploration
        progress = asyncio.create_task(self._show_start(exploration)) if self._screen.can_redraw else None
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(exploration)
            finally:
                self._starting = None
                if progress is not None:
                    progress.cancel()
                    await asyncio.wait([progress])
            yield

    async def _show_start(self, exploration: Exploration) -> None:
        await asyncio.sleep(_QUIET_SECONDS)
        while True:
            made, planned = len(exploration.lanes), len(exploration.plan.planned)
            self._screen.show_temporary([f"· creating worktrees: {min(made + 1, planned)} of {planned}"], DIM)
            await asyncio.sleep(_REDRAW_SECONDS)

    async def watch(self, exploration: Exploration) -> None:
        """Show events until all lanes have ended."""
        self._exploration = exploration
        drawing = asyncio.create_task(self._draw()) if self._screen.can_redraw else None
        try:
            async for event in exploration:
                await self._handle(event)
        finally:
            for task in (drawing, self._stop_question):
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])
            self._screen.end_line()

    def interrupt(self) -> None:
        """Ctrl-C: ask which lane to stop; the second time, or without a user to ask, stop all."""
        if self._starting is not None:
            self.was_stopped = True
            self._starting.stop()
            return
        if self._exploration is None:
            return
        if self._stop_question is not None or self._asks is None:
            self._stop_all()
        else:
            self._stop_question = asyncio.create_task(self._ask_which(self._asks))

    def _stop_all(self) -> None:
        assert self._exploration is not None
        self.was_stopped = True
        self._exploration.stop()
        if self._stop_question is not None:
            self._stop_question.cancel()

    async def _ask_which(self, asks: Prompter) -> None:
        assert self._asking is not None
        try:
            async with self._asking.input_lock():
                self._is_asking = True
                self._screen.lines(self._table())
                answer = await asks.ask("Stop which lane? [number or name, all, Enter to continue]:")
                await self._stop_named(answer)
        except (KeyboardInterrupt, EOFError):
            self._stop_all()
        finally:
            self._is_asking, self._stop_question = False, None

    async def _stop_named(self, answer: str) -> None:
        assert self._exploration is not None
        for word in answer.replace(",", " ").split():
            if word == "all":
                self._stop_all()
                return
            try:
                self._exploration.stop(self._exploration.lane(word).number)
            except SessionTreeError as error:
                self._screen.line(f"✗ {one_line(str(error))}", RED)

    async def _draw(self) -> None:
        while True:
            if self._asking is not None:
                await self._asking.wait_until_free()
            if not self._is_asking and not (self._ahead is not None and self._ahead.is_typing):
                self._screen.show_temporary([*self._table(), _HINT])
            await asyncio.sleep(_REDRAW_SECONDS)

    def _table(self) -> list[str]:
        assert self._exploration is not None
        # Only what is on the screen can be redrawn, including the hint below the table.
        height = max(self._screen.height - 3, 2)
        return draw_progress(self._exploration.lanes, self._screen.width - 1, self._began, height)

    async def _handle(self, event: LaneEvent) -> None:
        if isinstance(event.event, TurnStart):
            self._began.setdefault(event.lane, time.monotonic())
        rendered = _render_event(event)
        if rendered is None:
            return
        text, style, is_important = rendered
        if is_important or not self._screen.can_redraw:
            if self._asking is not None:
                await self._asking.wait_until_free()
            if self._ahead is not None:
                self._ahead.show(partial(self._screen.line, text, style))
            else:
                self._screen.line(text, style)


def _render_event(lane_event: LaneEvent) -> tuple[str, str, bool] | None:
    """An event as a line, its style, and whether it is also printed above the table."""
    event = lane_event.event
    name = f"lane {lane_event.lane}"
    match event:
        case LaneMade():
            path = "" if event.record.worktree is None else f" · {event.record.worktree.path}"
            origin = "" if event.record.origin is None else f" ⑂{event.record.origin}"
            title = f"{one_line(event.record.name)}{origin} · {one_line(event.record.model)}"
            return f"{name}: {title}{path}", DIM, False
        case ToolStart():
            return f"{name}: {one_line(f'{event.call.name} {short(event.call.arguments)}')}", DIM, False
        case LaneEnded():
            spent = event.spent
            turns = f"{spent.turns} turn{'' if spent.turns == 1 else 's'}"
            parts = [
                event.state,
                turns,
                f"{amount(spent.tokens)} tokens",
                duration(spent.seconds),
                cost(spent.cost, spent.tokens),
            ]
            return f"{name}: {' · '.join(filter(None, [*parts, one_line(event.why)]))}", DIM, False
        case ForkedByRule():
            # Whether the lane is created is reported next, by `LaneMade` or `LaneRefused`.
            return f"⑂ {name}: rule {one_line(event.rule)} requests a fork: {one_line(event.reason)}", BOLD, True
        case LaneRefused():
            fork = "" if event.rule is None else f" for {name} by the rule {one_line(event.rule)}"
            return f"✗ no lane was created{fork}: {one_line(event.why)}", RED, True
        case Delivered():
            return f"{name}: message from {one_line(event.sender)}: {one_line(event.text)}", DIM, False
        case _:
            return None


def show_results(screen: Screen, results: Sequence[Result]) -> None:
    """Print the comparison for a user who is asked to choose next."""
    for text, style in result_lines(results, screen.width, lambda result: f"show {result.lane}"):
        screen.line(text, _STYLES[style])


class LaneDecider:
    """Carries out decisions about lanes, without blocking the event loop."""

    def __init__(
        self,
        session: Session,
        exploration: ExplorationLike,
        worktrees: LaneWorktrees | None,
        *,
        summary: SummaryOptions | None = None,
        keep_worktrees: bool = False,
    ) -> None:
        self.session, self.exploration, self._worktrees = session, exploration, worktrees
        self._summary, self._keep_worktrees = summary, keep_worktrees

    async def results(self) -> list[Result]:
        return await in_background(compare, self.exploration, self._worktrees)

    async def keep(self, lane: str | int) -> DecisionResult:
        return await self._decide(decisions.keep, lane)

    async def merge(self, lanes: Sequence[str | int]) -> DecisionResult:
        return await self._decide(partial(decisions.merge, summary=self._summary), lanes)

    async def drop(self, lanes: Sequence[str | int]) -> DecisionResult:
        return await self._decide(decisions.drop, lanes)

    async def leave(self) -> DecisionResult:
        return await self._decide(decisions.leave)

    async def _decide(self, decide: Callable[..., DecisionResult], *lanes: object) -> DecisionResult:
        arguments = (self.session, self.exploration, *lanes, self._worktrees)
        return await in_background(partial(decide, *arguments, keep_worktrees=self._keep_worktrees))

    async def diff(self, wanted: str | int) -> str:
        """The changes of a lane, or why there are none."""
        lane = find_lane(self.exploration.lanes, wanted)
        if lane.worktree is None or self._worktrees is None:
            return f"(lane {lane.number} has no worktree)"
        return await in_background(self._worktrees.diff, lane.worktree) or "(no files changed)"


class LaneChooser:
    """Asks the user to decide about lanes."""

    def __init__(self, screen: Screen, asks: Prompter, decider: LaneDecider) -> None:
        self._screen, self._asks, self._decider = screen, asks, decider

    async def choose(self) -> DecisionResult | None:
        """Ask until the user has decided; returns the last decision, if any."""
        last: DecisionResult | None = None
        while True:
            try:
                word, *names = (await self._asks.ask(_CHOICE)).replace(",", " ").split() or [""]
            except (KeyboardInterrupt, EOFError):
                return last
            if not word:
                return last
            try:
                result = await self._carry_out(word, names)
            except SessionTreeError as error:
                self._screen.line(f"✗ {one_line(str(error))}", RED)
                continue
            if result is not None:
                last = result
                self._screen.lines(decision_lines(self._decider.session, result, self._screen.width), DIM)
                if result.verdict != "dropped":
                    return last

    async def _carry_out(self, word: str, names: Sequence[str]) -> DecisionResult | None:
        decider = self._decider
        match word.lower(), names:
            case (("k" | "keep"), [name]):
                return await decider.keep(name)
            case (("m" | "merge"), [_, *_]):
                return await decider.merge(names)
            case "drop", [_, *_]:
                return await decider.drop(names)
            case "leave", []:
                return await decider.leave()
            case "diff", [name]:
                show_diff(self._screen, await decider.diff(name))
            case "show", [name]:
                self._screen.lines(clean(find_lane(decider.exploration.lanes, name).text).splitlines())
            case _:
                self._screen.line("keep 2 · merge 1 3 · drop 4 · diff 2 · show 2 · leave", DIM)
        return None


def is_undecided(lanes: Sequence[Lane], result: DecisionResult | None) -> bool:
    """Whether lanes remain to be decided about: none was kept or merged, and some have no verdict."""
    return (result is None or result.verdict == "dropped") and any(lane.verdict is None for lane in lanes)


def decision_lines(session: Session, result: DecisionResult, width: int) -> Iterable[str]:
    """The effect of a decision, for the user."""
    lanes = ", ".join(map(str, result.lanes)) or "no lanes"
    current = "before the first message" if result.leaf is None else short_entry_id(result.leaf, session.id_prefixes)
    yield f"· {result.verdict}: {lanes} · current entry: {current}"
    if result.files:
        yield f"· files changed in the project: {len(result.files)}"
        yield from draw_files(result.files, width)
    yield from (f"· {one_line(note)}" for note in result.notes)
