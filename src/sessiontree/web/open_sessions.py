"""Sessions that stay open between requests: a few, each used by one thread at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, TypeAlias

from sessiontree.app.workbench import Workbench
from sessiontree.core.layout import Layout
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.errors import NotFoundError
from sessiontree.library.summary import Summary
from sessiontree.session.session import Session
from sessiontree.stores.contract import WatchableRepository
from sessiontree.stores.repositories import find_ref, open_repository

_Key: TypeAlias = tuple[str, ReadOptions]
"""The reference of a session, and how it is read."""

MAX_OPEN = 12
MAX_BYTES = 400_000_000
"""Bytes of files that are kept open together; what is in memory is a small part of that."""


class OpenSession:
    """An open session, its lock, and what was computed about it."""

    def __init__(self, summary: Summary, session: Session, read_options: ReadOptions = AS_CLIENT) -> None:
        self.summary, self.session, self.read_options = summary, session, read_options
        self.lock = threading.RLock()
        self.stamp = session_stamp(summary)
        self.layout: tuple[int, Layout] | None = None
        self.cached: dict[str, tuple[object, object]] = {}
        """Results by name, each with the state of the session that it was computed for."""
        self.lasting: dict[str, Any] = {}
        """Objects that follow the session as it grows, by name."""
        self.users = 0

    @property
    def state(self) -> tuple[int, str | None]:
        """Changes with every entry and every move."""
        return self.session.journal.size, self.session.leaf


def session_stamp(summary: Summary) -> tuple[int, int, int] | None:
    """Identity, size and time of a session: of its file, or from its repository. None if it is gone. Blocking."""
    ref = find_ref(summary.ref)
    if ref.home:
        repository = open_repository(ref.home)
        stat = repository.stat(ref) if isinstance(repository, WatchableRepository) else None
        return None if stat is None else (stat.identity, stat.size, stat.changed)
    try:
        found = os.stat(summary.ref.partition("#")[0])
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class OpenSessions:
    """A cache of open sessions. The least recently used ones are closed first."""

    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench
        self._lock = threading.Lock()
        self._open: OrderedDict[_Key, OpenSession] = OrderedDict()

    @contextlib.contextmanager
    def use(self, summary: Summary, read_options: ReadOptions = AS_CLIENT) -> Iterator[OpenSession]:
        """The session with everything that was appended to it, for this thread only."""
        found = self._find(summary, read_options)
        try:
            with found.lock:
                self.refresh(found)
                yield found
        finally:
            with self._lock:
                found.users -= 1
                self._evict()

    def _find(self, summary: Summary, read_options: ReadOptions) -> OpenSession:
        key = (summary.ref, read_options)
        with self._lock:
            found = self._open.get(key)
            if found is not None:
                self._open.move_to_end(key)
                found.users += 1
                return found
        # Without the lock, as opening may take long. If two threads open the same session, the first one is kept.
        try:
            opened = OpenSession(summary, self._workbench.open_session(summary, read_options), read_options)
        except FileNotFoundError:
            raise NotFoundError(f"{summary.ref}: the session is gone; reload the list") from None
        with self._lock:
            found = self._open.setdefault(key, opened)
            found.users += 1
        if found is not opened:
            opened.session.close()
        return found

    def refresh(self, found: OpenSession) -> bool:
        """Read what was appended; one that was rewritten is opened again. Returns whether it was rewritten."""
        stamp = session_stamp(found.summary)
        if stamp == found.stamp:
            return False
        before, found.stamp = found.stamp, stamp
        if before is None or stamp is None or (stamp[0] == before[0] and stamp[1] >= before[1]):
            found.session.follow()
            return False
        old, found.session = found.session, self._workbench.open_session(found.summary, found.read_options)
        old.close()
        found.cached.clear()
        found.lasting.clear()
        return True

    def forget(self, ref: str) -> None:
        """Close a session whose file was changed or moved."""
        with self._lock:
            forgotten = [self._open.pop(key) for key in list(self._open) if key[0] == ref]
        for found in forgotten:
            with found.lock:
                found.session.close()

    def close(self) -> None:
        for ref, _ in list(self._open):
            self.forget(ref)

    def _evict(self) -> None:
        size = sum(found.stamp[1] for found in self._open.values() if found.stamp is not None)
        for key, found in list(self._open.items()):
            if len(self._open) <= MAX_OPEN and size <= MAX_BYTES:
                return
            if not found.users:
                del self._open[key]
                size -= found.stamp[1] if found.stamp is not None else 0
                found.session.close()
