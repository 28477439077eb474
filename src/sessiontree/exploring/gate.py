"""What each request of a lane passes: is the lane still ours, what was sent to it, is there anything left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sessiontree.agent.spending import Spent
from sessiontree.exploring.lanes import Lane
from sessiontree.exploring.records import Paid

if TYPE_CHECKING:
    from sessiontree.exploring.run import Exploration

TAKEN_OVER = "another process works on it"


class LaneGate:
    """The gate of one lane: of its run, and of the sub-agents that work for it."""

    def __init__(self, exploration: Exploration, lane: Lane) -> None:
        self._exploration, self._lane = exploration, lane

    @property
    def counts_cost(self) -> bool:
        """Whether only models may be asked whose prices are known."""
        return self._exploration.plan.bounds.cost is not None

    async def enter(self, expected: Callable[[], Awaitable[Spent]]) -> str | None:
        exploration, lane = self._exploration, self._lane
        if not await exploration.still_holds(lane):
            return TAKEN_OVER
        assert lane.run is not None
        if not lane.run.is_calling:  # else it is a sub-agent that asks
            for hook in exploration.work.hooks:
                await hook.before_request(exploration, lane, lane.run)
        if not exploration.budget.is_counting:
            return exploration.budget.reached()
        return await exploration.budget.enter(lane.number, await expected())

    def leave(self, spent: Spent) -> None:
        self._lane.spent = self._lane.spent_with(spent)
        self._exploration.budget.leave(self._lane.number, self._lane.spent)

    async def note(self, what: str, spent: Spent) -> None:
        """Write down what was used, and counted, that no message of the session tells."""
        await self._exploration.write(self._lane, Paid(what, spent))
