"""Read the user's input: with prompt_toolkit in a terminal, else as plain lines.

Both readers raise `EOFError` at the end of the input (Ctrl-D) and `KeyboardInterrupt` for Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TextIO, TypeAlias

from sessiontree.chat.terminal import Screen
from sessiontree.views.text import clean, cut

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.layout.processors import Processor
    from prompt_toolkit.output import Output

Read: TypeAlias = Callable[[], Awaitable[str]]
"""Reads the line that the user has begun to type."""
OnTyping: TypeAlias = Callable[[Read], object]
"""Called when the user begins to type."""

PROMPT = "> "
NEXT = "next> "
"""The prompt for lines that are typed during a run."""
FORK = "/fork"
"""The command that pressing Esc twice runs."""


class SteeringLine(str):
    """A line to send to the current run instead of after it."""

    __slots__ = ()


class EditorHost(Protocol):
    """The interface of the chat that a reader uses."""

    def complete(self, text: str) -> Sequence[tuple[str, str]]:
        """Completions of the last word, with descriptions."""
        ...

    def take_paste(self, text: str) -> str:
        """The text to insert for a paste."""
        ...

    def prompt_history(self) -> Iterable[str]:
        """Earlier prompts, newest first."""
        ...


class Prompter(Protocol):
    """Asks the user a question."""

    async def ask(self, question: str) -> str:
        """The answer, on one line."""
        ...


class Reader(Prompter, Protocol):
    draft: str
    """Text that was typed but not sent."""

    async def prompt(self, text: str = "") -> str:
        """The next prompt or command; `text` is put into the input."""
        ...

    async def ask_number(self, question: str, rows: Sequence[str]) -> str:
        """The number of a row, as typed, or chosen with the arrows if supported."""
        ...

    def listening(
        self, on_typing: OnTyping, on_escape: Callable[[], object]
    ) -> contextlib.AbstractContextManager[None]:
        """During a run: open an input line when the user begins to type, if supported; Esc calls `on_escape`."""
        ...

    def interrupt(self) -> None:
        """Handle a SIGINT while waiting for input."""
        ...


class PlainReader:
    """Plain lines: for pipes, dumb terminals, and without prompt_toolkit."""

    def __init__(self, screen: Screen, source: TextIO) -> None:
        self.draft = ""
        self._screen, self._source = screen, source
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._is_ended = False
        self._thread: threading.Thread | None = None

    async def prompt(self, text: str = "") -> str:
        if text:
            self._screen.line(f"(edit and resend: {text})")
        self._screen.end_line()
        return await self._next(PROMPT)

    async def ask(self, question: str) -> str:
        self._screen.end_line()
        return await self._next(f"{question} ")

    async def _next(self, before: str) -> str:
        self._screen.write(before)
        if self._thread is None:
            # A daemon thread, as a blocking read cannot be cancelled.
            self._thread = threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True)
            self._thread.start()
        if self._is_ended:
            raise EOFError
        line = await self._lines.get()
        if line is None:
            self._screen.end_line()
            raise KeyboardInterrupt
        if not line:
            self._is_ended = True
            self._screen.end_line()
            raise EOFError
        self._screen.note_line_entered() if self._source.isatty() else self._screen.end_line()
        return line.rstrip("\r\n")

    async def ask_number(self, question: str, rows: Sequence[str]) -> str:  # noqa: ARG002 - arrows need a line editor
        return await self.ask(question)

    def listening(
        self,
        on_typing: OnTyping,  # noqa: ARG002 - lines are buffered by the terminal
        on_escape: Callable[[], object],  # noqa: ARG002 - likewise
    ) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def interrupt(self) -> None:
        self._lines.put_nowait(None)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        line = " "
        while line:
            try:
                line = self._source.readline()
            except (OSError, ValueError):  # closed
                line = ""
            try:
                loop.call_soon_threadsafe(self._lines.put_nowait, line)
            except RuntimeError:  # the chat has ended
                return


class LineReader:
    """An editable line with history, history search (Ctrl-R), completion (Tab) and placeholders for large pastes."""

    def __init__(self, screen: Screen, host: EditorHost) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.input import create_input
        from prompt_toolkit.shortcuts import CompleteStyle

        from sessiontree.chat.key_listener import KeyListener

        self.draft = ""
        self._screen, self._host = screen, host
        input, output = create_input(), _output()
        self._input, self._output = input, output
        self._prompts: PromptSession[str] = PromptSession(
            history=_history(host),
            completer=_completer(host),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            key_bindings=self._keys(),
            prompt_continuation="  ",
            input_processors=[_safe_display()],
            input=input,
            output=output,
        )
        self._questions: PromptSession[str] = PromptSession(input=input, output=output)
        ahead: PromptSession[str] = PromptSession(
            key_bindings=self._type_ahead_keys(),
            prompt_continuation=" " * len(NEXT),
            input_processors=[_safe_display()],
            input=input,
            output=output,
        )
        self._listener = KeyListener(input, output, ahead, NEXT)

    async def prompt(self, text: str = "") -> str:
        self._screen.end_line()
        return await self._prompts.prompt_async(PROMPT, default=text, handle_sigint=False)

    async def ask(self, question: str) -> str:
        self._screen.end_line()
        return await self._questions.prompt_async(f"{question} ", handle_sigint=False)

    async def ask_number(self, question: str, rows: Sequence[str]) -> str:
        from prompt_toolkit import PromptSession

        self._screen.end_line()
        numbers: PromptSession[str] = PromptSession(
            key_bindings=_number_keys(len(rows)), input=self._input, output=self._output
        )

        def chosen() -> str:
            number = numbers.default_buffer.text.strip()
            is_row = number.isdecimal() and 1 <= int(number) <= len(rows)
            return cut(clean(rows[int(number) - 1]), max(self._screen.width // 2, 20)) if is_row else ""

        return await numbers.prompt_async(f"{question} ", rprompt=chosen, handle_sigint=False)

    def listening(
        self, on_typing: OnTyping, on_escape: Callable[[], object]
    ) -> contextlib.AbstractContextManager[None]:
        return self._listener.listening(on_typing, on_escape)

    def interrupt(self) -> None:
        """Nothing to do: prompt_toolkit reads Ctrl-C as a key."""

    def _keys(self) -> KeyBindings:
        keys = self._editing_keys()

        @keys.add("c-c")
        def _clear(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.text:
                buffer.reset(append_to_history=True)  # Up brings it back
            else:
                event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

        @keys.add("escape", "escape")
        def _fork(event: KeyPressEvent) -> None:
            self.draft = event.current_buffer.text
            event.app.exit(result=FORK)

        return keys

    def _type_ahead_keys(self) -> KeyBindings:
        keys = self._editing_keys()

        @keys.add("escape")
        def _interrupt(event: KeyPressEvent) -> None:
            self.draft = event.current_buffer.text
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

        @keys.add("c-c")
        def _clear_or_interrupt(event: KeyPressEvent) -> None:
            text = event.current_buffer.text
            if text:
                self._prompts.history.append_string(text)  # Up brings it back
                event.app.exit(result="")
            else:
                event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

        @keys.add("c-s")
        def _steer(event: KeyPressEvent) -> None:
            event.app.exit(result=SteeringLine(event.current_buffer.text))

        return keys

    def _editing_keys(self) -> KeyBindings:
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.keys import Keys

        keys = KeyBindings()

        @keys.add("escape", "enter")
        def _new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add(Keys.BracketedPaste)
        def _paste(event: KeyPressEvent) -> None:
            pasted = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(self._host.take_paste(pasted))

        return keys


def _number_keys(count: int) -> KeyBindings:
    """Down and up choose the next and the previous number; Esc cancels."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def add(key: str, step: int, first: int) -> None:
        @keys.add(key)
        def _step(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            number = int(buffer.text) + step if buffer.text.strip().isdecimal() else first
            buffer.text = str(min(max(number, 1), count))
            buffer.cursor_position = len(buffer.text)

    add("down", 1, 1)
    add("up", -1, count)

    @keys.add("escape", eager=True)  # else it would make the next digit a repeat count
    def _cancel(event: KeyPressEvent) -> None:
        event.app.exit(result="")

    return keys


def open_reader(screen: Screen, host: EditorHost, source: TextIO) -> Reader:
    """A line editor on a capable terminal, else a plain reader."""
    can_edit = source.isatty() and screen.is_terminal and os.environ.get("TERM") not in ("dumb", None)
    if can_edit:
        try:
            return LineReader(screen, host)
        except ImportError:
            screen.line("· plain input; for history, completion and pasting: pip install 'sessiontree[chat]'")
    return PlainReader(screen, source)


def _output() -> Output:
    """An output that does not query the cursor position: some terminals respond late or not at all."""
    from prompt_toolkit.data_structures import Size
    from prompt_toolkit.output.vt100 import Vt100_Output

    def size() -> Size:
        columns, rows = shutil.get_terminal_size((80, 24))
        return Size(rows or 24, columns or 80)

    return Vt100_Output(sys.stdout, size, os.environ.get("TERM"), enable_cpr=False)


def _safe_display() -> Processor:
    """Displays a replacement for characters that would reorder the line; the text itself is unchanged."""
    from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

    class SafeDisplay(Processor):
        def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
            return Transformation([(part[0], _replace_unsafe(part[1])) for part in transformation_input.fragments])

    return SafeDisplay()


def _replace_unsafe(text: str) -> str:
    # One character for each, because the cursor position counts them. ASCII control characters are left to
    # prompt_toolkit.
    return text if text.isascii() else "".join(c if c.isascii() or clean(c) == c else "\ufffd" for c in text)


def _history(host: EditorHost) -> History:
    from prompt_toolkit.history import History

    class PromptHistory(History):
        """Earlier prompts, read-only: prompts are recorded with their session and folder elsewhere."""

        def load_history_strings(self) -> Iterable[str]:
            return host.prompt_history()

        def store_string(self, string: str) -> None:
            pass

    return PromptHistory()


def _completer(host: EditorHost) -> Completer:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002 - prompt_toolkit's signature
            before = document.text_before_cursor
            word = before.rpartition(" ")[2]
            for text, meaning in host.complete(before):
                yield Completion(text, start_position=-len(word), display_meta=meaning)

    return Commands()
