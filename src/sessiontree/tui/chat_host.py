"""The front end of the full-screen chat: runs lines one after the other, asks with dialogs, and shows events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from textual.screen import Screen

from sessiontree.agent.approval import Question, Reply
from sessiontree.agent.events import AgentEnd
from sessiontree.agent.shell_commands import UserCommand
from sessiontree.agent.tool_calls import Answered, PendingCall, Resolution
from sessiontree.app.start import StartOptions, open_controller, record_session
from sessiontree.chat.base_chat import BaseChat, LaneBoard, command_outcome
from sessiontree.chat.commands import rewind
from sessiontree.chat.event_printer import describe_call
from sessiontree.chat.styles import DIM, RED
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import BashExecution
from sessiontree.explore.state import ExplorationLike
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.tui.chat_dialogs import ApprovalDialog, ChoiceDialog
from sessiontree.tui.chat_events import EventView
from sessiontree.tui.chat_screens import BranchScreen, SessionChooser
from sessiontree.tui.chat_transcript import Transcript
from sessiontree.tui.dialogs import MenuDialog, TextDialog
from sessiontree.tui.explore_board import ExploreBoard
from sessiontree.tui.rewind_screen import RewindScreen
from sessiontree.views.text import clean, one_line, plural

if TYPE_CHECKING:
    from sessiontree.tui.chat import ChatScreen

T = TypeVar("T")
_PAUSE = 0.6
"""Seconds without a key before a question takes the keys."""
_LONG = 12
"""Lines of a diff that are shown."""


class TranscriptOutput:
    """Prints lines of commands to a transcript."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript

    @property
    def width(self) -> int:
        return max(self._transcript.size.width, 20)

    def line(self, text: str = "", style: str = "") -> None:
        self._transcript.note(text, style)

    def lines(self, texts: Iterable[str], style: str = "") -> None:
        for text in texts:
            self.line(text, style)

    def end_line(self) -> None:
        """Nothing to do: lines are always complete."""


class FullScreenChat(BaseChat):
    """The full-screen chat: lines go to its transcript, and questions are dialogs."""

    key_help = ("F1 shows the keys",)

    def __init__(self, view: ChatScreen, *, is_in_memory: bool = False) -> None:
        super().__init__(is_in_memory=is_in_memory)
        self._view = view
        self.transcript = view.transcript
        self.screen = TranscriptOutput(self.transcript)
        self.queue: list[str] = []
        self.began: float | None = None
        """When the work in progress began, by the monotonic clock."""
        self.draft = ""
        """What was typed but not sent at the end."""
        self._events = EventView(self.transcript, lambda: self.controller.session)
        self._wakes = asyncio.Event()
        self._asking = asyncio.Lock()
        self._dialogs = 0
        self.board: ExploreBoard | None = None

    @property
    def is_open(self) -> bool:
        return self._controller is not None

    @property
    def is_busy(self) -> bool:
        return self.began is not None

    @property
    def is_asking(self) -> bool:
        """Whether a dialog waits for the user."""
        return self._dialogs > 0

    # The main loop

    async def run(self, options: StartOptions, first: str | None, *, choose_session: bool) -> None:
        """Open the session and carry out lines until the user leaves."""
        async with open_controller(options, self, self.confirm) as start:
            self._controller = start.controller
            self._view.attach(start.controller)
            for note in start.notes:
                self.screen.line(f"· {note}", RED)
            if choose_session:
                await self._work(self.handle("/resume"))
            else:
                self.show_notice()
                await self._work(self.print_errors(self.resolve_pending()))
            if first is not None:
                self.queue.append(first)
            while not self.is_over:
                if self.queue:
                    await self._work(self.handle(self.queue.pop(0)))
                else:
                    self._wakes.clear()
                    await self._wakes.wait()
            record_session(self.controller)

    async def _work(self, work: object) -> None:
        self.began = time.monotonic()
        self._view.show_status()
        try:
            await work  # type: ignore[misc]
        finally:
            self.began = None
            self._view.finished()

    def enter(self, line: str, *, steers: bool = False) -> None:
        """Carry out a line: now, after the work in progress or, to steer, with the results of the current calls."""
        if steers and self.steer(line):
            self.screen.line("· will be sent when the current calls are done", DIM)
        else:
            self.queue.append(line)
            self._wakes.set()
        self._view.show_status()

    def leave(self) -> None:
        """End the chat; what is in progress is interrupted, and the session stays valid."""
        self.is_over = True
        self.interrupt()
        self._wakes.set()

    def interrupt(self) -> bool:
        """Interrupt what is in progress; returns whether anything was."""
        if self.board is not None:
            self.board.stop()
            return True
        if self._command is not None:
            self._command.cancel()
            return True
        return self._controller is not None and self._controller.interrupt()

    def take_back_queue(self) -> None:
        """Return queued lines to the input."""
        lines, self.queue = self.queue, []
        self.return_to_input("\n\n".join(lines))

    # Questions

    async def show(self, dialog: Screen[T]) -> T | None:
        """Show a dialog and wait for its result. If the task is cancelled, the dialog is withdrawn."""
        done: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()

        def finish(result: T | None) -> None:
            if not done.done():
                done.set_result(result)

        app = self._view.app
        self._dialogs += 1
        self._view.show_status()
        app.push_screen(dialog, finish)
        try:
            return await done
        except asyncio.CancelledError:
            if dialog in app.screen_stack:
                dialog.dismiss(None)
            raise
        finally:
            self._dialogs -= 1
            self._view.show_status()

    async def ask(self, question: Question) -> Reply:
        async with self._asking:
            await self._view.typing_pause(_PAUSE)
            reply = await self.show(ApprovalDialog(question))
            if reply is None:
                self.interrupt()
                # The interrupt cancels this task; if the run has already ended, the answer is no.
                await asyncio.sleep(1)
                return Reply("no", "the user interrupted it")
            return reply

    async def ask_text(self, question: str) -> str:
        answer = await self.show(TextDialog(question, hint="Enter: continue   Esc: cancel"))
        if answer is None:
            raise KeyboardInterrupt
        return answer

    async def choose(self, rows: Sequence[str], question: str, hint: str = "") -> int | None:  # noqa: ARG002 - arrows need no hint
        await self._view.typing_pause(_PAUSE)
        found = await self.show(ChoiceDialog(question, rows))
        return None if found is None else found[1]

    async def choose_option(self, question: str, options: Sequence[tuple[str, str]], current: str | None) -> str | None:
        names = [name for name, _ in options]
        rows = [f"{name}  {note}".rstrip() for name, note in options]
        cursor = names.index(current) if current in names else 0
        found = await self.show(ChoiceDialog(question, rows, cursor=cursor))
        return None if found is None else names[found[1]]

    async def confirm(self, question: str) -> bool:
        return await self.show(MenuDialog(question, (("no", "No"), ("yes", "Yes")))) == "yes"

    def show_diff(self, text: str) -> None:
        lines = clean(text).rstrip("\n").split("\n")
        self.screen.lines(f"  {line}" for line in lines[:_LONG])
        if len(lines) > _LONG:
            self.screen.line(f"  … {plural(len(lines) - _LONG, 'more line')}", DIM)

    async def decide_pending(self, calls: Sequence[PendingCall], can_run: Mapping[str, bool]) -> dict[str, Resolution]:
        found: dict[str, Resolution] = {}
        for pending in calls:
            began = "it had started to change files" if pending.had_begun else "it may have completed"
            title = f"{describe_call(pending.call)} has no result; {began}"
            options = [("skip", "Skip it"), ("answer", "Type its result")]
            if can_run[pending.call.id]:
                options.append(("run", "Run it"))
            match await self.show(MenuDialog(title, options)):
                case "run":
                    found[pending.call.id] = "run"
                case "answer":
                    found[pending.call.id] = Answered(await self.ask_text("The result"))
                case "skip":
                    found[pending.call.id] = "skip"
                case _:
                    raise KeyboardInterrupt
        return found

    # Screens

    async def choose_session(self) -> str | None:
        chooser = SessionChooser()
        await self.show(chooser)
        return chooser.chosen

    async def browse_tree(self) -> bool:
        controller = self.controller
        await controller.refresh()
        tree = BranchScreen(controller.session)
        await self.show(tree)
        await controller.adopt(tree.session)
        if tree.chosen is not None:
            entry, summary = tree.chosen
            selected = await controller.select(entry, summary=summary)
            self.screen.lines((f"· {one_line(report)}" for report in selected.reports), RED)
        return True

    async def browse_rewinds(self) -> bool:
        controller = self.controller
        points = await asyncio.to_thread(controller.fork_points)
        chosen = await self.show(RewindScreen(controller.session, controller.workspace, points))
        if chosen is not None:
            await rewind.carry_out(self, chosen.action, chosen.scope)
        return True

    async def list_prompts(self) -> None:
        """Esc Esc: move to just before a prompt, so that the next one is its sibling; `f` makes a new session."""
        points = await asyncio.to_thread(self.controller.fork_points)
        if not points:
            self._view.notify("No messages yet.")
            return
        rows = [one_line(point.preview) for point in points]
        keys = (("f", "in a new session"),)
        found = await self.show(
            ChoiceDialog("Go to just before which prompt? Your next message becomes its sibling.", rows, keys)
        )
        if found is None:
            return
        key, at = found
        if key == "f":
            await self.controller.fork(points[at].id)
        else:
            await self.controller.select(points[at].id)

    def act(self, make: Callable[[], object]) -> None:
        """Carry out an action of a key like a line: after the work in progress."""
        self._view.run_worker(self._work(self.print_errors(make())), exclusive=False)  # type: ignore[arg-type]

    # Runs

    async def send(self, prompt: str | None, pending: Mapping[str, Resolution] | None = None) -> None:
        pending = await self.decided(pending)
        is_done = False
        self.transcript.go_to_end()
        try:
            async for event in self.controller.send(prompt, pending=pending):
                self._events.show(event)
                is_done = isinstance(event, AgentEnd) and event.reason == "done"
        finally:
            self._events.end()
            if not is_done:
                self.take_back_queue()
        record_session(self.controller)

    async def show_command(self, command: UserCommand) -> None:
        tail = ""

        def update(text: str) -> None:
            nonlocal tail
            tail = (tail + text)[-200:]
            self._view.show_status(one_line(tail.rstrip().rpartition("\n")[2]))

        entry = await self.controller.command(command, update)
        if isinstance(entry, MessageEntry) and isinstance(entry.message, BashExecution):
            self.screen.line(f"· {command_outcome(entry.message, is_hidden=command.exclude_from_context)}", DIM)
            if entry.message.cancelled:
                self.take_back_queue()

    # Lanes

    def open_board(self) -> LaneBoard:
        return ExploreBoard(self)

    async def decide_lanes(self, exploration: ExplorationLike, worktrees: LaneWorktrees | None) -> None:
        await ExploreBoard(self).decide(exploration, worktrees)
