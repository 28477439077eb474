"""A request gate for tests."""

from __future__ import annotations

from sessiontree.agent.limits import GateRequest, RunUsage, Ticket


class Counting:
    """Admits a number of requests, and records them."""

    def __init__(self, most: int = 99) -> None:
        self.most, self.entered, self.left = most, list[RunUsage](), list[RunUsage]()
        self.used, self.asked = list[RunUsage](), list[GateRequest]()

    counts_cost = False

    async def before_turn(self) -> None:
        pass

    async def before_call(self) -> str | None:
        return None

    async def enter(self, asked: GateRequest) -> Ticket | str:
        assert len(self.entered) == len(self.left), "two requests at the same time"
        if len(self.entered) == self.most:
            return "no more requests are admitted"
        self.asked.append(asked)
        self.entered.append((await asked.expected()).likely)
        return Ticket()

    def leave(self, ticket: Ticket, spent: RunUsage, used: RunUsage) -> None:
        self.left.append(spent)
        self.used.append(used)
