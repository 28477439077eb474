"""What the events of a run mean for the state of the app: one place, for every front end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

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
from sessiontree.agent.live_context import live_of
from sessiontree.agent.pending import open_calls
from sessiontree.agent.state import State, Store, Task
from sessiontree.core.messages import Message, Usage
from sessiontree.core.usage import UsageTotals, valid_count
from sessiontree.session.session import Session

_TAIL = 4_000


def follow(store: Store[State], session: Session, event: Event) -> None:
    """Bring the state up to date with an event."""
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
            store.set(usage=plus(state.usage, event.usage))
        case ToolStart():
            store.set(tasks=(*state.tasks, Task(event.call)))
        case ToolUpdate():
            _change(store, event.call_id, lambda task: {"printed": (task.printed + event.text)[-_TAIL:]})
        case ApprovalAsked():
            _change(store, event.question.call_id, lambda _: {"is_asked": True})
        case ApprovalAnswered():
            _change(store, event.call_id, lambda _: {"is_asked": False})
            store.set(approved=session.config.approval_tools)
        case ToolEnd():
            store.set(tasks=tuple(task for task in state.tasks if task.call.id != event.call.id))
        case AgentEnd():
            messages = live_of(session).look()
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
    """The messages, unless they have to be read anew: then those that were, until the run has read them."""
    live = live_of(session)
    return live.look() if live.is_ready else state.messages


def _change(store: Store[State], call_id: str, change: Callable[[Task], dict[str, Any]]) -> None:
    tasks = store.get().tasks
    store.set(
        tasks=tuple(
            msgspec.structs.replace(task, **change(task)) if task.call.id == call_id else task for task in tasks
        )
    )


def plus(totals: UsageTotals, used: Usage) -> UsageTotals:
    """What a session used, with one more request."""
    return UsageTotals(
        totals.requests + 1,
        totals.input + valid_count(used.input),
        totals.output + valid_count(used.output),
        totals.cached + valid_count(used.cache_read),
        totals.cache_written + valid_count(used.cache_write),
        totals.cost + (valid_count(used.cost.total) if used.cost is not None else 0.0),
    )
