"""Read keys while a run is in progress. Nothing is echoed; the first printable key opens an input line.

Ctrl-C stays a signal, so it works whatever the program is doing. Esc also interrupts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import termios
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPress
    from prompt_toolkit.output import Output

    from sessiontree.chat.line_editor import OnTyping

_ESCAPE_SECONDS = 0.1
_LOCAL_FLAGS = 3
"""Index of the local flags in the result of `tcgetattr`."""


class KeyListener:
    """Reads keys between prompts. Keys that did not open a line become input of the next prompt."""

    def __init__(self, input: Input, output: Output, line: PromptSession[str], message: str) -> None:
        self._input, self._output = input, output
        self._line, self._message = line, message
        self._keys: list[KeyPress] = []
        self._is_open = False
        self._on_typing: OnTyping | None = None
        self._on_escape: Callable[[], object] = lambda: None
        self._flush: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def listening(self, on_typing: OnTyping, on_escape: Callable[[], object]) -> Iterator[None]:
        self._on_typing, self._on_escape, self._is_open = on_typing, on_escape, False
        with self._input.raw_mode(), self._input.attach(self._read_keys):
            _enable_signals()
            self._enable_bracketed_paste()
            try:
                yield
            finally:
                if self._flush is not None:
                    self._flush.cancel()
                self._output.disable_bracketed_paste()
                self._output.flush()
                store_typeahead(self._input, self._keys)
                self._keys = []

    def _read_keys(self) -> None:
        self._receive(self._input.read_keys())
        # Esc also starts escape sequences, so a lone Esc is recognized only when nothing follows it.
        if self._flush is not None:
            self._flush.cancel()
        self._flush = asyncio.get_running_loop().call_later(_ESCAPE_SECONDS, self._flush_keys)

    def _flush_keys(self) -> None:
        if not self._is_open:
            self._receive(self._input.flush_keys())

    def _receive(self, keys: Iterable[KeyPress]) -> None:
        keys = list(keys)
        if not self._is_open and any(press.key is Keys.Escape for press in keys):
            self._on_escape()
        self._keys += keys if self._is_open else itertools.dropwhile(lambda key: not _types_text(key), keys)
        if self._keys and not self._is_open and self._on_typing is not None:
            self._is_open = True
            self._on_typing(self._read)

    async def _read(self) -> str:
        store_typeahead(self._input, self._keys)
        self._keys = []
        try:
            return await self._line.prompt_async(self._message, handle_sigint=False)
        finally:
            self._enable_bracketed_paste()
            self._is_open = False
            self._receive(get_typeahead(self._input))  # what was typed after Enter begins the next line

    def _enable_bracketed_paste(self) -> None:
        self._output.enable_bracketed_paste()
        self._output.flush()


def _types_text(press: KeyPress) -> bool:
    """Whether a key opens an input line. Enter, arrows and spaces do not: users press them absentmindedly."""
    if isinstance(press.key, Keys):
        return press.key is Keys.BracketedPaste
    return press.key.isprintable() and not press.key.isspace()


def _enable_signals() -> None:
    """Make Ctrl-C a signal while no line is open; prompt_toolkit reads it as a key."""
    with contextlib.suppress(termios.error):
        attributes = termios.tcgetattr(sys.stdin.fileno())
        attributes[_LOCAL_FLAGS] |= termios.ISIG
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, attributes)
