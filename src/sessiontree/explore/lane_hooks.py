"""How lanes work, whatever they work on: their tools, who approves what they do, and who takes part in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from sessiontree.agent.approval import Approver
from sessiontree.agent.events import Event
from sessiontree.agent.loop import Run
from sessiontree.agent.pending import Decision
from sessiontree.agent.tools.base import Tool
from sessiontree.agent.tools.registry import Tools
from sessiontree.compaction import Summarizer
from sessiontree.explore.lane import Job, Lane
from sessiontree.explore.leases import GOOD_FOR
from sessiontree.explore.worktrees import Copies
from sessiontree.models import ThinkingLevel
from sessiontree.settings import Settings

if TYPE_CHECKING:
    from sessiontree.explore.exploration import Exploration

ToolsFor: TypeAlias = "Callable[[Lane], Tools] | Tools"
SystemFor: TypeAlias = "Callable[[str], str] | str | None"
"""What a model is told before the conversation; a function is given the folder that the lane works in."""


class LaneHook(Protocol):
    """What takes part in lanes without the core knowing it: rules that fork, messages between lanes.

    Contract: all of it is called in the event loop and must not hold it up. What one raises ends the lane as failed.
    """

    def tools(self, exploration: Exploration, lane: Lane) -> Sequence[Tool]:
        """More tools for this lane."""
        ...

    async def before_request(self, exploration: Exploration, lane: Lane, run: Run) -> None:
        """The lane is about to ask its model; nothing else is writing to it. What is appended through its branch now
        is part of the request."""
        ...

    async def heard(self, exploration: Exploration, lane: Lane, event: Event) -> None:
        """Each event of its run, before anyone else sees it."""
        ...

    async def ended(self, exploration: Exploration, lane: Lane) -> Sequence[Job]:
        """Its run is over, and its end is in the file: what more lanes are wanted."""
        ...


class Work(Struct, frozen=True):
    """How lanes work, whatever they work on."""

    tools: ToolsFor
    approver_for: Callable[[Lane], Approver] | None = None
    settings: Settings | None = None
    system: SystemFor = None
    thinking: ThinkingLevel | None = None
    copies: Copies | None = None
    hooks: tuple[LaneHook, ...] = ()
    summarizer: Summarizer | None = None
    pending: Decision | None = None
    """What becomes of calls that an earlier run left without a result."""
    keep_worktrees: bool = False
    """Whether the folders of lanes stay when they have ended."""
    good_for: float = GOOD_FOR
    """Seconds without a sign of life after which others may take a lane over."""
