"""Questions on a terminal while lanes run. Keys typed between questions are discarded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import termios
from collections.abc import Iterator
from typing import TextIO

from sessiontree.chat.terminal import Screen

_LOCAL_FLAGS = 3
"""Index of the local flags in the result of `tcgetattr`."""
_MAX_ANSWER = 4096


class LanePrompts:
    """Asks one question at a time. Cancelling the task that asks withdraws the question."""

    def __init__(self, screen: Screen, source: TextIO) -> None:
        self._screen, self._fd = screen, source.fileno()
        self._encoding = source.encoding or "utf-8"
        self._waiting: asyncio.Future[bytes] | None = None

    async def ask(self, question: str) -> str:
        """Ask a question and return the typed line; `EOFError` at the end of input."""
        self._screen.end_line()
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        with self._echo(is_on=True):
            termios.tcflush(self._fd, termios.TCIFLUSH)  # keys typed before the question was visible are not its answer
            self._screen.write(f"{question} ")
            loop.add_reader(self._fd, self._read)
            try:
                line = await self._waiting
            except BaseException:
                self._screen.end_line()
                raise
            finally:
                loop.remove_reader(self._fd)
                self._waiting = None
        if not line:
            self._screen.end_line()
            raise EOFError
        self._screen.note_line_entered()
        return line.decode(self._encoding, "replace").rstrip("\r\n")

    def interrupt(self) -> bool:
        """Ctrl-C: cancel the open question; returns whether there was one."""
        if self._waiting is None or self._waiting.done():
            return False
        self._waiting.set_exception(KeyboardInterrupt())
        return True

    def _read(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            try:
                self._waiting.set_result(os.read(self._fd, _MAX_ANSWER))
            except OSError:  # the terminal is gone
                self._waiting.set_result(b"")

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Turn off echo while lanes run, so that typed keys do not appear in the table."""
        with self._echo(is_on=False):
            yield

    @contextlib.contextmanager
    def _echo(self, *, is_on: bool) -> Iterator[None]:
        before = termios.tcgetattr(self._fd)
        wanted = termios.tcgetattr(self._fd)
        wanted[_LOCAL_FLAGS] = wanted[_LOCAL_FLAGS] | termios.ECHO if is_on else wanted[_LOCAL_FLAGS] & ~termios.ECHO
        termios.tcsetattr(self._fd, termios.TCSANOW, wanted)
        try:
            yield
        finally:
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._fd, termios.TCSANOW, before)
