"""Several branches of one session at once.

from sessiontree import explore

async with exploring.explore(session, prompts=[...], models=[...], tools=tools) as exploration:
    async for one in exploration:
        ...

starting   what is wanted, looked at first         resuming   going on after the process ended
run        lanes that grow side by side            events     what they tell
working    what lanes work with                    gate       what their requests pass
told       what the file says of explorations      records    what is written
leases     who works on a lane                     budget     what all of them may use together
holding    whether this process still may work     fitting, showing       tables of any width
leftovers  folders that a death has left           marks, marking         what trees of branches say
copies     working copies, by trees of git         comparing, deciding    what becomes of lanes
rules      forks by themselves                     talking, tasks         messages and sub-agents
linked     sub-agents in sessions of their own     interrupted            what a dead process had asked for
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.explore.events import LaneEvent
    from sessiontree.explore.exploration import Exploration
    from sessiontree.explore.lane import Job, Lane
    from sessiontree.explore.lane_hooks import LaneHook
    from sessiontree.explore.records import Bounds, Rule
    from sessiontree.explore.resumption import resume
    from sessiontree.explore.start import explore
    from sessiontree.explore.state import ExplorationState, explorations

# Imported when first used: who only wants to read what is told of lanes needs no run loop.
_HOME_OF = {
    "Bounds": "records",
    "Exploration": "exploration",
    "Job": "lane",
    "Lane": "lane",
    "LaneEvent": "events",
    "LaneHook": "lane_hooks",
    "Rule": "records",
    "ExplorationState": "state",
    "explorations": "state",
    "explore": "start",
    "resume": "resumption",
}

__all__ = [
    "Bounds",
    "Exploration",
    "ExplorationState",
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
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sessiontree.explore' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.explore.{_HOME_OF[name]}"), name)
