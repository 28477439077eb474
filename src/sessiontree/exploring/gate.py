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
        return self._exploration.plan.bounds.cost is not None

    async def before_turn(self) -> None:
        exploration, lane = self._exploration, self._lane
        assert lane.run is not None
        if await exploration.still_holds(lane):
            for hook in exploration.work.hooks:
                await hook.before_request(exploration, lane, lane.run)

    async def enter(self, expected: Callable[[], Awaitable[Spent]]) -> str | None:
        exploration = self._exploration
        if not await exploration.still_holds(self._lane):
            return TAKEN_OVER
        if not exploration.budget.is_counting:
            return exploration.budget.reached()
        return await exploration.budget.enter(self._lane.number, await expected())

    def leave(self, spent: Spent) -> None:
        self._lane.spent = self._lane.spent_with(spent)
        self._exploration.budget.leave(self._lane.number, self._lane.spent)

    async def note(self, what: str, spent: Spent) -> None:
        """Write down what was used, and counted, that no message of the session tells."""
        await self._exploration.write(self._lane, Paid(what, spent))


class AsideGate(LaneGate):
    """The gate for what is asked about a lane when its run is over, as an opinion on it.

    What a request may use at most is written down before it is made: no entry of the lane shows that one is under way.
    """

    def __init__(self, exploration: Exploration, lane: Lane, what: str) -> None:
        super().__init__(exploration, lane)
        self._what = what
        self._is_noted = False

    async def enter(self, expected: Callable[[], Awaitable[Spent]]) -> str | None:
        most = Spent()

        async def noticed() -> Spent:
            nonlocal most
            most = await expected()
            return most

        why = await super().enter(noticed)
        if why is None and most != Spent():
            try:
                await self._exploration.write(self._lane, Paid(self._what, most, is_expected=True))
            except BaseException:
                self.leave(Spent())
                raise
            self._is_noted = True
        return why

    def leave(self, spent: Spent) -> None:
        self._exploration.budget.leave(self._lane.number, self._lane.spent.and_of(spent))

    async def settle(self, spent: Spent) -> None:
        """All requests are over, and have used so much: count it on the lane."""
        self._lane.spent = self._lane.spent.and_of(spent)
        self._exploration.budget.count(self._lane.number, self._lane.spent)
        if self._is_noted or spent != Spent():
            await self.note(self._what, spent)
