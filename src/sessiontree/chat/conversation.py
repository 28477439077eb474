"""The main loop of a chat: reads a prompt, a /command or a !command, and runs it.

Ctrl-C interrupts what is in progress and leaves the session valid; a second one, or Ctrl-D, quits.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TextIO

from sessiontree.agent.approval import Question, Reply
from sessiontree.agent.controller import Controller
from sessiontree.agent.events import AgentEnd
from sessiontree.agent.shell_commands import UserCommand
from sessiontree.agent.tool_calls import PendingCall, Resolution
from sessiontree.agent.tools.base import Tools
from sessiontree.app.start import StartOptions, open_controller, record_session
from sessiontree.app.summaries import summary_options
from sessiontree.chat.base_chat import BaseChat, LaneApprovers, LaneBoard, command_outcome
from sessiontree.chat.event_printer import EventPrinter, LiveOutput, preview_lines
from sessiontree.chat.lane_view import LaneChooser, LaneDecider, LaneView, is_undecided, show_results
from sessiontree.chat.line_editor import PROMPT, Reader, open_reader
from sessiontree.chat.styles import DIM, RED
from sessiontree.chat.terminal import Screen
from sessiontree.chat.type_ahead import TypeAhead
from sessiontree.chat.user_prompts import ApprovalPrompts, choose, confirm, decide_pending, show_diff
from sessiontree.core.entries import ApprovalMode, MessageEntry
from sessiontree.core.messages import BashExecution
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.state import ExplorationLike
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.views.text import clean, cut, one_line


async def run_chat(options: StartOptions, first: str | None = None, *, choose_session: bool = False) -> int:
    """Chat in the terminal until the user quits; returns the exit code."""
    screen = Screen(sys.stdout)
    conversation = Conversation(screen, sys.stdin, is_in_memory=options.in_memory)
    async with open_controller(options, conversation, conversation.confirm) as start:
        for note in start.notes:
            screen.line(f"· {note}", RED)
        running = asyncio.create_task(conversation.run(start.controller, first, choose_session=choose_session))
        ended_by: list[int] = []

        def end(number: int) -> None:
            # Cancel instead of exiting, so that the session is left valid.
            ended_by.append(number)
            conversation.is_over = True  # a !command takes the cancellation as its own
            running.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, end, number)
        try:
            await running
        except asyncio.CancelledError:
            if not ended_by:
                raise
    return 128 + ended_by[0] if ended_by else 0


class Conversation(BaseChat):
    """A chat line by line. Also the `Approver` of its runs."""

    screen: Screen

    key_help = (
        "Tab: complete · Up, Ctrl-R: earlier prompts · Alt-Enter: new line · Esc Esc: fork",
        "During a run: Enter queues your message · Ctrl-S sends it after the current call",
        "Esc, Ctrl-C: interrupt · Ctrl-C clears typed text first · twice, or Ctrl-D: quit",
    )

    def __init__(self, screen: Screen, source: TextIO, *, is_in_memory: bool = False) -> None:
        super().__init__(is_in_memory=is_in_memory)
        self.screen = screen
        self.reader: Reader = open_reader(screen, self, source)
        self._printer = EventPrinter(screen, lambda: self.controller.state.verbose)
        self._printed_status = ""
        self._prompts = ApprovalPrompts(screen, self.reader, self._interrupt)
        self._ahead = TypeAhead(screen, self.reader, self._prompts, self._interrupt, self.steer)
        self._has_warned = False
        self._interrupts: Callable[[], object] | None = None

    # Questions

    async def ask(self, question: Question) -> Reply:
        return await self._prompts.ask(question)

    async def ask_text(self, question: str) -> str:
        return await self.reader.ask(question)

    async def choose(self, rows: Sequence[str], question: str, hint: str = "") -> int | None:
        return await choose(self.screen, self.reader, rows, question, hint)

    async def confirm(self, question: str) -> bool:
        try:
            return await confirm(self.reader, one_line(question))
        except (EOFError, KeyboardInterrupt):
            return False

    async def decide_pending(self, calls: Sequence[PendingCall], can_run: Mapping[str, bool]) -> dict[str, Resolution]:
        return await decide_pending(self.screen, self.reader, calls, can_run)

    def show_diff(self, text: str) -> None:
        show_diff(self.screen, text)

    # The main loop

    async def run(self, controller: Controller, first: str | None, *, choose_session: bool) -> None:
        self._controller = controller
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        if choose_session:
            await self.handle("/resume")
        else:
            self.show_session()
            await self.print_errors(self.resolve_pending())
        if first is not None:
            await self.handle(first)
        while not self.is_over:
            line = self._next_queued() or await self._next_line()
            if line is not None:
                await self.handle(line)
        record_session(self.controller)

    def _next_queued(self) -> str | None:
        """The next queued line, echoed as if it were typed now."""
        line = self._ahead.next()
        if line is not None:
            self.screen.line(f"{PROMPT}{line}")
        return line

    async def _next_line(self) -> str | None:
        """The next line; None if it is empty or the user quits."""
        self._show_status_line()
        try:
            line = await self.reader.prompt(self.controller.state.input)
        except EOFError:
            self.is_over = True
            return None
        except KeyboardInterrupt:
            self.is_over, self._has_warned = self._has_warned, True
            self.controller.set_input("")
            if not self.is_over:
                self.screen.line("· press Ctrl-C again, or Ctrl-D, to quit", DIM)
            return None
        self._has_warned = False
        self.controller.set_input(self.reader.draft)
        self.reader.draft = ""
        return line if line.strip() else None

    # Runs

    async def send(self, prompt: str | None, pending: Mapping[str, Resolution] | None = None) -> None:
        """Send a prompt and print the run's events. Pending calls are resolved first."""
        pending = await self.decided(pending)
        is_done = False
        try:
            async with self._ahead.listening():
                async for event in self.controller.send(prompt, pending=pending):
                    await self._prompts.wait_until_free()
                    self._ahead.show(partial(self._printer.print, event))
                    is_done = isinstance(event, AgentEnd) and event.reason == "done"
        finally:
            if not is_done:
                self._restore_queued()
        record_session(self.controller)

    def _restore_queued(self) -> None:
        """Put queued lines back into the input after a run that did not finish."""
        self.return_to_input(self._ahead.take_back())

    async def show_command(self, command: UserCommand) -> None:
        output = LiveOutput(self.screen, command.command)
        async with self._ahead.listening():
            entry = await self.controller.command(command, lambda text: self._ahead.show(partial(output.append, text)))
        if isinstance(entry, MessageEntry) and isinstance(entry.message, BashExecution):
            ran = entry.message
            self.screen.lines(clean(ran.output).rstrip("\n").split("\n") if ran.output.strip() else [])
            self.screen.line(f"· {command_outcome(ran, is_hidden=command.exclude_from_context)}", DIM)
            if ran.cancelled:
                self._restore_queued()

    def _interrupt(self) -> None:
        """Handle Ctrl-C during a run or command. A second one quits after it has ended."""
        if self._interrupts is not None:
            self._interrupts()
        elif self._controller is not None and self._controller.run is not None:
            self.is_over = self.is_over or self._has_warned
            self._has_warned = True
            self._controller.interrupt()
        elif self._command is not None:
            self._command.cancel()
        elif self._controller is None or not self._controller.interrupt():  # a summary that a /command waits for
            self.reader.interrupt()

    # Lanes

    def open_board(self) -> LaneBoard:
        return TerminalBoard(self, LaneView(self.screen, self.reader, self._prompts, self._ahead))

    async def watch(self, exploration: Exploration, view: LaneView) -> None:
        """Show lanes while they run. Ctrl-C applies to them; typed lines are queued."""
        self._interrupts = view.interrupt
        try:
            async with view.begun(exploration), self._ahead.listening():
                await view.watch(exploration)
        finally:
            self._interrupts = None

    async def decide_lanes(self, exploration: ExplorationLike, worktrees: LaneWorktrees | None) -> None:
        controller = self.controller
        summary = summary_options(controller.settings, summarizer=controller.summarizer())
        decider = LaneDecider(controller.session, exploration, worktrees, summary=summary)
        show_results(self.screen, await decider.results())
        result = await LaneChooser(self.screen, self.reader, decider).choose()
        if is_undecided(exploration.lanes, result):
            self.screen.line("· decide later with /explore", DIM)

    # Output

    def _show_status_line(self) -> None:
        """Print the status line if it has changed."""
        text = self.controller.state.status_line
        if text and text != self._printed_status:
            self.screen.line(cut(f"· {one_line(text)}", self.screen.width), DIM)
        self._printed_status = text

    def show_preview(self, text: str) -> None:
        self.screen.lines(preview_lines(text, self.screen.width), DIM)


class TerminalBoard:
    """The lanes of /explore as lines of a chat."""

    def __init__(self, chat: Conversation, view: LaneView) -> None:
        self._chat, self._view = chat, view

    def approver_for(self, mode: ApprovalMode, tools: Tools) -> LaneApprovers:
        return self._view.approver_for(mode, tools)

    async def watch(self, exploration: Exploration) -> None:
        await self._chat.watch(exploration, self._view)
