"""What each request of a lane passes: is the lane still ours, what was sent to it, is there anything left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.agent.limits import GateRequest, RunUsage, Ticket
from sessiontree.explore.lane import Lane

if TYPE_CHECKING:
    from sessiontree.explore.exploration import Exploration

TAKEN_OVER = "another process works on it"


class _Let(Ticket):
    """A request that is under way on a lane."""

    def __init__(self, reserved: Ticket, note: str | None = None) -> None:
        self.reserved = reserved
        self.note = note
        """The entry that says that it is under way, if no other one does."""


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
        if await exploration.holding.still_holds(lane):
            for hook in exploration.work.hooks:
                await hook.before_request(exploration, lane, lane.run)

    async def enter(self, asked: GateRequest) -> Ticket | str:
        exploration, budget = self._exploration, self._exploration.budget
        if not await exploration.holding.still_holds(self._lane):
            return TAKEN_OVER
        if not budget.is_counting:
            return budget.reached() or _Let(Ticket())
        expected = await asked.expected()
        reserved = await budget.enter(expected.maximum, is_alone=asked.is_exclusive)
        if isinstance(reserved, str) or not asked.purpose:
            return reserved if isinstance(reserved, str) else _Let(reserved)
        try:
            return _Let(reserved, await exploration.expect(self._lane, asked.purpose, expected.likely))
        except BaseException:
            budget.leave(reserved, self._lane.number, self._lane.spent, RunUsage())
            raise

    async def before_call(self) -> str | None:
        return None if await self._exploration.holding.still_holds(self._lane) else TAKEN_OVER

    def leave(self, ticket: Ticket, spent: RunUsage, used: RunUsage) -> None:
        self._lane.spent = self._lane.spent_with(spent)
        self._release(ticket, self._lane.spent, used)

    def _release(self, ticket: Ticket, spent: RunUsage, used: RunUsage) -> None:
        assert isinstance(ticket, _Let)
        self._exploration.budget.leave(ticket.reserved, self._lane.number, spent, used)
        if ticket.note is not None:
            self._lane.settled.append(ticket.note)

    async def note(self, what: str, spent: RunUsage) -> None:
        """Write down what was used, and counted, that no message of the session tells."""
        await self._exploration.pay(self._lane, what, spent)


class AsideGate(LaneGate):
    """The gate for what is asked about a lane when its run is over, as an opinion on it."""

    async def before_turn(self) -> None:
        """Nothing is said on the lane."""

    def leave(self, ticket: Ticket, spent: RunUsage, used: RunUsage) -> None:
        self._release(ticket, self._lane.spent.combine(spent), used)

    async def settle(self, what: str, spent: RunUsage) -> None:
        """All requests are over, and have used so much: count it on the lane."""
        self._lane.spent = self._lane.spent.combine(spent)
        self._exploration.budget.count(self._lane.number, self._lane.spent)
        await self.note(what, spent)
