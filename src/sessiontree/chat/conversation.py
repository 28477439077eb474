"""The main loop of a chat: reads a prompt, a /command or a !command, and runs it.

Ctrl-C interrupts what is in progress and leaves the session valid; a second one, or Ctrl-D, quits.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TextIO

from sessiontree.agent.approval import Approvals, Question, Reply
from sessiontree.agent.controller import Controller
from sessiontree.agent.events import AgentEnd
from sessiontree.agent.shell_commands import parse_user_command
from sessiontree.agent.tool_calls import Resolution, pending_calls
from sessiontree.agent.tools.tool_table import runnable_call
from sessiontree.app.start import StartOptions, open_controller, record_session
from sessiontree.chat import commands
from sessiontree.chat.event_printer import EventPrinter, LiveOutput, preview_lines
from sessiontree.chat.lane_view import LaneView
from sessiontree.chat.line_editor import PROMPT, Reader, open_reader
from sessiontree.chat.terminal import BOLD, DIM, RED, Screen
from sessiontree.chat.type_ahead import TypeAhead
from sessiontree.chat.user_prompts import ApprovalPrompts, confirm, decide_pending
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import BashExecution
from sessiontree.errors import SessionTreeError, UsageError
from sessiontree.explore.exploration import Exploration
from sessiontree.paths import is_same_folder
from sessiontree.search.prompt_history import PromptHistory
from sessiontree.views.text import clean, cut, one_line, plural

_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_EARLIER = 500
"""How many earlier prompts the line editor offers."""


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


class Conversation:
    """The state of a chat. Also the `Approver` of its runs."""

    def __init__(self, screen: Screen, source: TextIO, *, is_in_memory: bool = False) -> None:
        self.screen = screen
        self.is_in_memory = is_in_memory
        self.reader: Reader = open_reader(screen, self, source)
        self.is_over = False
        self._printer = EventPrinter(screen, lambda: self.controller.state.verbose)
        self._printed_status = ""
        self._prompts = ApprovalPrompts(screen, self.reader, self._interrupt)
        self._ahead = TypeAhead(screen, self.reader, self._prompts, self._interrupt, self._steer)
        self._controller: Controller | None = None
        self._command: asyncio.Task[object] | None = None
        self._has_warned = False
        self._interrupts: Callable[[], object] | None = None

    @property
    def controller(self) -> Controller:
        assert self._controller is not None
        return self._controller

    async def ask(self, question: Question) -> Reply:
        return await self._prompts.ask(question)

    async def confirm(self, question: str) -> bool:
        """Ask about settings of a session file; no answer means no."""
        try:
            return await confirm(self.reader, one_line(question))
        except (EOFError, KeyboardInterrupt):
            return False

    async def run(self, controller: Controller, first: str | None, *, choose_session: bool) -> None:
        self._controller = controller
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        if choose_session:
            await self._handle("/resume")
        else:
            self.show_session()
            await self._print_errors(self.resolve_pending())
        if first is not None:
            await self._handle(first)
        while not self.is_over:
            line = self._next_queued() or await self._next_line()
            if line is not None:
                await self._handle(line)
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

    async def _handle(self, line: str) -> None:
        command = parse_user_command(line.strip())
        if line.startswith("/"):
            await self._print_errors(commands.carry_out(self, line))
            self.screen.end_line()
        elif command is not None:
            self._command = asyncio.create_task(self._run_command(line.strip()))
            await self._print_errors(self._command)
            self._command = None
        else:
            await self._print_errors(self.send(line))
        self._show_notice()

    async def _print_errors(self, work: Awaitable[object]) -> None:
        """Print errors instead of ending the chat."""
        try:
            await work
        except SessionTreeError as error:
            self.screen.line(f"✗ {one_line(str(error))}", RED)
        except sqlite3.Error as error:
            self.screen.line(f"✗ cannot read the index: {one_line(str(error))}", RED)
        except (KeyboardInterrupt, EOFError):
            self.screen.line("· cancelled", DIM)

    # Runs

    async def send(self, prompt: str | None, pending: Mapping[str, Resolution] | None = None) -> None:
        """Send a prompt and print the run's events. Pending calls are resolved first."""
        if pending is None and self.controller.state.pending:
            pending = await self._decide_pending()
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

    def _steer(self, line: str) -> bool:
        """Send a line to the current run; False if the line has to wait until the run ends."""
        if self.controller.run is None or line.startswith("/") or parse_user_command(line.strip()) is not None:
            return False
        try:
            self.controller.steer(line)
        except UsageError:  # the run has just ended
            return False
        return True

    def _restore_queued(self) -> None:
        """Put queued lines back into the input after a run that did not finish."""
        text, typed = self._ahead.take_back(), self.controller.state.input
        self.controller.set_input(f"{text}\n\n{typed}" if text and typed else text or typed)

    async def resolve_pending(self) -> None:
        """Resolve the calls without a result at the end of the session, and continue."""
        if self.controller.state.pending:
            await self.send(None, await self._decide_pending())

    async def _decide_pending(self) -> dict[str, Resolution]:
        session, tools = self.controller.session, self.controller.tools
        return await decide_pending(
            self.screen,
            self.reader,
            pending_calls(session),
            lambda call: runnable_call(call, session.dialect.name, tools) is not None,
        )

    async def _run_command(self, line: str) -> None:
        command = parse_user_command(line)
        assert command is not None
        output = LiveOutput(self.screen, command.command)
        async with self._ahead.listening():
            entry = await self.controller.command(command, lambda text: self._ahead.show(partial(output.append, text)))
        if isinstance(entry, MessageEntry) and isinstance(entry.message, BashExecution):
            ran = entry.message
            self.screen.lines(clean(ran.output).rstrip("\n").split("\n") if ran.output.strip() else [])
            kept = "saved, not sent to the model" if command.exclude_from_context else "saved"
            how = "cancelled" if ran.cancelled else f"exit code {ran.exit_code}"
            self.screen.line(f"· {how} · {kept}", DIM)
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

    async def watch(self, exploration: Exploration, watching: LaneView) -> None:
        """Show lanes while they run. Ctrl-C applies to them; typed lines are queued."""
        self._interrupts = watching.interrupt
        try:
            async with watching.begun(exploration), self._ahead.listening():
                await watching.watch(exploration)
        finally:
            self._interrupts = None

    def watching(self) -> LaneView:
        return LaneView(self.screen, self.reader, self._prompts, self._ahead)

    # Output

    def show_session(self) -> None:
        """Print the session, model and folder, and warnings about the session."""
        controller, screen = self.controller, self.screen
        state, session = controller.state, controller.session
        screen.line(one_line(state.title) or "New session", BOLD)
        if state.description:
            screen.line(cut(f"· {one_line(state.description)}", screen.width), DIM)
        count = session.count("message")
        where = "not saved" if self.is_in_memory else clean(session.location)
        screen.line(f"· {clean(session.id)} · {plural(count, 'message')} · {session.dialect.name} · {where}", DIM)
        screen.line(f"· {one_line(state.model or 'no model')} · in {clean(controller.cwd)} · /help", DIM)
        if count and session.cwd and not is_same_folder(session.cwd, controller.cwd):
            screen.line(f"· the session belongs to {clean(session.cwd)}; tools use the folder above", RED)
        approved = Approvals(session).in_force
        if approved is not None:
            screen.line(f"· approvals are skipped: {one_line(approved)} (reset: /mode default, /approve none)", RED)
        self._show_notice()
        if state.writers:
            screen.line("· another process has this session open for writing", RED)

    def _show_status_line(self) -> None:
        """Print the status line if it has changed."""
        text = self.controller.state.status_line
        if text and text != self._printed_status:
            self.screen.line(cut(f"· {one_line(text)}", self.screen.width), DIM)
        self._printed_status = text

    def _show_notice(self) -> None:
        """Print a problem outside the conversation, once."""
        notice = self.controller.state.notice
        if notice:
            self.screen.line(f"· {one_line(notice)}", RED)
            self.controller.store.set(notice="")

    def show_preview(self, text: str) -> None:
        self.screen.lines(preview_lines(text, self.screen.width), DIM)

    # EditorHost

    def complete(self, text: str) -> Sequence[tuple[str, str]]:
        return commands.complete(self, text)

    def take_paste(self, text: str) -> str:
        """Replace a large paste by a placeholder, and the path of an image by the image.

        Terminals cannot paste images; dragging an image file into one pastes its path.
        """
        path = text.strip().strip("'\"")
        if path.lower().endswith(_IMAGES) and os.path.isfile(path):
            try:
                with open(path, "rb") as file:
                    return self.controller.paste_image(file.read())
            except (OSError, UsageError):
                return text
        return self.controller.paste_text(text)

    def prompt_history(self) -> Iterable[str]:
        try:
            with PromptHistory(self.controller.home) as history:
                return [found.prompt for found in history.search(here=self.controller.cwd, limit=_EARLIER)]
        except (SessionTreeError, sqlite3.Error) as error:
            self.screen.line(f"· history is not available: {one_line(str(error))}", DIM)
            return []
