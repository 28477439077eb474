"""A queue with backpressure between a run and its consumer.

`send` returns when the consumer has taken the event. So a slow screen slows the run down instead of lagging behind it,
and an interrupt applies to what the user sees.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

EventT = TypeVar("EventT")


class EventChannel(Generic[EventT]):
    """Several senders, one consumer, all in one event loop. Up to `capacity` events may wait without blocking."""

    def __init__(self, capacity: int = 0) -> None:
        self._capacity = capacity
        self._events: deque[EventT] = deque()
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()
        self._is_closed = self._is_unblocked = False

    async def send(self, event: EventT) -> None:
        """Push an event and wait until the queue is down to its capacity."""
        self.push(event)
        await self.drained()

    async def drained(self) -> None:
        """Wait until the queue is down to its capacity."""
        while len(self._events) > self._capacity and not self._is_unblocked:
            self._taken.clear()
            await self._taken.wait()

    def push(self, event: EventT) -> None:
        """Add an event without waiting."""
        self._events.append(event)
        self._arrived.set()

    @property
    def is_empty(self) -> bool:
        return not self._events

    def unblock(self) -> None:
        """Turn backpressure off: the run is ending, and must not wait for a consumer that may be gone."""
        self._is_unblocked = True
        self._taken.set()

    def end(self) -> None:
        """Make `next` return None once all events are taken."""
        self._is_closed = True
        self._arrived.set()

    async def next(self) -> EventT | None:
        """The next event; None after the last."""
        while not self._events:
            if self._is_closed:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        if len(self._events) <= self._capacity:
            self._taken.set()
        return event
