"""What a person types: with prompt_toolkit in a terminal, else as plain lines.

Both raise `EOFError` at the end of the input (Ctrl-D) and `KeyboardInterrupt` for Ctrl-C.
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
from sessiontree.views.text import clean

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.layout.processors import Processor
    from prompt_toolkit.output import Output

Read: TypeAlias = Callable[[], Awaitable[str]]
"""Gives the line that a person has begun to type."""
Began: TypeAlias = Callable[[Read], object]
"""Called when someone begins to type."""

PROMPT = "> "
NEXT = "next> "
"""Before what is typed while something is under way."""
FORK = "/fork"
"""What two times Esc stands for."""


class Steering(str):
    """A line that was entered to be said to the run that is under way, not after it."""

    __slots__ = ()


class Help(Protocol):
    """What a reader asks the conversation for."""

    def complete(self, text: str) -> Sequence[tuple[str, str]]:
        """The ways to go on with a line that begins like this: the last word whole, and what it means."""
        ...

    def take_paste(self, text: str) -> str:
        """What stands in the input for a pasted text."""
        ...

    def earlier(self) -> Iterable[str]:
        """Earlier prompts, the newest first."""
        ...


class Asks(Protocol):
    """Whom a person answers."""

    async def ask(self, question: str) -> str:
        """The answer to a question, on one line."""
        ...


class Reader(Asks, Protocol):
    kept: str
    """What was typed and not sent when something else was asked for."""

    async def prompt(self, text: str = "") -> str:
        """The next prompt or command; `text` stands in the input already."""
        ...

    def listening(self, began: Began) -> contextlib.AbstractContextManager[None]:
        """While something is under way: who begins to type gets a line, if that can be had, else it is read later."""
        ...

    def interrupt(self) -> None:
        """A signal says that Ctrl-C was pressed while something is waited for."""
        ...


class PlainReader:
    """Lines as they come. For pipes, for terminals without abilities, and where prompt_toolkit is missing."""

    def __init__(self, screen: Screen, source: TextIO) -> None:
        self.kept = ""
        self._screen, self._source = screen, source
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._is_ended = False
        self._thread: threading.Thread | None = None

    async def prompt(self, text: str = "") -> str:
        if text:
            self._screen.line(f"(to be said otherwise: {text})")
        self._screen.end_line()
        return await self._next(PROMPT)

    async def ask(self, question: str) -> str:
        self._screen.end_line()
        return await self._next(f"{question} ")

    async def _next(self, before: str) -> str:
        self._screen.write(before)
        if self._thread is None:
            # A thread that nobody waits for: a read of a terminal cannot be taken back.
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
        self._screen.was_entered() if self._source.isatty() else self._screen.end_line()
        return line.rstrip("\r\n")

    def listening(self, began: Began) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002 - lines wait by themselves
        return contextlib.nullcontext()

    def interrupt(self) -> None:
        self._lines.put_nowait(None)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        line = " "
        while line:
            try:
                line = self._source.readline()
            except (OSError, ValueError):  # it was closed
                line = ""
            try:
                loop.call_soon_threadsafe(self._lines.put_nowait, line)
            except RuntimeError:  # the conversation has ended
                return


class LineReader:
    """A line to edit, with history, search in it (Ctrl-R), completion (Tab) and marks for large pastes."""

    def __init__(self, screen: Screen, help: Help) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.input import create_input
        from prompt_toolkit.shortcuts import CompleteStyle

        from sessiontree.chat.key_listener import Listening

        self.kept = ""
        self._screen, self._help = screen, help
        input, output = create_input(), _output()
        self._prompts: PromptSession[str] = PromptSession(
            history=_history(help),
            completer=_completer(help),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            key_bindings=self._keys(),
            prompt_continuation="  ",
            input_processors=[_harmless()],
            input=input,
            output=output,
        )
        self._questions: PromptSession[str] = PromptSession(input=input, output=output)
        ahead: PromptSession[str] = PromptSession(
            key_bindings=self._keys_ahead(),
            prompt_continuation=" " * len(NEXT),
            input_processors=[_harmless()],
            input=input,
            output=output,
        )
        self._listening = Listening(input, output, ahead, NEXT)

    async def prompt(self, text: str = "") -> str:
        self._screen.end_line()
        return await self._prompts.prompt_async(PROMPT, default=text, handle_sigint=False)

    async def ask(self, question: str) -> str:
        self._screen.end_line()
        return await self._questions.prompt_async(f"{question} ", handle_sigint=False)

    def listening(self, began: Began) -> contextlib.AbstractContextManager[None]:
        return self._listening.on(began)

    def interrupt(self) -> None:
        """Here it is a key like any other."""

    def _keys(self) -> KeyBindings:
        """Of the prompt."""
        keys = self._writing_keys()

        @keys.add("escape", "escape")
        def _fork(event: KeyPressEvent) -> None:
            self.kept = event.current_buffer.text
            event.app.exit(result=FORK)

        return keys

    def _keys_ahead(self) -> KeyBindings:
        """Of the line that is typed while something is under way."""
        keys = self._writing_keys()

        @keys.add("c-c")
        def _interrupt(event: KeyPressEvent) -> None:
            self.kept = event.current_buffer.text
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

        @keys.add("c-s")
        def _steer(event: KeyPressEvent) -> None:
            event.app.exit(result=Steering(event.current_buffer.text))

        return keys

    def _writing_keys(self) -> KeyBindings:
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.keys import Keys

        keys = KeyBindings()

        @keys.add("escape", "enter")
        def _new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add(Keys.BracketedPaste)
        def _paste(event: KeyPressEvent) -> None:
            pasted = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(self._help.take_paste(pasted))

        return keys


def open_reader(screen: Screen, help: Help, source: TextIO) -> Reader:
    """A line to edit where a person sits at a terminal that can do it, else plain lines."""
    can_edit = source.isatty() and screen.is_terminal and os.environ.get("TERM") not in ("dumb", None)
    if can_edit:
        try:
            return LineReader(screen, help)
        except ImportError:
            screen.line("· plain input: pip install 'sessiontree[chat]' brings history, completion and pasting")
    return PlainReader(screen, source)


def _output() -> Output:
    """Without asking the terminal where the cursor is: not all of them answer, and some answer late."""
    from prompt_toolkit.data_structures import Size
    from prompt_toolkit.output.vt100 import Vt100_Output

    def size() -> Size:
        columns, rows = shutil.get_terminal_size((80, 24))
        return Size(rows or 24, columns or 80)

    return Vt100_Output(sys.stdout, size, os.environ.get("TERM"), enable_cpr=False)


def _harmless() -> Processor:
    """Shows a stand-in for characters that would reorder the line; what is typed stays what it is."""
    from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

    class Harmless(Processor):
        def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
            return Transformation([(part[0], _stood_in(part[1])) for part in transformation_input.fragments])

    return Harmless()


def _stood_in(text: str) -> str:
    """One character for each, as a cursor moves by them. Control characters are shown by the library."""
    return text if text.isascii() else "".join(one if one.isascii() or clean(one) == one else "\ufffd" for one in text)


def _history(help: Help) -> History:
    from prompt_toolkit.history import History

    class Earlier(History):
        """Reads what was typed before. What is said is remembered elsewhere, with its session and folder."""

        def load_history_strings(self) -> Iterable[str]:
            return help.earlier()

        def store_string(self, string: str) -> None:
            pass

    return Earlier()


def _completer(help: Help) -> Completer:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002 - the library's
            before = document.text_before_cursor
            word = before.rpartition(" ")[2]
            for text, meaning in help.complete(before):
                yield Completion(text, start_position=-len(word), display_meta=meaning)

    return Commands()
