"""Explorations: several branches of one session that run in parallel.

from sessiontree import explore

async with explore.explore(session, prompts=[...], models=[...], tools=tools) as exploration:
    async for event in exploration:
        ...

start          options, hooks, new explorations    resumption         continue after the process ended
exploration    lanes in parallel                   lane_runner        one lane from start to end
lane           a lane and its branch               lane_table         tables for terminals
records        the entries that are written        state              explorations as recorded in a file
leases         which process runs a lane           budget             shared limits
request_gate   checks before each request          unbilled_requests  requests of a process that died
worktrees      git worktrees of lanes              cleanup            folders left by a crash
compare        results of lanes                    decisions          keep, merge, drop, leave
fork_rules     automatic forks                     check              check commands
lane_messages  messages between lanes              events             events of lanes
task_tool      sub-agents                          plan_parser        prompts, models and budgets
branch_labels  labels in trees of branches

`new_subagent_session` creates the sessions of sub-agents that do not work on a branch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.explore.events import LaneEvent
    from sessiontree.explore.exploration import Exploration
    from sessiontree.explore.lane import Job, Lane
    from sessiontree.explore.records import Bounds, Rule
    from sessiontree.explore.resumption import resume
    from sessiontree.explore.start import ExploreOptions, LaneHook, explore
    from sessiontree.explore.state import ExplorationState, explorations

# Imported on first use: reading the state of lanes does not need the agent loop.
_MODULES = {
    "Bounds": "records",
    "Exploration": "exploration",
    "ExplorationState": "state",
    "ExploreOptions": "start",
    "Job": "lane",
    "Lane": "lane",
    "LaneEvent": "events",
    "LaneHook": "start",
    "Rule": "records",
    "explorations": "state",
    "explore": "start",
    "resume": "resumption",
}

__all__ = [
    "Bounds",
    "Exploration",
    "ExplorationState",
    "ExploreOptions",
    "Job",
    "Lane",
    "LaneEvent",
    "LaneHook",
    "Rule",
    "explorations",
    "explore",
    "resume",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.explore' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.explore.{_MODULES[name]}"), name)
