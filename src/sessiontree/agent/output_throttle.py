"""What a tool prints, on its way to whoever looks: soon, not more often than can be seen, and of much only the end.

A command can print faster than any screen shows, and whoever looks may be busy with a question. Nothing piles up then:
what was not told yet is kept to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

EVERY = 0.1
"""Seconds between two updates."""
MOST = 4_000
"""Characters that are kept, of which one update can tell."""


class Updates:
    """Of one call. All of it is for the thread of the event loop."""

    def __init__(self, tell: Callable[[str], object], may_tell: Callable[[], bool] = lambda: True) -> None:
        """`tell` is called with what is new; `may_tell` says whether the last of it has been taken."""
        self.tail = ""
        """The end of everything that was printed."""
        self._tell, self._may_tell = tell, may_tell
        self._untold = ""
        self._told_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def add(self, text: str) -> None:
        """Something was printed."""
        self.tail = (self.tail + text)[-MOST:]
        self._untold = (self._untold + text)[-MOST:]
        if self._timer is None and not self._is_closed:
            self._look()

    def _look(self) -> None:
        """Tell it now, or look again when it is time."""
        self._timer = None
        loop = asyncio.get_running_loop()
        wait = self._told_at + EVERY - loop.time()
        if wait > 0 or not self._may_tell():
            self._timer = loop.call_later(wait if wait > 0 else EVERY, self._look)
        else:
            self._told_at = loop.time()
            self.tell_rest()

    def close(self) -> None:
        """From now on nothing is told by itself: the call is over."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def tell_rest(self) -> None:
        """Tell what was not told yet."""
        text, self._untold = self._untold, ""
        if text:
            self._tell(text)
