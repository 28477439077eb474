"""The library's cached sessions: available immediately, in any thread, and updated by one background scan."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from sessiontree.library.summary import Summary

if TYPE_CHECKING:  # imported only by readers of changes: a listing has none
    from queue import SimpleQueue


class Change(Struct, frozen=True):
    """A session that was added, changed or removed."""

    kind: Literal["added", "changed", "removed"]
    summary: Summary
    """The session as it is now; of a removed one, as it was."""


_Queue: TypeAlias = "SimpleQueue[Change | Exception | None]"


class Changes(Iterator[Change]):
    """One reader's view of a background scan: what was known before, then each change. Ends with the scan."""

    def __init__(self, sessions: tuple[Summary, ...], queue: _Queue) -> None:
        self.sessions = sessions
        """The sessions that were known when this reader began; the changes are relative to them."""
        self._queue = queue
        self._is_over = False

    def __next__(self) -> Change:
        if self._is_over:
            raise StopIteration
        change = self._queue.get()
        if isinstance(change, Change):
            return change
        self._is_over = True
        raise change or StopIteration


class Snapshot:
    """The sessions that are known without reading the disk. All methods may be called from any thread."""

    def __init__(self, load: Callable[[], Sequence[Summary]], scan: Callable[[], None]) -> None:
        self._load = load
        self._scan = scan
        self._lock = threading.Lock()
        self._known: dict[str, Summary] | None = None
        self._sessions: tuple[Summary, ...] | None = None
        self._readers: list[_Queue] = []
        self._thread: threading.Thread | None = None

    @property
    def sessions(self) -> tuple[Summary, ...]:
        """Every session and sub-agent known so far, in no particular order."""
        with self._lock:
            return self._current()

    def find(self, ref: str) -> Summary | None:
        """A session by its reference."""
        with self._lock:
            return self._loaded().get(ref)

    def follow(self) -> Changes:
        """Report what a background scan changes. It is started unless one is running, which is then joined."""
        from queue import SimpleQueue

        with self._lock:
            queue: _Queue = SimpleQueue()
            changes = Changes(self._current(), queue)
            self._readers.append(queue)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="library scan", daemon=True)
                self._thread.start()
        return changes

    def join(self, seconds: float | None = None) -> None:
        """Wait until no background scan is running, for at most this long."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def report(self, summary: Summary) -> None:
        """Add a session that a scan has read."""
        with self._lock:
            if self._readers:
                self._change(summary)

    def settle(self, found: Sequence[Summary]) -> None:
        """Replace everything with the result of a complete scan."""
        with self._lock:
            if self._readers:
                for summary in found:
                    self._change(summary)
                known = self._loaded()
                for ref in known.keys() - {summary.ref for summary in found}:
                    self._send(Change("removed", known[ref]))
            self._known = {summary.ref: summary for summary in found}
            self._sessions = None

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            self._scan()
        except Exception as error:  # noqa: BLE001 - raised in the readers' threads
            failure = error
        with self._lock:
            self._thread = None
            readers, self._readers = self._readers, []
        for queue in readers:
            queue.put(failure)

    def _loaded(self) -> dict[str, Summary]:
        if self._known is None:
            self._known = {summary.ref: summary for summary in self._load()}
        return self._known

    def _current(self) -> tuple[Summary, ...]:
        if self._sessions is None:
            self._sessions = tuple(self._loaded().values())
        return self._sessions

    def _change(self, summary: Summary) -> None:
        known = self._loaded()
        before = known.get(summary.ref)
        if before == summary:
            return
        known[summary.ref] = summary
        self._sessions = None
        self._send(Change("added" if before is None else "changed", summary))

    def _send(self, change: Change) -> None:
        for queue in self._readers:
            queue.put(change)
