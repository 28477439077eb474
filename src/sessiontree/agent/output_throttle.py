"""Limits the rate and size of output updates from a running command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

INTERVAL = 0.1
"""Seconds between two updates."""
MAX_CHARACTERS = 4_000
"""Of unsent output, at most this much is kept: its end."""


class Clock(Protocol):
    """The part of an event loop that the throttle needs."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> asyncio.TimerHandle: ...


class OutputThrottle:
    """Throttles the output of one call. To be used in the thread of the event loop.

    A command can print faster than a screen can draw, and the consumer may be waiting for the user. Output does not
    pile up: only the end of what was not sent yet is kept.
    """

    def __init__(
        self,
        emit: Callable[[str], object],
        is_ready: Callable[[], bool] = lambda: True,
        clock: Clock | None = None,
    ) -> None:
        """`emit` receives new output; `is_ready` returns whether the last update was consumed.

        `clock` is the running event loop by default.
        """
        self.tail = ""
        """The end of all output."""
        self._emit, self._is_ready, self._clock = emit, is_ready, clock
        self._unsent = ""
        self._sent_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def add(self, text: str) -> None:
        """Add output; it is emitted now or when the interval is over."""
        self.tail = (self.tail + text)[-MAX_CHARACTERS:]
        self._unsent = (self._unsent + text)[-MAX_CHARACTERS:]
        if self._timer is None and not self._is_closed:
            self._emit_or_wait()

    def _emit_or_wait(self) -> None:
        self._timer = None
        clock: Clock = self._clock if self._clock is not None else asyncio.get_running_loop()
        wait = 0.0 if self._sent_at is None else self._sent_at + INTERVAL - clock.time()
        if wait > 0 or not self._is_ready():
            self._timer = clock.call_later(wait if wait > 0 else INTERVAL, self._emit_or_wait)
        else:
            self._sent_at = clock.time()
            self.flush()

    def close(self) -> None:
        """Emit nothing more on a timer: the call is over."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def flush(self) -> None:
        """Emit what was not emitted yet."""
        text, self._unsent = self._unsent, ""
        if text:
            self._emit(text)
