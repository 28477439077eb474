"""The context of a growing branch: built once, then updated entry by entry.

Building a context takes time proportional to the session; adding one message does not. Changes that appending cannot
express cause a rebuild on the next read: a compaction, a context edit, a move, or a format with its own message
mapping.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, overload

from sessiontree.agent.approval import Approvals
from sessiontree.agent.async_bridge import in_thread, uncancelled
from sessiontree.compaction import MEASURED
from sessiontree.compaction.token_estimate import Size, context_size, estimated_size
from sessiontree.core.context import entry_messages
from sessiontree.core.entries import (
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
"""Up to this many missed entries are read one by one; for more, the context is rebuilt."""
_REBUILDING = (Compaction, ContextEdit, ResetBoundary)


class ListPrefix(Sequence[T], Generic[T]):
    """An O(1) snapshot of a list that only grows: its items at the time of creation."""

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
            return [self._items[index] for index in range(*at.indices(self._size))]
        if not -self._size <= at < self._size:
            raise IndexError(at)
        return self._items[at % self._size]

    def __iter__(self) -> Iterator[T]:
        return map(self._items.__getitem__, range(self._size))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ListPrefix) and other._items is self._items:
            return self._size == other._size
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash((id(self._items), self._size))

    def __repr__(self) -> str:
        return f"ListPrefix({list(self)!r})"


class LiveContext:
    """The messages of a branch, and their size in tokens. May be used from several threads."""

    def __init__(self, branch: Branch | Session) -> None:
        self._branch_ref = weakref.ref(branch)  # weak, as `_contexts` maps branches to these objects
        self._messages: list[Message] = []
        self._trusted_from = 0
        self._estimated: int | None = None
        self._leaf: str | None = None
        self._is_stale = True
        self._lock = threading.RLock()

    @property
    def _session(self) -> Session:
        branch = self._branch
        return branch if isinstance(branch, Session) else branch.session

    @property
    def _branch(self) -> Branch | Session:
        branch = self._branch_ref()
        if branch is None:
            raise ReferenceError("the branch of this context no longer exists")
        return branch

    @property
    def is_ready(self) -> bool:
        """Whether `messages` and `sizes` return without reading the session."""
        return not self._is_stale and self._estimated is not None and self._branch.leaf == self._leaf

    def add(self, entry: Entry) -> None:
        """Add an entry that was just appended to the branch."""
        with self._lock:
            if self._is_stale or entry.id == self._leaf:  # the next read includes it, or a concurrent one already has
                return
            if isinstance(entry, _REBUILDING) or not self._session.dialect.traits.one_line_per_entry:
                self._is_stale = True
            elif entry.parent_id == self._leaf:  # otherwise entries before it are missing too: the next read gets both
                self._add(entry)

    def _add(self, entry: Entry) -> None:
        for message in entry_messages(entry):
            self._messages.append(message)
            if isinstance(message, System):
                self._estimated = None
            elif self._estimated is not None:
                self._estimated += MEASURED(message)
        self._leaf = self._branch.leaf

    def invalidate(self) -> None:
        """Rebuild the context on the next read."""
        self._is_stale = True

    def messages(self) -> ListPrefix[Message]:
        """The current messages. May read the session, so call it in a thread unless `is_ready`."""
        with self._lock:
            branch = self._branch
            if not self._is_stale and branch.leaf != self._leaf:
                self._catch_up(branch.leaf)
            if self._is_stale:
                self._build(branch)
            return ListPrefix(self._messages)

    async def load(self) -> ListPrefix[Message]:
        """Like `messages`, without blocking the event loop; sizes are measured as well."""
        if self.is_ready:
            return self.messages()
        return await uncancelled(in_thread(self._read_and_measure))

    def _read_and_measure(self) -> ListPrefix[Message]:
        messages = self.messages()
        self.sizes()
        return messages

    def _build(self, branch: Branch | Session) -> None:
        leaf = branch.leaf
        context = branch.context()
        self._messages = list(context.messages)
        self._trusted_from = _trusted_from(self._session, context.path, context.sources)
        self._estimated = None
        self._leaf = leaf
        self._is_stale = False

    def _catch_up(self, leaf: str | None) -> None:
        """Read entries that were appended through the same branch without a call of `add`."""
        new: list[str] = []
        at = leaf
        while at is not None and at != self._leaf and len(new) < _CATCH_UP:
            new.append(at)
            at = self._session.parent(at)
        entries = self._session.entries(new[::-1]) if at == self._leaf else []
        rebuilds = not self._session.dialect.traits.one_line_per_entry or any(
            isinstance(entry, _REBUILDING) for entry in entries
        )
        if at != self._leaf or rebuilds:
            self._is_stale = True
            return
        for entry in entries:
            self._add(entry)
        self._leaf = leaf

    def sizes(self) -> tuple[int, int]:
        """Tokens of the context: the provider's count plus an estimate of the rest, and an estimate of everything.

        `should_compact` decides which of the two to trust; callers need it only where the two disagree.
        """
        with self._lock:
            if self._estimated is None:
                self._estimated = estimated_size(self._messages, MEASURED)
            return self.size().tokens, self._estimated

    def size(self) -> Size:
        """The provider's token count of the context, and an estimate of the rest."""
        with self._lock:
            return context_size(self._messages, self._trusted_from, MEASURED)


def _trusted_from(session: Session, path: Sequence[str], sources: Sequence[str]) -> int:
    """Index of the first message after the last entry that changed earlier messages: earlier counts are void."""
    types, node_of = session.journal.types, session.journal.tree.node_of
    kinds = [types[node_of[id]] for id in path]
    changed = max((at for at, kind in enumerate(kinds) if kind in ("compaction", "context_edit")), default=-1)
    after = set(path[changed + 1 :])
    return next((at for at, source in enumerate(sources) if source in after), len(sources))


_contexts: weakref.WeakKeyDictionary[Branch | Session, LiveContext] = weakref.WeakKeyDictionary()


def live_context_of(branch: Branch | Session) -> LiveContext:
    """The live context of a branch, shared by all runs on it."""
    found = _contexts.get(branch)
    if found is None:
        found = _contexts[branch] = LiveContext(branch)
    return found


class LiveApprovals(Approvals):
    """Approvals that read only new entries on each check, where the session's format allows it."""

    def _recorded(self) -> Config:
        session = self._session
        if not session.dialect.traits.one_line_per_entry:
            return session.config
        types = session.journal.types
        seen, config = _configs.get(session, (len(types) + 1, Config()))
        if len(types) < seen or "config" in types[seen:]:
            config = session.config
        if len(types) != seen:
            _configs[session] = (len(types), config)
        return config


_configs: weakref.WeakKeyDictionary[Session, tuple[int, Config]] = weakref.WeakKeyDictionary()
"""Session -> number of entries when its config was last read, and that config."""
