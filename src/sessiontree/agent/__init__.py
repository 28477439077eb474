"""The parts of a coding agent that stand on the engine: tools, approval, checkpoints, MCP servers, and the run loop.

from sessiontree import agent

async for event in agent.run(session, "What is here?", model=model, tools=load_tools()):
    ...

loop        the run: ask, call, keep, ask again      events     what it tells
resuming    calls that were left without a result    spending   what it used, and limits
controller  what a person can do, for front ends     state      what front ends show
account     what one run uses, request by request    groups     commands that must not outlive the program
summarising who summarises, through the same gate    relief     when room has to be made

`explore` is `sessiontree.explore.explore`: several runs at once, each on a branch of its own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.agent.loop import Run, run
    from sessiontree.agent.pending import pending_calls, resolve_pending
    from sessiontree.explore.start import explore

# Imported when first used: who only wants a tool needs no run loop.
_HOME_OF = {
    "Run": "agent.loop",
    "explore": "explore.start",
    "pending_calls": "agent.pending",
    "resolve_pending": "agent.pending",
    "run": "agent.loop",
}

__all__ = ["Run", "explore", "pending_calls", "resolve_pending", "run"]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sessiontree.agent' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.{_HOME_OF[name]}"), name)
