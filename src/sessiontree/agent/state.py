"""The state of a running app, in one place that can be watched.

`Store` holds one frozen value. Whoever wants to know subscribes, to all of it or to some of its fields, and is called
after a change with what is and what was. Setting what is already there changes nothing, and nobody is called. Several
fields that change together change in one `set`: nobody ever sees a session with the branch of another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from sessiontree.branches.open_files import Writer
from sessiontree.core.entries import ApprovalMode
from sessiontree.core.messages import Message, ToolCall
from sessiontree.core.usage import UsageTotals
from sessiontree.session.session import Session

StateT = TypeVar("StateT", bound=Struct)
Listener: TypeAlias = Callable[[StateT, StateT], object]
"""Called with the value as it is, and as it was."""


class Store(Generic[StateT]):
    """Holds a value and tells of its changes. For one thread."""

    def __init__(self, value: StateT) -> None:
        self._value = value
        self._listeners: list[tuple[Listener[StateT], frozenset[str]]] = []
        self._changes: deque[tuple[StateT, StateT]] = deque()
        self._is_telling = False

    def get(self) -> StateT:
        return self._value

    def set(self, **changes: Any) -> bool:
        """Change fields by their names, all at once; whether that changed anything."""
        old = self._value
        new = msgspec.structs.replace(old, **changes)
        if all(_is_same(getattr(old, name), getattr(new, name)) for name in changes):
            return False
        self._value = new
        self._changes.append((new, old))
        self._tell()
        return True

    def subscribe(self, listener: Listener[StateT], *names: str) -> Callable[[], None]:
        """Call a listener after each change, or only after changes of some fields. Gives a function that ends it."""
        entry = (listener, frozenset(names))
        self._listeners.append(entry)

        def end() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return end

    def _tell(self) -> None:
        """Tell of the changes in their order: one that a listener makes is told after the one it heard of."""
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._changes:
                new, old = self._changes.popleft()
                for listener, names in list(self._listeners):
                    if not names or not all(_is_same(getattr(old, name), getattr(new, name)) for name in names):
                        listener(new, old)
        finally:
            self._is_telling = False


def _is_same(one: object, other: object) -> bool:
    return one is other or bool(one == other)


class Task(Struct, frozen=True):
    """A call that is under way."""

    call: ToolCall
    printed: str = ""
    """The last that it printed. Untrusted text."""
    is_asked: bool = False
    """Whether a person is being asked about it."""


class State(Struct, frozen=True):
    """What a front end shows. Texts in it come from sessions and models: to be escaped by who shows them."""

    session: Session | None = None
    leaf: str | None = None
    """Where the session stands: the branch."""
    title: str = ""
    messages: Sequence[Message] = ()
    model: str | None = None
    thinking: str | None = None
    mode: str = "none"
    """What the last change of mode says."""
    approval: ApprovalMode = "default"
    approved: tuple[str, ...] = ()
    """Tools that are approved for the rest of the session."""
    usage: UsageTotals = UsageTotals()
    is_running: bool = False
    tasks: tuple[Task, ...] = ()
    answer: str = ""
    """What has come of the answer that is under way."""
    thought: str = ""
    queued: int = 0
    """Prompts that wait to be said."""
    pending: tuple[ToolCall, ...] = ()
    """Calls of an earlier run that wait for a decision."""
    writers: tuple[Writer, ...] = ()
    """Other processes that have the session open for writing."""
    notice: str = ""
    """Something that went wrong beside the conversation."""
    input: str = ""
    """What is typed and not sent. No switch of session or branch takes it away."""
