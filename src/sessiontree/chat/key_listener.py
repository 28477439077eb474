"""Keys that are pressed while something is under way: nothing is echoed between the lines of an answer, and the first
key that writes something opens a line of its own.

Ctrl-C stays a signal meanwhile, so that it works whatever the program is busy with.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import termios
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPress
    from prompt_toolkit.output import Output

    from sessiontree.chat.line_editor import Began

_LOCAL_FLAGS = 3
"""The place of those flags in what `tcgetattr` gives."""


class Listening:
    """Hears keys between prompts. None is lost: what no line was opened for stands in the next prompt."""

    def __init__(self, input: Input, output: Output, line: PromptSession[str], message: str) -> None:
        self._input, self._output = input, output
        self._line, self._message = line, message
        self._heard: list[KeyPress] = []
        self._is_open = False
        self._began: Began | None = None

    @contextlib.contextmanager
    def on(self, began: Began) -> Iterator[None]:
        self._began, self._is_open = began, False
        with self._input.raw_mode(), self._input.attach(lambda: self._hear(self._input.read_keys())):
            _let_signals_through()
            self._ask_for_marked_pastes()
            try:
                yield
            finally:
                self._output.disable_bracketed_paste()
                self._output.flush()
                store_typeahead(self._input, self._heard)
                self._heard = []

    def _hear(self, keys: Iterable[KeyPress]) -> None:
        self._heard += keys if self._is_open else itertools.dropwhile(lambda one: not _writes(one), keys)
        if self._heard and not self._is_open and self._began is not None:
            self._is_open = True
            self._began(self._read)

    async def _read(self) -> str:
        store_typeahead(self._input, self._heard)
        self._heard = []
        try:
            return await self._line.prompt_async(self._message, handle_sigint=False)
        finally:
            self._ask_for_marked_pastes()
            self._is_open = False
            self._hear(get_typeahead(self._input))  # what came behind the return key begins the next line

    def _ask_for_marked_pastes(self) -> None:
        self._output.enable_bracketed_paste()
        self._output.flush()


def _writes(press: KeyPress) -> bool:
    """Whether a key begins a line. Return, arrows and blanks are pressed without thinking."""
    if isinstance(press.key, Keys):
        return press.key is Keys.BracketedPaste
    return press.key.isprintable() and not press.key.isspace()


def _let_signals_through() -> None:
    """The library takes Ctrl-C as a key; while no line is open, it shall be a signal."""
    with contextlib.suppress(termios.error):
        attributes = termios.tcgetattr(sys.stdin.fileno())
        attributes[_LOCAL_FLAGS] |= termios.ISIG
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, attributes)
