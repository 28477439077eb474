"""Requests that may have been under way when a process died: nobody will tell what they used, and they were paid for.

A lane that stands behind a prompt or its last result was about to ask its model; if its calls are open, its sub-agents
may have been. What was sent is known well enough, what came is not: such a request counts as one that was dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from sessiontree.agent.limits import RunUsage
from sessiontree.agent.pending import open_calls
from sessiontree.compaction import MEASURED
from sessiontree.compaction.token_estimate import estimated_size
from sessiontree.core.messages import Assistant, Usage
from sessiontree.errors import SessionTreeError
from sessiontree.explore.subagent_sessions import started_at
from sessiontree.explore.task_tool import TaskTool, find_sub_agent
from sessiontree.models import Model, cost_of
from sessiontree.session.session import Branch


class Sent(Struct, frozen=True):
    """A request that may have been made."""

    model: str
    tokens: int


def find_under_way(branch: Branch, model: str, home: str | None = None) -> list[Sent]:
    """The requests of a lane, and of its sub-agents, that may have been under way. For a thread.

    `home` is where sub-agents have their sessions (see `TaskTool`).
    """
    return list(_iter_under_way(branch, model, home))


def _iter_under_way(branch: Branch, model: str, home: str | None) -> Iterator[Sent]:
    messages = branch.context().messages
    calls = [call for call in open_calls(messages) if call.name == TaskTool.name]
    if messages and not isinstance(messages[-1], Assistant) and not open_calls(messages):
        yield Sent(model, estimated_size(messages, MEASURED))
    for call in calls:
        with find_sub_agent(branch.session, branch.leaf, call.id, home) as stood:
            if stood is not None:
                record = started_at(stood.branch.session, stood.start)
                yield from _iter_under_way(stood.branch, record.model if record is not None else model, home)


def spent_on(sent: list[Sent], around: int, find_model: Callable[[str], Model]) -> RunUsage:
    """What some requests used, as far as it is known; `around` is what each was sent beside the conversation."""
    spent = RunUsage()
    for one in sent:
        usage = Usage(one.tokens + around)
        with contextlib.suppress(SessionTreeError):  # a model that is no more has no price; its tokens count
            usage = msgspec.structs.replace(usage, cost=cost_of(usage, find_model(one.model).facts.prices))
        spent = spent.plus(usage)
    return spent
