"""What a person types while something is under way: it waits in a queue, and what would be shown waits for the person.

The run itself does not wait: it goes on behind the line that is being typed, and is shown when the line is entered. A
line that is entered with Ctrl-S does not wait for the end of the run, but only for the calls that are under way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from sessiontree.chat.line_editor import Read, Reader, Steering
from sessiontree.chat.terminal import DIM, Screen
from sessiontree.chat.user_prompts import Asking


class Ahead:
    """The queue of lines, and the line that is being typed."""

    def __init__(
        self,
        screen: Screen,
        reader: Reader,
        asking: Asking,
        interrupt: Callable[[], object],
        steer: Callable[[str], bool],
    ) -> None:
        self._screen, self._reader, self._asking = screen, reader, asking
        self._interrupt, self._steer = interrupt, steer
        self._lines: list[str] = []
        self._held: list[Callable[[], None]] = []
        self._is_typing = False
        self._task: asyncio.Task[None] | None = None

    def show(self, show: Callable[[], None]) -> None:
        """Show something; while a line is being typed, later."""
        if self._is_typing:
            self._held.append(show)
        else:
            show()

    @property
    def is_typing(self) -> bool:
        """Whether a line is being typed, so that nothing may be written."""
        return self._is_typing

    def next(self) -> str | None:
        """The line that has waited longest; None when none waits."""
        return self._lines.pop(0) if self._lines else None

    def take_back(self) -> str:
        """All lines that wait, as one text to be edited. The queue is empty then."""
        lines, self._lines = self._lines, []
        return "\n\n".join(lines)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """While something is under way. In the end, a line that is being typed is waited for."""
        with self._reader.listening(self._began):
            try:
                yield
                while self._task is not None:
                    await self._task
            finally:
                if self._task is not None:
                    self._task.cancel()
                    await asyncio.wait([self._task])

    def _began(self, read: Read) -> None:
        # The last one may just be about to end: then this one is waited for in its place.
        task = self._task = asyncio.create_task(self._take(read))
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None

    async def _take(self, read: Read) -> None:
        """Let a line be typed, when no question stands on the screen."""
        async with self._asking.alone():
            self._is_typing = True
            self._screen.end_line()
            try:
                self._queue(await read())
            except EOFError:
                pass
            except KeyboardInterrupt:
                self._add(self._reader.kept)
                self._reader.kept = ""
                self._interrupt()
            finally:
                self._is_typing = False
                self._show_held()

    def _queue(self, line: str) -> None:
        if isinstance(line, Steering) and line.strip() and self._steer(str(line)):
            self._screen.line("· it is said when the calls under way are done (Ctrl-C brings it back)", DIM)
        elif self._add(str(line)):
            self._screen.line("· queued: it is next (Ctrl-C brings it back to the input)", DIM)

    def _add(self, line: str) -> bool:
        if not line.strip():
            return False
        self._lines.append(line)
        return True

    def _show_held(self) -> None:
        held, self._held = self._held, []
        for show in held:
            show()
