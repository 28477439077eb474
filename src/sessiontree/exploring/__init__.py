"""Several branches of one session at once.

from sessiontree import exploring

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
    from sessiontree.exploring.events import LaneEvent
    from sessiontree.exploring.lanes import Job, Lane
    from sessiontree.exploring.records import Bounds, Rule
    from sessiontree.exploring.resuming import resume
    from sessiontree.exploring.run import Exploration
    from sessiontree.exploring.starting import explore
    from sessiontree.exploring.told import Told, explorations
    from sessiontree.exploring.working import LaneHook

# Imported when first used: who only wants to read what is told of lanes needs no run loop.
_HOME_OF = {
    "Bounds": "records",
    "Exploration": "run",
    "Job": "lanes",
    "Lane": "lanes",
    "LaneEvent": "events",
    "LaneHook": "working",
    "Rule": "records",
    "Told": "told",
    "explorations": "told",
    "explore": "starting",
    "resume": "resuming",
}

__all__ = [
    "Bounds",
    "Exploration",
    "Job",
    "Lane",
    "LaneEvent",
    "LaneHook",
    "Rule",
    "Told",
    "explorations",
    "explore",
    "resume",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sessiontree.exploring' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.exploring.{_HOME_OF[name]}"), name)
