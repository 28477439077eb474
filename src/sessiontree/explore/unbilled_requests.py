"""Requests that may have been in flight when a process died: their usage was never reported, but they may be billed.

A lane that ends with a prompt or a tool result was about to ask its model. The same holds for the sub-agents of its
open `task` calls. The size of the request is known, that of the answer is not: only the request counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from sessiontree.agent.limits import RunUsage
from sessiontree.branches.subagent_branches import subagent_at
from sessiontree.compaction import MEASURED
from sessiontree.compaction.token_estimate import estimated_size
from sessiontree.core.messages import Assistant, Usage
from sessiontree.errors import SessionTreeError
from sessiontree.explore.task_tool import TaskTool, find_sub_agent
from sessiontree.models import Model, cost_of
from sessiontree.session.pending_calls import open_calls
from sessiontree.session.session import Branch


class UnbilledRequest(Struct, frozen=True):
    model: str
    tokens: int


def find_unbilled(branch: Branch, model: str, home: str | None = None) -> list[UnbilledRequest]:
    """Requests of a lane and its sub-agents that may have been in flight. Blocking.

    `home` is where sub-agents have their sessions (see `TaskTool`).
    """
    return list(_iter_unbilled(branch, model, home))


def _iter_unbilled(branch: Branch, model: str, home: str | None) -> Iterator[UnbilledRequest]:
    messages = branch.context().messages
    calls = [call for call in open_calls(messages) if call.name == TaskTool.name]
    if messages and not isinstance(messages[-1], Assistant) and not open_calls(messages):
        yield UnbilledRequest(model, estimated_size(messages, MEASURED))
    for call in calls:
        with find_sub_agent(branch.session, branch.leaf, call.id, home) as sub_agent:
            if sub_agent is not None:
                record = subagent_at(sub_agent.branch.session, sub_agent.start)
                yield from _iter_unbilled(sub_agent.branch, record.model if record is not None else model, home)


def estimate_usage(requests: list[UnbilledRequest], overhead: int, find_model: Callable[[str], Model]) -> RunUsage:
    """Usage of some requests; `overhead` is the size of system prompt and tools in each."""
    spent = RunUsage()
    for request in requests:
        usage = Usage(request.tokens + overhead)
        with contextlib.suppress(SessionTreeError):  # a model that is gone has no price; its tokens count
            usage = msgspec.structs.replace(usage, cost=cost_of(usage, find_model(request.model).facts.prices))
        spent = spent.plus(usage)
    return spent
