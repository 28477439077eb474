"""The context of a branch while it grows: built once, then kept up entry by entry.

Building a context takes time that grows with the session; an appended message takes none. What cannot be kept up by
appending (a compaction, an edit of the context, a move, a format that tells its messages in its own way) makes the next
look build it anew.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, overload

from sessiontree.agent.approval import Approvals
from sessiontree.agent.branch_writer import in_thread, uncancelled
from sessiontree.compaction import MEASURED
from sessiontree.compaction.token_estimate import Size, context_size, estimated_size
from sessiontree.core.context import entry_messages
from sessiontree.core.entries import (
    ApprovalMode,
    Compaction,
    Config,
    ContextEdit,
    Entry,
    ResetBoundary,
)
from sessiontree.core.messages import Message, System
from sessiontree.session.session import Branch, Session

T = TypeVar("T")

_CATCH_UP = 1_000
"""So many entries behind the last look are read one by one; for more, the context is built anew."""
_REBUILDING = (Compaction, ContextEdit, ResetBoundary)


class Grown(Sequence[T], Generic[T]):
    """The beginning of a list that only grows: a snapshot that costs nothing."""

    def __init__(self, items: list[T]) -> None:
        self._items, self._size = items, len(items)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self._items[place] for place in range(*at.indices(self._size))]
        if not -self._size <= at < self._size:
            raise IndexError(at)
        return self._items[at % self._size]

    def __iter__(self) -> Iterator[T]:
        return map(self._items.__getitem__, range(self._size))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Grown) and other._items is self._items:
            return self._size == other._size
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash((id(self._items), self._size))

    def __repr__(self) -> str:
        return f"Grown({list(self)!r})"


class LiveContext:
    """The messages of a branch, and how large they are."""

    def __init__(self, place: Branch | Session) -> None:
        self._place = weakref.ref(place)  # who keeps these by their place must not keep the place
        self._messages: list[Message] = []
        self._trusted_from = 0
        self._estimated: int | None = None
        self._leaf: str | None = None
        self._is_stale = True
        self._lock = threading.RLock()

    @property
    def _session(self) -> Session:
        place = self._standing
        return place if isinstance(place, Session) else place.session

    @property
    def _standing(self) -> Branch | Session:
        place = self._place()
        if place is None:
            raise ReferenceError("the branch of this context is gone")
        return place

    @property
    def is_ready(self) -> bool:
        """Whether a look takes no time."""
        return not self._is_stale and self._estimated is not None and self._standing.leaf == self._leaf

    def hear(self, entry: Entry) -> None:
        """Take in an entry that was appended behind the leaf."""
        with self._lock:
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        if self._is_stale or entry.id == self._leaf:  # the next look will read it, or one has while it was written
            return
        if isinstance(entry, _REBUILDING) or not self._session.dialect.one_line_per_entry:
            self._is_stale = True
        elif entry.parent_id == self._leaf:  # else others wrote before it through the same branch: a look reads both
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        for message in entry_messages(entry):
            self._messages.append(message)
            if isinstance(message, System):
                self._estimated = None
            elif self._estimated is not None:
                self._estimated += MEASURED(message)
        self._leaf = self._standing.leaf

    def forget(self) -> None:
        """Build the context anew at the next look."""
        self._is_stale = True

    def look(self) -> Grown[Message]:
        """The messages as they are now. May take long when they have to be read; fit for a thread."""
        with self._lock:
            place = self._standing
            if not self._is_stale and place.leaf != self._leaf:
                self._catch_up(place.leaf)
            if self._is_stale:
                self._build(place)
            return Grown(self._messages)

    async def gather(self) -> Grown[Message]:
        """The same, measured as well, without holding up others while it is read."""
        if self.is_ready:
            return self.look()
        return await uncancelled(in_thread(self._look_and_measure))

    def _look_and_measure(self) -> Grown[Message]:
        found = self.look()
        self.sizes()
        return found

    def _build(self, place: Branch | Session) -> None:
        leaf = place.leaf
        context = place.context()
        self._messages = list(context.messages)
        self._trusted_from = _trusted_from(self._session, context.path, context.sources)
        self._estimated = None
        self._leaf = leaf
        self._is_stale = False

    def _catch_up(self, leaf: str | None) -> None:
        """Read what was appended by others through the same branch since the last look."""
        new: list[str] = []
        at = leaf
        while at is not None and at != self._leaf and len(new) < _CATCH_UP:
            new.append(at)
            at = self._session.parent(at)
        entries = self._session.entries(new[::-1]) if at == self._leaf else []
        changes = not self._session.dialect.one_line_per_entry or any(
            isinstance(entry, _REBUILDING) for entry in entries
        )
        if at != self._leaf or changes:
            self._is_stale = True
            return
        for entry in entries:
            self._add(entry)
        self._leaf = leaf

    def sizes(self) -> tuple[int, int]:
        """How many tokens the context has: what the provider counted with an estimate of the rest; an estimate of all.

        Which of the two is to be believed is said by `should_compact`; where both say the same it need not be asked.
        """
        with self._lock:
            if self._estimated is None:
                self._estimated = estimated_size(self._messages, MEASURED)
            return self.size().tokens, self._estimated

    def size(self) -> Size:
        """What the provider counted of the context, and an estimate of the rest."""
        with self._lock:
            return context_size(self._messages, self._trusted_from, MEASURED)


def _trusted_from(session: Session, path: Sequence[str], sources: Sequence[str]) -> int:
    """The first message behind the last entry that changed what is sent of those before it."""
    types, node_of = session.journal.types, session.journal.tree.node_of
    kinds = [types[node_of[id]] for id in path]
    changed = max((at for at, kind in enumerate(kinds) if kind in ("compaction", "context_edit")), default=-1)
    behind = set(path[changed + 1 :])
    return next((at for at, source in enumerate(sources) if source in behind), len(sources))


_lives: weakref.WeakKeyDictionary[Branch | Session, LiveContext] = weakref.WeakKeyDictionary()


def live_of(place: Branch | Session) -> LiveContext:
    """The live context of a branch, the same for every run on it."""
    found = _lives.get(place)
    if found is None:
        found = _lives[place] = LiveContext(place)
    return found


class LiveApprovals(Approvals):
    """Approvals that look only at what came since the last look, where the session's format allows it."""

    @property
    def mode(self) -> ApprovalMode:
        return self._now().approval_mode

    @property
    def tools(self) -> tuple[str, ...]:
        return self._now().approval_tools

    def _now(self) -> Config:
        session = self._session
        if not session.dialect.one_line_per_entry:
            return session.config
        types = session.journal.types
        seen, config = _configs.get(session, (len(types) + 1, Config()))
        if len(types) < seen or "config" in types[seen:]:
            config = session.config
        if len(types) != seen:
            _configs[session] = (len(types), config)
        return config


_configs: weakref.WeakKeyDictionary[Session, tuple[int, Config]] = weakref.WeakKeyDictionary()
"""The settings of sessions, and how many entries each had when it was looked at."""
