"""A coding agent on top of the engine: run loop, tools, approval, checkpoints, MCP servers.

from sessiontree import agent

async for event in agent.run(session, "What is here?", model=model, tools=load_tools()):
    ...

loop           requests, tool calls, next request    events           what a run reports
tool_calls     approval, checkpoint, run, result     limits           usage and its limits
controller     actions of a user, for front ends     state            what front ends show
request_meter  usage of one run, per request         auto_compaction  keeps the context within the window
checkpoints    file changes, and rewinding them      process          shell commands and their processes

`explore` is `sessiontree.explore.explore`: several runs in parallel, each on a separate branch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.agent.loop import Run, run
    from sessiontree.agent.tool_calls import pending_calls, resolve_pending
    from sessiontree.explore.start import explore

# Imported on first use: code that needs a single tool should not load the run loop.
_MODULES = {
    "Run": "agent.loop",
    "explore": "explore.start",
    "pending_calls": "agent.tool_calls",
    "resolve_pending": "agent.tool_calls",
    "run": "agent.loop",
}

__all__ = ["Run", "explore", "pending_calls", "resolve_pending", "run"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.agent' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.{_MODULES[name]}"), name)
