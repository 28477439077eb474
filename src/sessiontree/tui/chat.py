"""The full-screen chat: the conversation, the input, and a status line."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import TextArea

from sessiontree.agent.controller import Controller
from sessiontree.agent.state import State
from sessiontree.app.context_use import ContextUse, measure_context
from sessiontree.app.file_completion import ProjectFiles
from sessiontree.app.start import StartOptions
from sessiontree.core.entries import ApprovalMode
from sessiontree.core.ids import session_word
from sessiontree.errors import SessionTreeError
from sessiontree.tui.chat_blocks import Look
from sessiontree.tui.chat_dialogs import ApprovalDialog, ChoiceDialog
from sessiontree.tui.chat_editor import Completions, PromptEditor
from sessiontree.tui.chat_host import FullScreenChat
from sessiontree.tui.chat_status import status_text
from sessiontree.tui.chat_transcript import Transcript
from sessiontree.tui.dialogs import PageDialog
from sessiontree.tui.image_protocols import find_protocol, is_in_tmux, pass_through_tmux
from sessiontree.tui.key_table import KeyRow, Shortcut, make_bindings, make_help
from sessiontree.tui.line_list import TextRow
from sessiontree.tui.pictures import PastedImages, Pictures
from sessiontree.views.text import clean, one_line

if TYPE_CHECKING:
    from sessiontree.tui.app import SessionTreeApp

_TWICE = 1.0
"""Seconds in which a key counts as pressed twice."""
_LOOK_FOR_WRITERS = 5.0
_POLL = 0.05

_KEYS = (
    KeyRow("Enter", "send; while the agent works: queue"),
    KeyRow("Ctrl+S", "steer: send with the results of the current calls"),
    KeyRow("Ctrl+J", "new line (also Shift+Enter, or \\ before Enter)"),
    KeyRow("Esc", "interrupt; twice: list your prompts, to go back to one", Shortcut("escape", "interrupt")),
    KeyRow("Ctrl+C", "clear the input; twice: quit", Shortcut("ctrl+c", "clear_or_leave")),
    KeyRow("Ctrl+D", "quit, if the input is empty", Shortcut("ctrl+d", "leave_if_empty", priority=True)),
    KeyRow("Up Down", "earlier prompts; Ctrl+R searches them", Shortcut("ctrl+r", "search_history", priority=True)),
    KeyRow("Tab", "complete a /command or an @file"),
    KeyRow("Ctrl+G", "edit the input in your editor", Shortcut("ctrl+g", "external_editor", priority=True)),
    KeyRow(
        "Ctrl+O", "unfold or fold all calls; click to toggle one", Shortcut("ctrl+o", "toggle_calls", priority=True)
    ),
    KeyRow("Ctrl+T", "show or hide thinking", Shortcut("ctrl+t", "toggle_thinking", priority=True)),
    KeyRow(
        "PgUp PgDn",
        "scroll; Ctrl+Home and Ctrl+End: first and last entry",
        Shortcut("pageup", "page(-1)", priority=True),
        Shortcut("pagedown", "page(1)", priority=True),
        Shortcut("ctrl+home", "first", priority=True),
        Shortcut("ctrl+end", "last", priority=True),
    ),
    KeyRow("Shift+Tab", "next approval mode", Shortcut("shift+tab", "next_mode", priority=True)),
    KeyRow("F1", "this help", Shortcut("f1", "help")),
    KeyRow("!command", "run a shell command; !!command hides it from the model"),
    KeyRow("/help", "all commands"),
)
_MODES: tuple[ApprovalMode, ...] = ("default", "autoEdit", "plan")
"""The modes that Shift+Tab cycles through. `yolo`, which never asks, can only be chosen by name."""


class ChatScreen(Screen[None]):
    """A chat with one session at a time."""

    app: SessionTreeApp
    DEFAULT_CSS = """
    ChatScreen #queue { display: none; height: auto; max-height: 4; color: $text-muted; padding: 0 2; }
    ChatScreen #status { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = make_bindings(*_KEYS)

    def __init__(self, options: StartOptions, first: str | None = None, *, choose_session: bool = False) -> None:
        super().__init__()
        self._options, self._first, self._chooses = options, first, choose_session
        self.transcript = Transcript(id="transcript")
        self.editor = PromptEditor(self._complete, self._take_paste, id="editor")
        self.pasted = PastedImages(id="pasted")
        self._queue_row, self._status_row = TextRow(id="queue"), TextRow(id="status")
        self.chat = FullScreenChat(self, is_in_memory=options.in_memory)
        self._files = ProjectFiles(options.cwd)
        self._use = ContextUse()
        self._escaped_at = self._cleared_at = -_TWICE
        self._activity = ""
        self._is_typing = False
        self._pictures: Pictures | None = None
        self._pasted_keys: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self._queue_row
        yield self.pasted
        yield self.editor.menu
        yield self.editor
        yield self._status_row

    def on_mount(self) -> None:
        self.editor.focus()
        self._start_pictures()
        self._status_row.show(" opening…")
        self.run_worker(self._run(), group="chat", exit_on_error=True)
        self.set_interval(1.0, self._tick)
        self.set_interval(_LOOK_FOR_WRITERS, self._look_for_writers)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end_by_signal, number)

    def on_unmount(self) -> None:
        if self._pictures is not None:
            self._pictures.close()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)

    def _start_pictures(self) -> None:
        """Show images as pictures if the terminal can; else their lines describe them."""
        protocol = find_protocol(self._options.settings.images, os.environ)
        driver = self.app._driver  # Textual has no public way to write to the terminal
        has_colors = not self.app.no_color and self.app.console.color_system == "truecolor"
        if protocol is None or driver is None or (protocol == "kitty" and not has_colors):
            return  # kitty's cells identify an image by their color
        wrap = pass_through_tmux if protocol == "kitty" and is_in_tmux(os.environ) else str
        pictures = self._pictures = Pictures(protocol, driver.write, self._redraw_pictures, wrap=wrap)
        self.transcript.pictures = self.pasted.pictures = pictures

        def resumed(_app: object) -> None:
            pictures.forget()
            self._redraw_pictures()

        self.app.app_resume_signal.subscribe(self, resumed)

    def _redraw_pictures(self) -> None:
        if self.is_attached:
            self.transcript.redraw_pictures()
            self.pasted.redraw()

    def _end_by_signal(self, number: int) -> None:
        self.app.exit_code = 128 + number
        self.leave()

    async def _run(self) -> None:
        """Run the chat to its end. An error before it begins is reported where the user came from."""
        try:
            await self.chat.run(self._options, self._first, choose_session=self._chooses)
        except SessionTreeError as error:
            self.app.chat_failed(self, error)
            return
        controller = self.chat.controller
        self.app.chat_ended(resume_line(controller, is_in_memory=self._options.in_memory), self.chat.draft)

    # State

    def attach(self, controller: Controller) -> None:
        """Follow the state of a controller."""
        controller.store.subscribe(self._on_state)
        self._show_conversation(controller.state)
        typed, controller_input = self.editor.text, controller.state.input
        if typed:  # while the session was being opened
            controller.set_input(f"{controller_input}{typed}")
        self._load_history()
        self.measure()

    def _on_state(self, new: State, old: State) -> None:
        if new.input != old.input:
            if not self._is_typing and new.input != self.editor.text:
                self.editor.set_text(new.input)
            if self._is_typing:  # at every key: nothing else has changed
                return
        if new.session is not old.session or new.leaf != old.leaf:
            self._show_conversation(new)
        if new.verbose != old.verbose:
            self.transcript.set_look(Look(self.transcript.look.with_thinking, new.verbose))
        self.show_status()

    def _show_conversation(self, state: State) -> None:
        if state.session is not None and self.chat.controller.run is None:
            self.transcript.show_session(state.session, state.leaf)
            self.app.title = one_line(state.title) or "sessiontree"

    def show_status(self, activity: str = "") -> None:
        """Draw the status line, and the queued lines."""
        if not self.is_mounted or not self.chat.is_open:
            return
        self._activity = activity
        chat = self.chat
        seconds = time.monotonic() - chat.began if chat.began is not None else None
        text = status_text(
            chat.controller.state, self._use, seconds=seconds, queued=len(chat.queue), is_asking=chat.is_asking
        )
        self._status_row.show(f"{clean(activity)}{' · ' if activity else ''}{text}")
        self._queue_row.display = bool(chat.queue)
        self._queue_row.show("  queued: " + " │ ".join(one_line(line) for line in chat.queue))

    def finished(self) -> None:
        """Called when the work in progress has ended."""
        self.show_status()
        self._load_history()
        self.measure()

    def _tick(self) -> None:
        if self.chat.is_busy:
            self.show_status(self._activity)
            if any(status.is_running for status in self.transcript.calls.values()):
                self.transcript.touch_calls()

    async def _look_for_writers(self) -> None:
        if self.chat.is_open and not self.chat.is_busy and not self.chat.is_over:
            await self.chat.controller.refresh()

    @work(thread=True, exclusive=True, group="measure")
    def measure(self) -> None:
        try:
            use = measure_context(self.chat.controller)
        except (SessionTreeError, OSError):  # the session is being replaced; the next run measures again
            return
        self.app.call_from_thread(self._set_use, use)

    def _set_use(self, use: ContextUse) -> None:
        self._use = use
        self.show_status()

    @work(thread=True, exclusive=True, group="history")
    def _load_history(self) -> None:
        found = self.chat.prompt_history()
        self.app.call_from_thread(setattr, self.editor, "earlier", found)
        self._files.load()

    # Input

    async def typing_pause(self, seconds: float) -> None:
        """Wait until the user has stopped typing, so that a question does not take keys meant for the input."""
        while time.monotonic() - self.editor.last_key < seconds:
            await asyncio.sleep(_POLL)

    def _complete(self, before: str) -> Completions:
        word = before.split("\n")[-1].rpartition(" ")[2]
        if word.startswith("@"):
            return [(f"@{name}", "") for name in self._files.complete(word[1:])]
        return self.chat.complete(before) if self.chat.is_open and "\n" not in before else ()

    def _take_paste(self, text: str) -> str:
        return self.chat.take_paste(text) if self.chat.is_open else text

    @on(TextArea.Changed)
    def _on_typing(self) -> None:
        if self.chat.is_open:
            self._is_typing = True  # so that `_on_state` does not write the text back into the editor
            try:
                self.chat.controller.set_input(self.editor.text)
            finally:
                self._is_typing = False
        self.editor.refresh_menu()
        self._show_pasted()

    def _show_pasted(self) -> None:
        """Show the images that the input contains."""
        keys = self.chat.controller.pasted_keys(self.editor.text) if self.chat.is_open else ()
        if keys != self._pasted_keys:
            self._pasted_keys = keys
            self.pasted.show([image for key in keys if (image := self.chat.controller.pasted_image(key)) is not None])

    @on(PromptEditor.Submitted)
    def _submit(self, event: PromptEditor.Submitted) -> None:
        event.stop()
        if self.chat.is_open:
            self.chat.controller.set_input(self.editor.text)
        self.chat.enter(event.text, steers=event.steers)

    @on(ApprovalDialog.Typed)
    def _take_typed(self, event: ApprovalDialog.Typed) -> None:
        """A key that was typed when a question appeared."""
        self.editor.insert(event.text)

    # Keys

    def action_interrupt(self) -> None:
        """Esc: close the menu, then interrupt; twice without work in progress: the list of prompts."""
        now = time.monotonic()
        if self.editor.menu.is_open:
            self.editor.menu.show(())
        elif self.chat.is_busy:
            self.chat.interrupt()
        elif now - self._escaped_at < _TWICE:
            self._escaped_at = -_TWICE
            if self.chat.is_open:
                self.chat.act(self.chat.list_prompts)
        else:
            self._escaped_at = now
            self._hint("Esc again: your prompts")

    def action_clear_or_leave(self) -> None:
        """Ctrl+C: clear the input, or interrupt; twice within a second: leave."""
        now = time.monotonic()
        if now - self._cleared_at < _TWICE:
            self.leave()
            return
        self._cleared_at = now
        text = self.editor.text
        if text.strip():
            self.chat.draft = self.editor.take()
            self.editor.earlier = [self.chat.draft, *self.editor.earlier]
            self._keep_draft(self.chat.draft)
            self._hint("cleared; Up brings it back · Ctrl+C again: quit")
        elif self.chat.is_busy:
            self.chat.interrupt()
        else:
            self._hint("Ctrl+C again: quit")

    def _hint(self, text: str) -> None:
        """Show what pressing the key again does, while that applies."""
        self.show_status(text)
        self.set_timer(_TWICE, self.show_status)

    @work(group="draft")
    async def _keep_draft(self, text: str) -> None:
        if self.chat.is_open:
            await self.chat.controller.keep_draft(text)

    def action_leave_if_empty(self) -> None:
        if not self.editor.text and not self.chat.is_busy:
            self.leave()

    def leave(self) -> None:
        """End the chat. What is typed is printed at the end, and kept in the history."""
        if self.editor.text.strip():
            self.chat.draft = self.editor.text
        waiting = [*self.chat.queue, self.chat.draft] if self.chat.draft else self.chat.queue
        self.chat.draft = "\n\n".join(waiting)
        self.chat.queue = []
        self.chat.leave()
        if not self.chat.is_open:
            self.app.exit()

    def action_page(self, pages: int) -> None:
        self.transcript.scroll_pages(pages)

    def action_first(self) -> None:
        self.transcript.go_to_start()

    def action_last(self) -> None:
        self.transcript.go_to_end()

    def action_toggle_calls(self) -> None:
        if self.chat.is_open:
            self.chat.controller.set_verbose(not self.chat.controller.state.verbose)

    def action_toggle_thinking(self) -> None:
        look = self.transcript.look
        self.transcript.set_look(Look(not look.with_thinking, look.is_verbose))

    def action_next_mode(self) -> None:
        if self.chat.is_open:
            current = self.chat.controller.state.approval
            at = _MODES.index(current) if current in _MODES else -1
            self._set_mode(_MODES[(at + 1) % len(_MODES)])

    @work(group="mode")
    async def _set_mode(self, mode: ApprovalMode) -> None:
        await self.chat.controller.choose_mode(mode)

    def action_help(self) -> None:
        self.app.push_screen(PageDialog("Keys", make_help(*_KEYS)))

    @work(group="history-search")
    async def action_search_history(self) -> None:
        found = await self.app.push_screen_wait(ChoiceDialog("Earlier prompts", self.editor.earlier))
        if found is not None:
            typed = self.editor.text
            self.editor.earlier = [typed, *self.editor.earlier] if typed.strip() else self.editor.earlier
            self.editor.set_text(self.editor.earlier[found[1] + (1 if typed.strip() else 0)])

    def action_external_editor(self) -> None:
        """Edit the input in $VISUAL or $EDITOR. Meanwhile, the agent keeps working off screen."""
        command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        with tempfile.NamedTemporaryFile("w", suffix=".md", delete=False, encoding="utf-8") as file:
            file.write(self.editor.text)
        try:
            with self.app.suspend():
                done = subprocess.run([*shlex.split(command), file.name], check=False)  # noqa: S603 - the user's editor
            if done.returncode == 0:
                with open(file.name, encoding="utf-8", errors="replace") as edited:
                    self.editor.set_text(edited.read().rstrip("\n"))
            else:
                self.notify(f"{command} failed; the input is unchanged.", severity="error", markup=False)
        except (OSError, ValueError) as error:
            self.notify(f"cannot start {command}: {error}", severity="error", markup=False)
        finally:
            os.unlink(file.name)


def resume_line(controller: Controller, *, is_in_memory: bool) -> str | None:
    """The command that resumes the session; None if it is not stored."""
    session = controller.session
    if is_in_memory or session.is_pending:
        return None
    home = "" if controller.repository == controller.home else f" --home {shlex.quote(controller.repository)}"
    word = session_word(session.id if session.ref.is_file else "", session.location)
    return f"sessiontree chat --session {clean(word)}{home}"
