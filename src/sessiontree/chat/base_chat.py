"""The behavior shared by all chat front ends: dispatching input and hosting the /commands.

A front end adds how it asks the user, where it prints, and how it shows a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Protocol

from sessiontree.agent.approval import Approvals, Question, Reply
from sessiontree.agent.controller import Controller
from sessiontree.agent.shell_commands import UserCommand, parse_user_command
from sessiontree.agent.tool_calls import PendingCall, Resolution, pending_calls
from sessiontree.agent.tools.base import Tools
from sessiontree.agent.tools.tool_table import runnable_call
from sessiontree.chat import commands
from sessiontree.chat.styles import BOLD, DIM, RED
from sessiontree.core.entries import ApprovalMode
from sessiontree.core.messages import BashExecution, ToolCall
from sessiontree.errors import SessionTreeError, UsageError
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.lane import Lane
from sessiontree.explore.state import ExplorationLike
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.library.library import Library
from sessiontree.paths import is_same_folder
from sessiontree.search.prompt_history import PromptHistory
from sessiontree.stores.repositories import is_address
from sessiontree.views.text import clean, cut, one_line, plural

_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_EARLIER = 500
"""How many earlier prompts an editor offers."""
CARRY_OUT = "The plan is approved. Carry it out."
"""The prompt after the user has approved a plan."""


class Output(Protocol):
    """Where commands print. Texts are cleaned of control characters; styles are those of `styles`."""

    @property
    def width(self) -> int: ...

    def line(self, text: str = "", style: str = "") -> None: ...

    def lines(self, texts: Iterable[str], style: str = "") -> None: ...

    def end_line(self) -> None: ...


class LaneBoard(Protocol):
    """Shows the lanes of an exploration while they run."""

    def approver_for(self, mode: ApprovalMode, tools: Tools) -> LaneApprovers: ...

    async def watch(self, exploration: Exploration) -> None:
        """Enter an exploration and show it until all lanes have ended."""


class LaneApprovers(Protocol):
    """Makes the approver of a lane."""

    def __call__(self, lane: Lane, /) -> AsksUser: ...


class AsksUser(Protocol):
    async def ask(self, question: Question) -> Reply: ...


class BaseChat(ABC):
    """The state of a chat. Also the `Approver` of its runs."""

    screen: Output
    key_help: ClassVar[Sequence[str]]
    """The keys of the front end, at the end of /help."""

    def __init__(self, *, is_in_memory: bool = False) -> None:
        self.is_in_memory = is_in_memory
        self.is_over = False
        self._controller: Controller | None = None
        self._command: asyncio.Task[None] | None = None
        """The command of the user in progress."""

    @property
    def controller(self) -> Controller:
        assert self._controller is not None
        return self._controller

    # Of the front end

    @abstractmethod
    async def ask(self, question: Question) -> Reply:
        """Ask for an approval."""

    @abstractmethod
    async def ask_text(self, question: str) -> str:
        """Ask for one line of text."""

    @abstractmethod
    async def choose(self, rows: Sequence[str], question: str, hint: str = "") -> int | None:
        """The index of the row that the user chooses; None to cancel."""

    @abstractmethod
    async def confirm(self, question: str) -> bool:
        """Ask a yes-or-no question; no answer means no."""

    @abstractmethod
    def show_diff(self, text: str) -> None:
        """Show a diff or a command."""

    @abstractmethod
    async def decide_pending(self, calls: Sequence[PendingCall], can_run: Mapping[str, bool]) -> dict[str, Resolution]:
        """Ask how to resolve each call without a result."""

    @abstractmethod
    async def send(self, prompt: str | None, pending: Mapping[str, Resolution] | None = None) -> None:
        """Send a prompt, and show the run. Pending calls are resolved first."""

    @abstractmethod
    async def show_command(self, command: UserCommand) -> None:
        """Run a command of the user, and show its output. A cancellation ends the command."""

    @abstractmethod
    def open_board(self) -> LaneBoard:
        """A view of the lanes of /explore."""

    @abstractmethod
    async def decide_lanes(self, exploration: ExplorationLike, worktrees: LaneWorktrees | None) -> None:
        """Compare the lanes of an exploration and let the user decide about them."""

    def show_preview(self, text: str) -> None:
        """Show the beginning of a text."""
        self.screen.lines((f"  {line}" for line in clean(text).split("\n")), DIM)

    async def choose_session(self) -> str | None:
        """Let the user choose a session; the front end may have a better way than a list of lines."""
        return await commands.sessions.choose_from_list(self)

    async def choose_option(
        self,
        question: str,  # noqa: ARG002 - for front ends with menus
        options: Sequence[tuple[str, str]],  # noqa: ARG002 - likewise
        current: str | None,  # noqa: ARG002 - likewise
    ) -> str | None:
        """Let the user choose a value from a menu, if the front end has one; None leaves the current one."""
        return None

    async def browse_tree(self) -> bool:
        """Show the tree on a separate screen, if the front end has one; returns whether it did."""
        return False

    async def browse_rewinds(self) -> bool:
        """Let the user choose a rewind on a separate screen, if the front end has one; returns whether it did."""
        return False

    # Input

    async def handle(self, line: str) -> None:
        """Carry out a prompt, a /command or a !command."""
        command = parse_user_command(line.strip())
        if line.startswith("/"):
            await self.print_errors(commands.carry_out(self, line))
            self.screen.end_line()
        elif command is not None:
            await self.print_errors(self.run_command(command))
        else:
            await self.print_errors(self._send_typed(line))
        self.show_notice()

    async def run_command(self, command: UserCommand) -> None:
        # A separate task, so that an interrupt can cancel it without ending the chat.
        self._command = asyncio.create_task(self.show_command(command))
        try:
            await self._command
        finally:
            self._command = None

    async def _send_typed(self, line: str) -> None:
        await self.send(line)
        await self._offer_plan()

    async def _offer_plan(self) -> None:
        """After an answer in plan mode: let the user approve the plan, and carry it out."""
        state = self.controller.state
        if state.approval != "plan" or not self.controller.has_plan:
            return
        rows = (
            "Carry it out, and ask before changes",
            "Carry it out, and edit files of this project without asking",
            "Keep planning",
        )
        chosen = await self.choose(rows, "The plan is complete.")
        if chosen in (0, 1):
            await self.controller.choose_mode("default" if chosen == 0 else "autoEdit")
            await self.send(CARRY_OUT)

    async def print_errors(self, work: Awaitable[object]) -> None:
        """Print errors instead of ending the chat."""
        try:
            await work
        except SessionTreeError as error:
            self.screen.line(f"✗ {one_line(str(error))}", RED)
        except sqlite3.Error as error:
            self.screen.line(f"✗ cannot read the index: {one_line(str(error))}", RED)
        except (KeyboardInterrupt, EOFError):
            self.screen.line("· cancelled", DIM)

    def steer(self, line: str) -> bool:
        """Send a line to the current run; False if the line has to wait until the run ends."""
        if self.controller.run is None or line.startswith("/") or parse_user_command(line.strip()) is not None:
            return False
        try:
            self.controller.steer(line)
        except UsageError:  # the run has just ended
            return False
        return True

    def return_to_input(self, text: str) -> None:
        """Put queued lines back into the input, before what is typed there."""
        typed = self.controller.state.input
        self.controller.set_input(f"{text}\n\n{typed}" if text and typed else text or typed)

    # Calls without a result

    async def resolve_pending(self) -> None:
        """Resolve the calls without a result at the end of the session, and continue."""
        if self.controller.state.pending:
            await self.send(None, await self._decide_pending())

    async def _decide_pending(self) -> dict[str, Resolution]:
        session, tools = self.controller.session, self.controller.tools

        def can_run(call: ToolCall) -> bool:
            return runnable_call(call, session.dialect.name, tools) is not None

        calls = pending_calls(session)
        return await self.decide_pending(calls, {pending.call.id: can_run(pending.call) for pending in calls})

    async def decided(self, pending: Mapping[str, Resolution] | None) -> Mapping[str, Resolution] | None:
        """The given resolutions or, if calls are pending, those that the user chooses."""
        if pending is None and self.controller.state.pending:
            return await self._decide_pending()
        return pending

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
        self.show_notice()
        if state.writers:
            screen.line("· another process has this session open for writing", RED)

    def show_notice(self) -> None:
        """Print a problem outside the conversation, once."""
        notice = self.controller.state.notice
        if notice:
            self.screen.line(f"· {one_line(notice)}", RED)
            self.controller.store.set(notice="")

    # Editing

    def complete(self, text: str) -> Sequence[tuple[str, str]]:
        """Completions of the last word, with descriptions."""
        return commands.complete(self, text)

    def take_paste(self, text: str) -> str:
        """Replace a large paste with a placeholder, and the path of an image with the image.

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

    @contextlib.contextmanager
    def open_history(self) -> Iterator[PromptHistory]:
        """The prompts of the home that the chat's sessions are in."""
        controller = self.controller
        if not is_address(controller.repository):
            with PromptHistory(controller.home) as history:
                yield history
            return
        with PromptHistory(controller.repository) as history, Library(controller.repository) as library:
            history.import_from(library)
            yield history

    def prompt_history(self) -> Sequence[str]:
        """Earlier prompts, newest first."""
        try:
            with self.open_history() as history:
                return [found.prompt for found in history.search(here=self.controller.cwd, limit=_EARLIER)]
        except (SessionTreeError, sqlite3.Error) as error:
            self.screen.line(f"· history is not available: {one_line(str(error))}", DIM)
            return []


def command_outcome(ran: BashExecution, *, is_hidden: bool) -> str:
    """How a command of the user ended."""
    kept = "saved, not sent to the model" if is_hidden else "saved"
    how = "cancelled" if ran.cancelled else f"exit code {ran.exit_code}"
    return f"{how} · {kept}"
