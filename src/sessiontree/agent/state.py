"""The observable state of a running app, and how the events of a run change it.

`Store` holds one frozen value. Front ends subscribe to all of its fields or to some, and are called with the new and
the old value after a change. Fields that change together change in one `set`, so that no subscriber sees a session with
the branch of another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from sessiontree.agent.events import (
    AgentEnd,
    AgentStart,
    ApprovalAnswered,
    ApprovalAsked,
    Compacting,
    Event,
    Persisted,
    Retry,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolStart,
    ToolUpdate,
    Used,
)
from sessiontree.agent.live_context import LiveApprovals, live_context_of
from sessiontree.agent.tool_output import MAX_CHARACTERS
from sessiontree.branches.open_files import Writer
from sessiontree.core.entries import ApprovalMode
from sessiontree.core.messages import Message, ToolCall, Usage
from sessiontree.core.usage import UsageTotals, unpriced_totals, unpriced_usage, valid_count
from sessiontree.session.pending_calls import open_calls
from sessiontree.session.session import Session

StateT = TypeVar("StateT", bound=Struct)
Listener: TypeAlias = Callable[[StateT, StateT], object]
"""Called with the new and the old value."""


class Store(Generic[StateT]):
    """Holds a value and notifies listeners of changes. For use in one thread."""

    def __init__(self, value: StateT) -> None:
        self._value = value
        self._listeners: list[tuple[Listener[StateT], frozenset[str]]] = []
        self._changes: deque[tuple[StateT, StateT]] = deque()
        self._is_notifying = False

    def get(self) -> StateT:
        return self._value

    def set(self, **changes: Any) -> bool:
        """Change fields by name, in one step; returns whether any value differs. Listeners are called only then."""
        old = self._value
        new = msgspec.structs.replace(old, **changes)
        if all(_is_same(getattr(old, name), getattr(new, name)) for name in changes):
            return False
        self._value = new
        self._changes.append((new, old))
        self._notify()
        return True

    def update(self, change: Callable[[StateT], StateT]) -> bool:
        """Replace the value with the result of a function, atomically; returns whether any field differs."""
        new = change(self._value)
        return self.set(**{name: getattr(new, name) for name in new.__struct_fields__})

    def subscribe(self, listener: Listener[StateT], *names: str) -> Callable[[], None]:
        """Call a listener after each change, or only after changes of some fields; returns the function to stop it."""
        entry = (listener, frozenset(names))
        self._listeners.append(entry)

        def unsubscribe() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return unsubscribe

    def _notify(self) -> None:
        # A listener may call `set`: that change is queued, so that all listeners get changes in the same order.
        if self._is_notifying:
            return
        self._is_notifying = True
        try:
            while self._changes:
                new, old = self._changes.popleft()
                for listener, names in list(self._listeners):
                    if not names or not all(_is_same(getattr(old, name), getattr(new, name)) for name in names):
                        listener(new, old)
        finally:
            self._is_notifying = False


def _is_same(left: object, right: object) -> bool:
    return left is right or bool(left == right)


class Task(Struct, frozen=True):
    """A call in progress."""

    call: ToolCall
    printed: str = ""
    """The end of its output. Untrusted text."""
    is_asked: bool = False
    """Whether it waits for an approval."""


Source: TypeAlias = Literal["new", "resumed", "forked"]
ExpandedView: TypeAlias = Literal["none", "tasks", "lanes"]


class McpClient(Struct, frozen=True):
    """The connection to an MCP server."""

    name: str
    is_running: bool
    tools: tuple[str, ...] = ()
    """The names that models call its tools by."""
    problem: str = ""
    """Why it did not start."""


class State(Struct, frozen=True):
    """What a front end shows. Texts come from sessions and models: front ends must escape them."""

    session: Session | None = None
    source: Source = "new"
    """Where the session comes from: it was started, resumed, or forked or cloned from another one here."""
    leaf: str | None = None
    """The current entry."""
    title: str = ""
    description: str = ""
    """What the session is about, as recorded in its settings, if that is not the title."""
    messages: Sequence[Message] = ()
    model: str | None = None
    thinking: str | None = None
    mode: str = "none"
    """The mode of the last `mode_change` entry."""
    approval: ApprovalMode = "default"
    approved: tuple[str, ...] = ()
    """Tools approved for the rest of the session."""
    usage: UsageTotals = UsageTotals()
    is_running: bool = False
    tasks: tuple[Task, ...] = ()
    answer: str = ""
    """What has arrived of the answer in progress."""
    thought: str = ""
    queued: int = 0
    """Messages queued for the run in progress."""
    pending: tuple[ToolCall, ...] = ()
    """Calls of an earlier run that need a decision."""
    writers: tuple[Writer, ...] = ()
    """Other processes that have the session open for writing."""
    mcp: tuple[McpClient, ...] = ()
    """The MCP servers of the agent."""
    verbose: bool = False
    """Whether to show the complete output of tools."""
    status_line: str = ""
    """A line that programs built on the controller show the user."""
    expanded_view: ExpandedView = "none"
    """What is shown in detail; the front end decides how."""
    notice: str = ""
    """A problem outside the conversation."""
    input: str = ""
    """Typed but not sent. Preserved when the session or branch is switched."""


def apply_event(store: Store[State], session: Session, event: Event) -> None:
    """Update the state with an event of a run."""
    state = store.get()
    match event:
        case AgentStart():
            store.set(is_running=True, answer="", thought="", tasks=())
        case TextDelta():
            store.set(answer=state.answer + event.text)
        case ThinkingDelta():
            store.set(thought=state.thought + event.text)
        case Retry():
            store.set(answer="", thought="")
        case Persisted():
            store.set(messages=_messages(state, session), leaf=session.leaf, answer="", thought="")
        case Compacting() if event.stage == "end":
            store.set(messages=_messages(state, session), leaf=session.leaf)
        case Used():
            store.set(usage=_add_usage(state.usage, event.usage, (state.model or "").partition(":")[2]))
        case ToolStart():
            store.set(tasks=(*state.tasks, Task(event.call)))
        case ToolUpdate():
            _update_task(store, event.call_id, lambda task: {"printed": (task.printed + event.text)[-MAX_CHARACTERS:]})
        case ApprovalAsked():
            _update_task(store, event.question.call_id, lambda _: {"is_asked": True})
        case ApprovalAnswered():
            _update_task(store, event.call_id, lambda _: {"is_asked": False})
        case ToolEnd():
            # Not with the answer: an approval for the session is written after it, and before the call runs.
            tasks = tuple(task for task in state.tasks if task.call.id != event.call.id)
            store.set(tasks=tasks, approved=LiveApprovals(session).tools)
        case AgentEnd():
            messages = live_context_of(session).messages()
            store.set(
                is_running=False,
                tasks=(),
                answer="",
                thought="",
                leaf=session.leaf,
                messages=messages,
                pending=tuple(open_calls(messages)),
            )
        case _:
            pass


def _messages(state: State, session: Session) -> Sequence[Message]:
    # A read could take long and would block the event loop; the run itself loads the context before it continues.
    live = live_context_of(session)
    return live.messages() if live.is_ready else state.messages


def _update_task(store: Store[State], call_id: str, change: Callable[[Task], dict[str, Any]]) -> None:
    tasks = store.get().tasks
    store.set(
        tasks=tuple(
            msgspec.structs.replace(task, **change(task)) if task.call.id == call_id else task for task in tasks
        )
    )


def _add_usage(totals: UsageTotals, used: Usage, model: str) -> UsageTotals:
    return UsageTotals(
        totals.requests + 1,
        totals.input + valid_count(used.input),
        totals.output + valid_count(used.output),
        totals.cached + valid_count(used.cache_read),
        totals.cache_written + valid_count(used.cache_write),
        totals.cost + (valid_count(used.cost.total) if used.cost is not None else 0.0),
        totals.unpriced if used.cost is not None else unpriced_totals([*totals.unpriced, unpriced_usage(model, used)]),
    )
