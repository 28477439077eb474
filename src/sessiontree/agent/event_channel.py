"""Events on their way from a run to whoever looks at it: one at a time.

A run does not get ahead of the one who looks: `send` returns when its event was taken. So a screen that cannot keep up
slows a run down instead of falling behind, and whoever interrupts interrupts what is seen.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

EventT = TypeVar("EventT")


class Channel(Generic[EventT]):
    """For several senders and one taker, all in one event loop. So many events may wait while senders go on."""

    def __init__(self, room: int = 0) -> None:
        self._room = room
        self._events: deque[EventT] = deque()
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()
        self._is_ended = self._is_loose = False

    async def send(self, event: EventT) -> None:
        """Hand over an event, and wait until it and those before it were taken, but for as many as may wait."""
        self.push(event)
        await self.taken()

    async def taken(self) -> None:
        """Wait until everything that was handed over was taken, but for as many as may wait."""
        while len(self._events) > self._room and not self._is_loose:
            self._taken.clear()
            await self._taken.wait()

    def push(self, event: EventT) -> None:
        """Hand over an event without waiting."""
        self._events.append(event)
        self._arrived.set()

    @property
    def is_empty(self) -> bool:
        """Whether everything was taken."""
        return not self._events

    def loosen(self) -> None:
        """From now on nobody waits to be taken from: the run is being ended."""
        self._is_loose = True
        self._taken.set()

    def end(self) -> None:
        """No more events come."""
        self._is_ended = True
        self._arrived.set()

    async def next(self) -> EventT | None:
        """The next event; None when no more come."""
        while not self._events:
            if self._is_ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        if len(self._events) <= self._room:
            self._taken.set()
        return event
