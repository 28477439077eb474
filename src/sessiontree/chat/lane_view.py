"""Lanes on the screen while they grow, what has to be asked meanwhile, and the choice of what becomes of them.

On a terminal a table stands at the end of the screen and is drawn anew in its place; elsewhere there are plain lines.
Ctrl-C asks which lane to stop, while all of them go on; once more, and all are stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial

import msgspec

from sessiontree.agent.approval import Question, Reply
from sessiontree.agent.async_bridge import in_background
from sessiontree.agent.events import ToolStart, TurnStart
from sessiontree.agent.tools.base import short
from sessiontree.agent.tools.registry import Tools
from sessiontree.branches.summarize import Ask
from sessiontree.chat.line_editor import Prompter
from sessiontree.chat.terminal import BOLD, DIM, RED, Screen
from sessiontree.chat.type_ahead import TypeAhead
from sessiontree.chat.user_prompts import ApprovalPrompts, show_diff
from sessiontree.core.entries import ApprovalMode
from sessiontree.errors import SessionTreeError
from sessiontree.explore import decisions
from sessiontree.explore.compare import HasLanes, Result
from sessiontree.explore.decisions import Decided
from sessiontree.explore.events import Delivered, ForkedByRule, LaneEnded, LaneEvent, LaneMade, LaneRefused
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.lane import Lane, find_lane
from sessiontree.explore.lane_table import Manner, cost, draw_files, draw_progress, duration, result_lines
from sessiontree.explore.worktrees import Copies
from sessiontree.session.session import Session
from sessiontree.views.listing import amount
from sessiontree.views.text import clean, one_line

_BETWEEN = 0.12
"""Seconds between two drawings."""
_AT_ONCE = 0.5
"""Seconds that nobody has to be told why they wait."""
_HINT = "Ctrl-C: stop a lane · twice: stop all"
_STYLES: dict[Manner, str] = {"plain": "", "heading": BOLD, "quiet": DIM, "bad": RED, "command": DIM}
_CHOICE = "keep N, merge N N, drop N, diff N, show N, leave, or nothing to decide later:"


class LaneApprover:
    """Says what a lane may do.

    With `autoEdit`, files in the lane's own working copy may be changed; with `yolo`, commands may be run as well. What
    leads out of the working copy is asked about each time, whatever the mode is. Without anyone to ask, it is a no.
    """

    def __init__(
        self, lane: Lane, mode: ApprovalMode, tools: Tools, ask: Callable[[Question], Awaitable[Reply]] | None
    ) -> None:
        self._lane, self._mode, self._tools, self._ask = lane, mode, tools, ask

    async def ask(self, question: Question) -> Reply:
        # What has to be asked about each time may not be answered for good.
        if question.may_always and (self._mode == "yolo" or (self._mode == "autoEdit" and self._is_own(question))):
            return Reply("once")
        if self._ask is None:
            return Reply("no", f"nobody is there to approve it ({question.reasons[0]})")
        title = f"lane {self._lane.number} ({self._lane.name}) · {question.title}"
        return await self._ask(msgspec.structs.replace(question, title=title, may_always=False))

    def _is_own(self, question: Question) -> bool:
        tool = self._tools.find(question.tool)
        return self._lane.copy is not None and tool is not None and tool.changes == "files"


class Watching:
    """Shows an exploration from its beginning to its end."""

    def __init__(
        self,
        screen: Screen,
        asks: Prompter | None,
        asking: ApprovalPrompts | None = None,
        ahead: TypeAhead | None = None,
    ) -> None:
        """`asks` is whom a person answers, None where nobody can be asked; `asking` has the questions of runs.

        With `ahead`, nothing is shown while a person types there.
        """
        self._screen, self._asks, self._ahead = screen, asks, ahead
        self._asking = ApprovalPrompts(screen, asks, self.interrupt) if asking is None and asks is not None else asking
        self._beginning: Exploration | None = None
        self._exploration: Exploration | None = None
        self._began: dict[int, float] = {}
        self._which: asyncio.Task[None] | None = None
        self._is_asking = False
        self.was_stopped = False
        """Whether a person stopped all lanes."""

    def approver_for(self, mode: ApprovalMode, tools: Tools) -> Callable[[Lane], LaneApprover]:
        """Who says what each lane may do: the mode, and else the person who watches."""
        ask = None if self._asking is None else self._asking.ask
        return lambda lane: LaneApprover(lane, mode, tools, ask)

    @contextlib.asynccontextmanager
    async def begun(self, exploration: Exploration) -> AsyncIterator[None]:
        """An exploration that is entered. How far it is with its working copies is shown; Ctrl-C makes no more."""
        self._beginning = exploration
        telling = asyncio.create_task(self._tell_beginning(exploration)) if self._screen.can_redraw else None
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(exploration)
            finally:
                self._beginning = None
                if telling is not None:
                    telling.cancel()
                    await asyncio.wait([telling])
            yield

    async def _tell_beginning(self, exploration: Exploration) -> None:
        await asyncio.sleep(_AT_ONCE)
        while True:
            made, wanted = len(exploration.lanes), len(exploration.plan.wanted)
            self._screen.show_temporary(
                [f"· making the working copies of lanes: {min(made + 1, wanted)} of {wanted}"], DIM
            )
            await asyncio.sleep(_BETWEEN)

    async def watch(self, exploration: Exploration) -> None:
        """Show what happens until all lanes have ended."""
        self._exploration = exploration
        drawing = asyncio.create_task(self._draw()) if self._screen.can_redraw else None
        try:
            async for event in exploration:
                await self._hear(event)
        finally:
            for task in (drawing, self._which):
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])
            self._screen.end_line()

    def interrupt(self) -> None:
        """Ctrl-C: ask which lane to stop; the second time, or where nobody can be asked, stop all."""
        if self._beginning is not None:
            self.was_stopped = True
            self._beginning.stop()
            return
        if self._exploration is None:
            return
        if self._which is not None or self._asks is None:
            self._stop_all()
        else:
            self._which = asyncio.create_task(self._ask_which(self._asks))

    def _stop_all(self) -> None:
        assert self._exploration is not None
        self.was_stopped = True
        self._exploration.stop()
        if self._which is not None:
            self._which.cancel()

    async def _ask_which(self, asks: Prompter) -> None:
        assert self._asking is not None
        try:
            async with self._asking.input_lock():
                self._is_asking = True
                self._screen.lines(self._table())
                await self._stop_named(await asks.ask("Stop which lane? its number or name, all, or nothing to go on:"))
        except (KeyboardInterrupt, EOFError):
            self._stop_all()
        finally:
            self._is_asking, self._which = False, None

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

    # Showing

    async def _draw(self) -> None:
        while True:
            if self._asking is not None:
                await self._asking.wait_until_free()
            if not self._is_asking and not (self._ahead is not None and self._ahead.is_typing):
                self._screen.show_temporary([*self._table(), _HINT])
            await asyncio.sleep(_BETWEEN)

    def _table(self) -> list[str]:
        assert self._exploration is not None
        # What is drawn anew must be on the screen, the hint below it included.
        room = max(self._screen.height - 3, 2)
        return draw_progress(self._exploration.lanes, self._screen.width - 1, self._began, room)

    async def _hear(self, one: LaneEvent) -> None:
        if isinstance(one.event, TurnStart):
            self._began.setdefault(one.lane, time.monotonic())
        told = self._told(one)
        if told is None:
            return
        text, style, is_news = told
        if is_news or not self._screen.can_redraw:
            if self._asking is not None:
                await self._asking.wait_until_free()
            if self._ahead is not None:
                self._ahead.show(partial(self._screen.line, text, style))
            else:
                self._screen.line(text, style)

    def _told(self, one: LaneEvent) -> tuple[str, str, bool] | None:
        """An event as a line; whether it is shown above the table, too."""
        event = one.event
        name = f"lane {one.lane}"
        match event:
            case LaneMade():
                where = "" if event.record.copy is None else f" · {event.record.copy.path}"
                origin = "" if event.record.origin is None else f" ⑂{event.record.origin}"
                made = f"{one_line(event.record.name)}{origin} · {one_line(event.record.model)}"
                return f"{name}: {made}{where}", DIM, False
            case ToolStart():
                return f"{name}: {one_line(f'{event.call.name} {short(event.call.arguments)}')}", DIM, False
            case LaneEnded():
                used = (
                    f"{event.spent.turns} turns · {amount(event.spent.tokens)} tokens · {duration(event.spent.seconds)}"
                )
                why = f" · {one_line(event.why)}" if event.why else ""
                paid = f" · {cost(event.spent.cost)}" if event.spent.cost else ""
                return f"{name}: {event.state} · {used}{paid}{why}", DIM, False
            case ForkedByRule():
                # Whether it is made is told next, by `LaneMade` or `LaneRefused`.
                wish = f"the rule {one_line(event.rule)} wants another lane"
                return f"⑂ {name}: {wish}: {one_line(event.reason)}", BOLD, True
            case LaneRefused():
                of_rule = "" if event.rule is None else f" for {name} by the rule {one_line(event.rule)}"
                return f"✗ no lane is made{of_rule}: {one_line(event.why)}", RED, True
            case Delivered():
                return f"{name}: heard from {one_line(event.sender)}: {one_line(event.text)}", DIM, False
            case _:
                return None


def show_results(screen: Screen, results: Sequence[Result]) -> None:
    """The comparison, for a person who is asked to choose next."""
    for text, manner in result_lines(results, screen.width, lambda one: f"show {one.lane}"):
        screen.line(text, _STYLES[manner])


class Choosing:
    """Prompter what becomes of lanes, until something is decided."""

    def __init__(
        self,
        screen: Screen,
        asks: Prompter,
        session: Session,
        exploration: HasLanes,
        copies: Copies | None,
        *,
        summary: Ask | None = None,
        keep_copies: bool = False,
    ) -> None:
        self._screen, self._asks = screen, asks
        self._session, self._exploration, self._copies = session, exploration, copies
        self._summary, self._keep_copies = summary, keep_copies

    async def choose(self) -> Decided | None:
        """What was decided last; None when nothing was."""
        last: Decided | None = None
        while True:
            try:
                word, *names = (await self._asks.ask(_CHOICE)).replace(",", " ").split() or [""]
            except (KeyboardInterrupt, EOFError):
                return last
            if not word:
                return last
            try:
                decided = await self._carry_out(word, names)
            except SessionTreeError as error:
                self._screen.line(f"✗ {one_line(str(error))}", RED)
                continue
            if decided is not None:
                last = decided
                tell_decided(self._screen, decided)
                if decided.verdict != "dropped":
                    return last

    async def _carry_out(self, word: str, names: Sequence[str]) -> Decided | None:
        session, exploration, copies, keeps = self._session, self._exploration, self._copies, self._keep_copies
        match word.lower(), names:
            case (("k" | "keep"), [name]):
                return await in_background(
                    lambda: decisions.keep(session, exploration, name, copies, keep_copies=keeps)
                )
            case (("m" | "merge"), [_, *_]):
                return await in_background(
                    lambda: decisions.merge(session, exploration, names, copies, ask=self._summary, keep_copies=keeps)
                )
            case "drop", [_, *_]:
                return await in_background(
                    lambda: decisions.drop(session, exploration, names, copies, keep_copies=keeps)
                )
            case "leave", []:
                return await in_background(lambda: decisions.leave(session, exploration, copies, keep_copies=keeps))
            case "diff", [name]:
                await self._show_diff(name)
            case "show", [name]:
                self._screen.lines(clean(find_lane(exploration.lanes, name).text).splitlines())
            case _:
                self._screen.line("keep 2 · merge 1 3 · drop 4 · diff 2 · show 2 · leave", DIM)
        return None

    async def _show_diff(self, name: str) -> None:
        lane = find_lane(self._exploration.lanes, name)
        if lane.copy is None or self._copies is None:
            self._screen.line(f"· lane {lane.number} has no working copy of its own", DIM)
            return
        show_diff(self._screen, await in_background(self._copies.diff, lane.copy) or "(no file was changed)")


def is_left_open(lanes: Sequence[Lane], decided: Decided | None) -> bool:
    """Whether it is for later: lanes were dropped at most, and there are some of which nothing was said."""
    return (decided is None or decided.verdict == "dropped") and any(lane.verdict is None for lane in lanes)


def tell_decided(screen: Screen, decided: Decided) -> None:
    """What a decision did, for a person."""
    screen.lines(decided_lines(decided, screen.width), DIM)


def decided_lines(decided: Decided, width: int) -> Iterable[str]:
    lanes = ", ".join(map(str, decided.lanes)) or "no lane"
    stands = "before the first message" if decided.leaf is None else f"at {one_line(decided.leaf)[:8]}"
    yield f"· {decided.verdict}: {lanes} · the session stands {stands}"
    if decided.files:
        yield f"· files changed in the project: {len(decided.files)}"
        yield from draw_files(decided.files, width)
    yield from (f"· {one_line(note)}" for note in decided.notes)
