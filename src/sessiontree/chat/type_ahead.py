"""Queue what the user types during a run; output waits while a line is being typed.

The run itself does not wait: its output is shown when the line is entered. A line that is entered with Ctrl-S is sent
to the run as soon as the current calls are done, instead of after its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from sessiontree.chat.line_editor import Read, Reader, SteeringLine
from sessiontree.chat.styles import DIM
from sessiontree.chat.terminal import Screen
from sessiontree.chat.user_prompts import ApprovalPrompts


class TypeAhead:
    """The queue of lines and the line being typed."""

    def __init__(
        self,
        screen: Screen,
        reader: Reader,
        prompts: ApprovalPrompts,
        interrupt: Callable[[], object],
        steer: Callable[[str], bool],
    ) -> None:
        self._screen, self._reader, self._prompts = screen, reader, prompts
        self._interrupt, self._steer = interrupt, steer
        self._lines: list[str] = []
        self._held: list[Callable[[], None]] = []
        self._is_typing = False
        self._task: asyncio.Task[None] | None = None

    def show(self, show: Callable[[], None]) -> None:
        """Call `show` now or, if a line is being typed, afterwards."""
        if self._is_typing:
            self._held.append(show)
        else:
            show()

    @property
    def is_typing(self) -> bool:
        """Whether a line is being typed, so that nothing may be printed."""
        return self._is_typing

    def next(self) -> str | None:
        """Remove and return the oldest line; None if the queue is empty."""
        return self._lines.pop(0) if self._lines else None

    def take_back(self) -> str:
        """Remove all lines and return them as one text for editing."""
        lines, self._lines = self._lines, []
        return "\n\n".join(lines)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Accept type-ahead during a run; waits at the end for a line that is being typed."""
        with self._reader.listening(self._start, self._interrupt):
            try:
                yield
                while self._task is not None:
                    await self._task
            finally:
                if self._task is not None:
                    self._task.cancel()
                    await asyncio.wait([self._task])

    def _start(self, read: Read) -> None:
        # The previous task may be about to end; `listening` then waits for this one.
        task = self._task = asyncio.create_task(self._read_line(read))
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None

    async def _read_line(self, read: Read) -> None:
        """Read a line, unless a question is on the screen."""
        async with self._prompts.input_lock():
            self._is_typing = True
            self._screen.end_line()
            try:
                self._queue(await read())
            except EOFError:
                pass
            except KeyboardInterrupt:
                # Queued first: the interrupt returns all queued lines to the input, this one included.
                self._add(self._reader.draft)
                self._reader.draft = ""
                self._interrupt()
            finally:
                self._is_typing = False
                self._flush()

    def _queue(self, line: str) -> None:
        if isinstance(line, SteeringLine) and line.strip() and self._steer(str(line)):
            self._screen.line("· will be sent when the current calls are done (Ctrl-C takes it back)", DIM)
        elif self._add(str(line)):
            self._screen.line("· queued (Ctrl-C puts it back into the input)", DIM)

    def _add(self, line: str) -> bool:
        if not line.strip():
            return False
        self._lines.append(line)
        return True

    def _flush(self) -> None:
        held, self._held = self._held, []
        for show in held:
            show()
