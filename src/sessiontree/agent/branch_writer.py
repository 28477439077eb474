"""The position that a run writes from: the caller's own branch, with one writer at a time.

Results of parallel calls, notes of checkpoints and the run itself all append behind the same leaf, from several
threads. `Branch` leaves it to its owner to do that one after the other; this is that owner.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sessiontree.core.context import Context
from sessiontree.core.entries import Entry
from sessiontree.errors import UsageError
from sessiontree.session.session import Branch, Session

T = TypeVar("T")


class SerializedBranch(Branch):
    """Writes through a branch, or where a session stands. After `close` it writes no more."""

    def __init__(self, place: Branch | Session, heard: Callable[[Entry], None] | None = None) -> None:
        self._place = place
        self._heard = heard
        self._lock = threading.Lock()
        self._is_closed = False
        self.session = place if isinstance(place, Session) else place.session

    @property
    def leaf(self) -> str | None:  # type: ignore[override]  # it is the place's own
        return self._place.leaf

    def append(self, what: Mapping[str, Any] | str | None = None, content: Any = None, /, **fields: Any) -> Entry:
        with self._lock:
            self._check()
            entry = self._place.append(what, content, **fields)
            if self._heard is not None:
                self._heard(entry)
            return entry

    def move(self, to: str | None) -> None:
        with self._lock:
            self._check()
            self._place.move(to)

    def context(self) -> Context:
        return self._place.context()

    def path(self) -> list[Entry]:
        return self._place.path()

    def close(self) -> None:
        """Let nothing more be written; what is being written is finished first."""
        with self._lock:
            self._is_closed = True

    def _check(self) -> None:
        if self._is_closed:
            raise UsageError(f"{self.session.location}: the run that wanted to write was interrupted")


SUMMARIES = 16
"""How many summaries are written at the same time."""

# Of our own: the threads of the event loop may all be waiting for commands that take long.
_workers = ThreadPoolExecutor(4, thread_name_prefix="session")
_summarisers = ThreadPoolExecutor(SUMMARIES, thread_name_prefix="summary")


def in_thread(function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Read or write a session without holding up everything else."""
    return asyncio.get_running_loop().run_in_executor(_workers, function, *arguments)


def in_background(function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """The same for what may ask a model: nobody who writes has to wait for it."""
    return asyncio.get_running_loop().run_in_executor(_summarisers, function, *arguments)


async def uncancelled(awaited: Awaitable[T]) -> T:
    """Wait to the end, also when the task is cancelled meanwhile: then it is cancelled afterwards.

    For what happens in a thread, which cannot be cancelled: nobody may go on before it is over.
    """
    inner = asyncio.ensure_future(awaited)
    cancelled: asyncio.CancelledError | None = None
    while not inner.done():
        try:
            await asyncio.wait([inner])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        inner.exception() if not inner.cancelled() else None
        raise cancelled
    return inner.result()


_abandoned: set[asyncio.Future[Any]] = set()
"""What goes on although nobody waits for it: without this, it could vanish in the midst."""


async def with_patience(awaited: Awaitable[T], seconds: float) -> T:
    """Wait for what others do, as a model: whoever is cancelled waits only so long until they have heard of it."""
    inner = asyncio.ensure_future(awaited)
    try:
        return await asyncio.shield(inner)
    except asyncio.CancelledError:
        if not inner.done():
            inner.cancel()
            await asyncio.wait([inner], timeout=seconds)
        if not inner.done():
            _abandoned.add(inner)
            inner.add_done_callback(_bury)
        raise


def _bury(inner: asyncio.Future[Any]) -> None:
    _abandoned.discard(inner)
    if not inner.cancelled():
        inner.exception()
