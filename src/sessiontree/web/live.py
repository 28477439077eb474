"""Sessions and the library as they grow on disk, as server-sent events for any number of clients.

One watcher per session reads what any program appends; clients wait for it. A client has a position in the journal and
no queue: it gets every entry once and in order, however slow it is, and costs no memory while it waits. After a break
it continues where it stopped (`Last-Event-ID`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from sessiontree.errors import SessionTreeError
from sessiontree.library.summary import Summary
from sessiontree.web.open_sessions import session_stamp
from sessiontree.web.site import Site

POLL_SECONDS = 0.25
STORED_POLL_SECONDS = 1.0
"""For sessions in a database, where each poll is a query."""
SCAN_SECONDS = 3.0
SCAN_SHARE = 0.05
"""Part of the time that scans of the library may take while a list is open."""
MAX_STREAMS = 256
KEEP_ALIVE = 20.0
_SHOW_SECONDS = 1.0
_BATCH = 500


class Signal:
    """Wakes all waiting tasks."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.count = 0
        """How often it was fired."""

    def fire(self) -> None:
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()  # for the tasks that wait from now on

    async def wait(self, seconds: float, seen: int | None = None) -> bool:
        """Wait for the next `fire`, or for one after the first `seen`; False if it does not come in time."""
        event = self._event
        if seen is not None and seen != self.count:
            return True
        try:
            await asyncio.wait_for(event.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Watcher:
    """Follows one session while clients are connected."""

    def __init__(self, site: Site, summary: Summary) -> None:
        self._site, self._summary = site, summary
        self.signal = Signal()
        self.ready = asyncio.Event()
        """Set once the session was read: only then can a client's position be checked."""
        self.clients = 0
        self.epoch = 0
        """Counts how often the file was rewritten, which voids all positions."""
        self.leaf: str | None = None
        self.error = ""
        self._entries: list[dict[str, Any]] = []
        """The newest entries; older ones are read again for a client that asks for them."""
        self.count = 0
        self._offset = 0

    async def run(self) -> None:
        """Read the session, then poll its file or its repository. A change is read in a thread."""
        stamp = await self._find_stamp()  # first, so that a change during the read is noticed
        await run_in_threadpool(self._read)
        self.ready.set()
        while self.clients:
            await asyncio.sleep(POLL_SECONDS if self._summary.is_file else STORED_POLL_SECONDS)
            now = await self._find_stamp()
            if now == stamp:
                continue
            stamp = now
            await run_in_threadpool(self._read)
            self.signal.fire()

    async def _find_stamp(self) -> tuple[int, int, int] | None:
        if self._summary.is_file:
            return session_stamp(self._summary)
        with contextlib.suppress(SessionTreeError):  # a database that cannot be reached now is asked again
            return await run_in_threadpool(session_stamp, self._summary)
        return None

    def _read(self) -> None:
        try:
            with self._site.sessions.use(self._summary) as opened:
                session = opened.session
                total = len(session)
                if total < self.count:
                    self.epoch += 1
                    self._entries, self.count, self._offset = [], 0, 0
                first = self.count if self.count else max(0, total - _BATCH)
                self._entries = [*self._entries, *(self._fields(session, node) for node in range(first, total))][
                    -_BATCH:
                ]
                self.count, self._offset = total, total - len(self._entries)
                self.leaf = session.leaf
                self.error = ""
        except (SessionTreeError, OSError) as error:
            self.error = str(error)

    def _fields(self, session: Any, node: int) -> dict[str, Any]:
        tree = session.journal.tree
        parent = tree.parent(node)
        return {
            "node": node,
            "id": tree.ids[node],
            "parent": None if parent is None else tree.ids[parent],
            "type": session.journal.types[node],
        }

    async def entries_from(self, node: int) -> list[dict[str, Any]]:
        """Entries from a position on, at most a batch."""
        if node >= self._offset:
            return self._entries[node - self._offset : node - self._offset + _BATCH]

        def read() -> list[dict[str, Any]]:
            with self._site.sessions.use(self._summary) as opened:
                end = min(len(opened.session), node + _BATCH)
                return [self._fields(opened.session, each) for each in range(node, end)]

        return await run_in_threadpool(read)


class Live:
    """Streams of events."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._watchers: dict[str, Watcher] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams = 0
        self.library_signal = Signal()
        self._list_clients = 0
        self._scanner: asyncio.Task[None] | None = None
        self.is_closing = False

    def stop(self) -> None:
        """End all streams, so that the server can end."""
        self.is_closing = True
        self.library_signal.fire()
        for watcher in self._watchers.values():
            watcher.signal.fire()

    async def session_events(self, request: Request) -> Response:
        """Entries from a position on (`from`, or `Last-Event-ID`), then each new one."""
        summary = self._site.summary_of(request)
        asked = request.headers.get("last-event-id") or request.query_params.get("from", "")
        return self.stream(lambda: self._session_stream(summary, asked))

    async def library_events(self, _request: Request) -> Response:
        """An event whenever sessions were added, changed or removed."""
        return self.stream(self._library_stream)

    def stream(self, events: Callable[[], AsyncIterator[str]]) -> Response:
        """A response of server-sent events, as long as there are not too many."""
        if self._streams >= MAX_STREAMS:
            return PlainTextResponse("too many open streams; close some pages\n", 503)

        async def counted() -> AsyncIterator[str]:
            self._streams += 1
            try:
                async for event in events():
                    yield event
            finally:
                self._streams -= 1

        return StreamingResponse(counted(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def _session_stream(self, summary: Summary, asked: str) -> AsyncIterator[str]:
        async with self.watching(summary) as watcher:
            async for event in self._follow(watcher, asked):
                yield event

    @contextlib.asynccontextmanager
    async def watching(self, summary: Summary) -> AsyncIterator[Watcher]:
        """The watcher of a session, which all clients share. It ends with its last client."""
        watcher = self._watchers.get(summary.ref)
        if watcher is None:
            watcher = self._watchers[summary.ref] = Watcher(self._site, summary)
            self._spawn(self._watch(summary.ref, watcher))
        watcher.clients += 1
        try:
            await watcher.ready.wait()
            yield watcher
        finally:
            watcher.clients -= 1

    def fire(self, ref: str) -> None:
        """Wake the clients of a session after a change that is not in its file."""
        if ref in self._watchers:
            self._watchers[ref].signal.fire()

    async def _follow(self, watcher: Watcher, asked: str) -> AsyncIterator[str]:
        """The events of one client."""
        position = _position(asked, watcher)
        epoch, leaf, error = watcher.epoch, watcher.leaf, ""
        yield event_text("hello", {"count": watcher.count, "leaf": leaf})
        while not self.is_closing:
            seen = watcher.signal.count  # read first, so that a change during the `yield`s below is not missed
            if watcher.epoch != epoch:
                yield event_text("rewritten", {})
                epoch, position = watcher.epoch, watcher.count
            while position < watcher.count:
                entries = await watcher.entries_from(position)
                if not entries:
                    break
                yield "".join(event_text("entry", fields, f"{epoch}-{fields['node'] + 1}") for fields in entries)
                position += len(entries)
            if watcher.leaf != leaf:
                leaf = watcher.leaf
                yield event_text("leaf", {"leaf": leaf})
            if watcher.error != error:
                error = watcher.error
                yield event_text("problem", {"message": error})
            if not await watcher.signal.wait(KEEP_ALIVE, seen):
                yield ": alive\n\n"

    async def _watch(self, ref: str, watcher: Watcher) -> None:
        try:
            await watcher.run()
        finally:
            if self._watchers.get(ref) is watcher:
                del self._watchers[ref]

    async def _library_stream(self) -> AsyncIterator[str]:
        self._list_clients += 1
        if self._scanner is None:
            self._scanner = self._spawn(self._scan())
        seen = self.library_signal.count
        try:
            yield event_text("hello", {})
            while not self.is_closing:
                changed = await self.library_signal.wait(KEEP_ALIVE, seen)
                seen = self.library_signal.count
                yield event_text("library", {"sessions": len(self._site.known())}) if changed else ": alive\n\n"
        finally:
            self._list_clients -= 1

    def start(self) -> None:
        """Scan the library for the first time."""
        self._scanner = self._spawn(self._scan())

    async def _scan(self) -> None:
        """Scan the library from time to time while a list is open, and at least once."""
        is_first = True
        marks = await run_in_threadpool(self._site.tags)
        while is_first or self._list_clients:
            before, marked, started = self._site.known(), marks, time.monotonic()
            scan = asyncio.ensure_future(run_in_threadpool(self._read_library))
            while not (await asyncio.wait([scan], timeout=_SHOW_SECONDS))[0]:
                self.library_signal.fire()  # a first scan of many sessions is shown while it runs
            marks = await run_in_threadpool(self._site.tags)  # another program may have changed tags and pins
            if self._site.known() is not before or marks != marked:
                self.library_signal.fire()
            is_first = False
            await asyncio.sleep(max(SCAN_SECONDS, (time.monotonic() - started) / SCAN_SHARE))
        self._scanner = None

    def _read_library(self) -> None:
        with contextlib.suppress(SessionTreeError, OSError):  # the next scan may succeed; the list stays as it was
            for _ in self._site.workbench.library.snapshot().follow():
                pass

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _position(asked: str, watcher: Watcher) -> int:
    """The first entry that a client has not seen: `epoch-number`, or a number; by default the next one."""
    text = asked.rpartition("-")[2]
    return min(int(text), watcher.count) if text.isdecimal() and len(text) < 12 else watcher.count


def event_text(name: str, fields: dict[str, Any], id: str | None = None) -> str:
    """A server-sent event."""
    line = f"id: {id}\n" if id is not None else ""
    return f"event: {name}\n{line}data: {json.dumps(fields)}\n\n"
