"""The conversation: a prompt, a /command or a !command at a time, and Ctrl-C at any time.

Ctrl-C ends what is under way, and the session stays valid; a second one, or Ctrl-D, leaves.
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
from sessiontree.agent.pending import Resolution, pending_calls
from sessiontree.agent.shell_commands import parse_user_command
from sessiontree.app.start import StartOptions, open_controller
from sessiontree.chat import commands
from sessiontree.chat.event_printer import Printing, Teller, preview_lines
from sessiontree.chat.lane_view import LaneView
from sessiontree.chat.line_editor import PROMPT, Reader, open_reader
from sessiontree.chat.terminal import BOLD, DIM, RED, Screen
from sessiontree.chat.type_ahead import Ahead
from sessiontree.chat.user_prompts import Asking, decide_pending
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import BashExecution
from sessiontree.errors import SessionTreeError, UsageError
from sessiontree.explore.exploration import Exploration
from sessiontree.library.last_session import record_last_session
from sessiontree.search.prompt_history import PromptHistory
from sessiontree.views.text import clean, one_line

_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_EARLIER = 500
"""Resolution many earlier prompts can be called back."""


async def talk(wanted: StartOptions, first: str | None = None, *, choose_session: bool = False) -> int:
    """Hold a conversation in the terminal, until the person leaves; the exit code."""
    screen = Screen(sys.stdout)
    conversation = Conversation(screen, sys.stdin, is_in_memory=wanted.in_memory)
    async with open_controller(wanted, conversation) as start:
        for note in start.notes:
            screen.line(f"· {note}", RED)
        holding = asyncio.create_task(conversation.hold(start.controller, first, choose_session=choose_session))
        ended_by: list[int] = []

        def end(number: int) -> None:
            """The program is told to end, or its terminal is gone: what is under way is settled first."""
            ended_by.append(number)
            conversation.is_over = True  # a command of the user takes the cancel for its own
            holding.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, end, number)
        try:
            await holding
        except asyncio.CancelledError:
            if not ended_by:
                raise
    return 128 + ended_by[0] if ended_by else 0


class Conversation:
    """What is on the screen and in the input. Also the one whom a run asks for approval."""

    def __init__(self, screen: Screen, source: TextIO, *, is_in_memory: bool = False) -> None:
        self.screen = screen
        self.is_in_memory = is_in_memory
        self.reader: Reader = open_reader(screen, self, source)
        self.is_over = False
        self._teller = Teller(screen)
        self._asking = Asking(screen, self.reader, self._interrupt)
        self._ahead = Ahead(screen, self.reader, self._asking, self._interrupt, self._steer)
        self._controller: Controller | None = None
        self._command: asyncio.Task[object] | None = None
        self._has_warned = False
        self._interrupts: Callable[[], object] | None = None

    @property
    def controller(self) -> Controller:
        assert self._controller is not None
        return self._controller

    async def ask(self, question: Question) -> Reply:
        return await self._asking.ask(question)

    async def hold(self, controller: Controller, first: str | None, *, choose_session: bool) -> None:
        self._controller = controller
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        if choose_session:
            await self._do("/resume")
        else:
            self.show_session()
            await self._safely(self.offer_pending())
        if first is not None:
            await self._do(first)
        while not self.is_over:
            line = self._next_queued() or await self._next_line()
            if line is not None:
                await self._do(line)
        self._remember_work()

    def _next_queued(self) -> str | None:
        """What was typed while something else was under way, shown as if it were typed now."""
        line = self._ahead.next()
        if line is not None:
            self.screen.line(f"{PROMPT}{line}")
        return line

    async def _next_line(self) -> str | None:
        """What is typed next; None when it was nothing, or the person leaves."""
        try:
            line = await self.reader.prompt(self.controller.state.input)
        except EOFError:
            self.is_over = True
            return None
        except KeyboardInterrupt:
            self.is_over, self._has_warned = self._has_warned, True
            self.controller.set_input("")
            if not self.is_over:
                self.screen.line("· Ctrl-C once more, or Ctrl-D, leaves", DIM)
            return None
        self._has_warned = False
        self.controller.set_input(self.reader.kept)
        self.reader.kept = ""
        return line if line.strip() else None

    async def _do(self, line: str) -> None:
        """Do what a line asks for."""
        command = parse_user_command(line.strip())
        if line.startswith("/"):
            await self._safely(commands.carry_out(self, line))
            self.screen.end_line()
        elif command is not None:
            self._command = asyncio.create_task(self._run_command(line.strip()))
            await self._safely(self._command)
            self._command = None
        else:
            await self._safely(self.say(line))

    async def _safely(self, work: Awaitable[object]) -> None:
        """What fails is said, and the conversation goes on."""
        try:
            await work
        except SessionTreeError as error:
            self.screen.line(f"✗ {one_line(str(error))}", RED)
        except sqlite3.Error as error:
            self.screen.line(f"✗ the index cannot be read: {one_line(str(error))}", RED)
        except (KeyboardInterrupt, EOFError):
            self.screen.line("· nothing was done", DIM)

    # Talking

    async def say(self, prompt: str | None, pending: Mapping[str, Resolution] | None = None) -> None:
        """Say something to the model, and show what comes. Calls left open are settled first."""
        if pending is None and self.controller.state.pending:
            pending = await self._decide()
        has_come_to_its_end = False
        try:
            async with self._ahead.listening():
                async for event in self.controller.send(prompt, pending=pending):
                    await self._asking.wait_until_free()
                    self._ahead.show(partial(self._teller.hear, event))
                    has_come_to_its_end = isinstance(event, AgentEnd) and event.reason == "done"
        finally:
            if not has_come_to_its_end:
                self._bring_back()
        self._remember_work()

    def _steer(self, line: str) -> bool:
        """Say something to the run that is under way; False for what can only be done after it."""
        if self.controller.run is None or line.startswith("/") or parse_user_command(line.strip()) is not None:
            return False
        try:
            self.controller.steer(line)
        except UsageError:  # it has just come to its end
            return False
        return True

    def _bring_back(self) -> None:
        """What was queued behind something that did not come to its end is not said, but back in the input."""
        text, typed = self._ahead.take_back(), self.controller.state.input
        self.controller.set_input(f"{text}\n\n{typed}" if text and typed else text or typed)

    async def offer_pending(self) -> None:
        """Settle the calls that a crash left open in a session that was just taken in hand, and go on."""
        if self.controller.state.pending:
            await self.say(None, await self._decide())

    async def _decide(self) -> dict[str, Resolution]:
        return await decide_pending(self.screen, self.reader, pending_calls(self.controller.session))

    async def _run_command(self, line: str) -> None:
        command = parse_user_command(line)
        assert command is not None
        printing = Printing(self.screen, command.command)
        async with self._ahead.listening():
            entry = await self.controller.command(command, lambda text: self._ahead.show(partial(printing.hear, text)))
        if isinstance(entry, MessageEntry) and isinstance(entry.message, BashExecution):
            ran = entry.message
            self.screen.lines(clean(ran.output).rstrip("\n").split("\n") if ran.output.strip() else [])
            kept = "kept in the session, not sent to the model" if command.exclude_from_context else "kept"
            how = "ended by you" if ran.cancelled else f"exit code {ran.exit_code}"
            self.screen.line(f"· {how} · {kept}", DIM)
            if ran.cancelled:
                self._bring_back()

    def _interrupt(self) -> None:
        """Ctrl-C while something is under way. The second one leaves when that has ended."""
        if self._interrupts is not None:
            self._interrupts()
        elif self._controller is not None and self._controller.run is not None:
            self.is_over = self.is_over or self._has_warned
            self._has_warned = True
            self._controller.interrupt()
        elif self._command is not None:
            self._command.cancel()
        else:
            self.reader.interrupt()

    async def watch(self, exploration: Exploration, watching: LaneView) -> None:
        """Show lanes while they grow. Ctrl-C is about them meanwhile; what is typed waits."""
        self._interrupts = watching.interrupt
        try:
            async with watching.begun(exploration), self._ahead.listening():
                await watching.watch(exploration)
        finally:
            self._interrupts = None

    def watching(self) -> LaneView:
        return LaneView(self.screen, self.reader, self._asking, self._ahead)

    # Showing

    def show_session(self) -> None:
        """What is in hand: session, model, folder, and what the session brings along."""
        controller, screen = self.controller, self.screen
        state, session = controller.state, controller.session
        screen.line(one_line(state.title) or "New session", BOLD)
        count = session.count("message")
        where = "kept in memory only" if self.is_in_memory else clean(session.location)
        screen.line(f"· {clean(session.id)[:8]} · {count:,} messages · {session.dialect.name} · {where}", DIM)
        screen.line(f"· {one_line(state.model or 'no model')} · works in {clean(controller.cwd)} · /help", DIM)
        if count and session.cwd and os.path.realpath(session.cwd) != os.path.realpath(controller.cwd):
            screen.line(f"· the session was held in {clean(session.cwd)}; tools work in the folder above", RED)
        restored = Approvals(session).restored
        if restored is not None:
            screen.line(f"· less is asked in this session: {one_line(restored)} (/mode default, /approve none)", RED)
        if state.notice:
            screen.line(f"· {one_line(state.notice)}", RED)
            controller.store.set(notice="")
        if state.writers:
            screen.line("· another program has this session open for writing, too", RED)

    def show_preview(self, text: str) -> None:
        self.screen.lines(preview_lines(text, self.screen.width), DIM)

    def _remember_work(self) -> None:
        """`-c` goes on with this session in this terminal."""
        controller = self.controller
        session = controller.session
        if not self.is_in_memory and not session.is_pending:
            record_last_session(session.location, session.cwd or controller.cwd, home=controller.home)

    # For the reader

    def complete(self, text: str) -> Sequence[tuple[str, str]]:
        return commands.complete(self, text)

    def take_paste(self, text: str) -> str:
        """A mark for what is large. A terminal pastes no images, but the path of one that is dragged into it."""
        path = text.strip().strip("'\"")
        if path.lower().endswith(_IMAGES) and os.path.isfile(path):
            try:
                with open(path, "rb") as file:
                    return self.controller.paste_image(file.read())
            except (OSError, UsageError):
                return text  # it stays what was pasted: a path
        return self.controller.paste_text(text)

    def earlier(self) -> Iterable[str]:
        try:
            with PromptHistory(self.controller.home) as history:
                return [one.prompt for one in history.search(here=self.controller.cwd, limit=_EARLIER)]
        except (SessionTreeError, sqlite3.Error) as error:
            self.screen.line(f"· no history: {one_line(str(error))}", DIM)
            return []
