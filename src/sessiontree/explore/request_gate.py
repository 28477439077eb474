"""The gate that each request of a lane passes: the lane's lease, new messages, the shared budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.agent.limits import GateRequest, RunUsage, Ticket
from sessiontree.explore.lane import Lane

if TYPE_CHECKING:
    from sessiontree.explore.exploration import Exploration

TAKEN_OVER = "another process is working on it"


class _LaneTicket(Ticket):
    """A request in flight on a lane."""

    def __init__(self, reserved: Ticket, estimate: str | None = None) -> None:
        self.reserved = reserved
        self.estimate = estimate
        """The entry that records it, if no other entry shows that it is in flight."""


class LaneGate:
    """The gate of a lane's run and its sub-agents."""

    def __init__(self, exploration: Exploration, lane: Lane) -> None:
        self._exploration, self._lane = exploration, lane

    @property
    def counts_cost(self) -> bool:
        return self._exploration.plan.bounds.cost is not None

    async def before_turn(self) -> None:
        exploration, lane = self._exploration, self._lane
        assert lane.run is not None
        if await exploration.leases.holds_lane(lane):
            for hook in exploration.hooks:
                await hook.before_request(exploration, lane, lane.run)

    async def enter(self, asked: GateRequest) -> Ticket | str:
        exploration, budget = self._exploration, self._exploration.budget
        if not await exploration.leases.holds_lane(self._lane):
            return TAKEN_OVER
        if not budget.is_counting:
            return budget.reached() or _LaneTicket(Ticket())
        expected = await asked.expected()
        reserved = await budget.enter(expected.maximum, is_alone=asked.is_exclusive)
        if isinstance(reserved, str) or not asked.purpose:
            return reserved if isinstance(reserved, str) else _LaneTicket(reserved)
        try:
            return _LaneTicket(reserved, await self._lane.write_estimate(asked.purpose, expected.likely))
        except BaseException:
            budget.leave(reserved, self._lane.number, self._lane.spent, RunUsage())
            raise

    async def before_call(self) -> str | None:
        return None if await self._exploration.leases.holds_lane(self._lane) else TAKEN_OVER

    def leave(self, ticket: Ticket, spent: RunUsage, used: RunUsage) -> None:
        self._lane.spent = self._lane.spent_with(spent)
        self._release(ticket, self._lane.spent, used)

    def _release(self, ticket: Ticket, spent: RunUsage, used: RunUsage) -> None:
        assert isinstance(ticket, _LaneTicket)
        self._exploration.budget.leave(ticket.reserved, self._lane.number, spent, used)
        if ticket.estimate is not None:
            self._lane.settled.append(ticket.estimate)

    async def write_usage(self, what: str, usage: RunUsage) -> None:
        """Record counted usage that no message of the session reports."""
        await self._lane.write_usage(what, usage)


class PostRunGate(LaneGate):
    """The gate for requests about a lane whose run is over, such as a judge's."""

    async def before_turn(self) -> None:
        """Hooks are for turns of the lane itself."""

    def leave(self, ticket: Ticket, spent: RunUsage, used: RunUsage) -> None:
        self._release(ticket, self._lane.spent.combine(spent), used)

    async def settle(self, what: str, usage: RunUsage) -> None:
        """Count and record the usage after the last request."""
        self._lane.spent = self._lane.spent.combine(usage)
        self._exploration.budget.count(self._lane.number, self._lane.spent)
        await self.write_usage(what, usage)
