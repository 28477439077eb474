"""What a run has used, and how much it may use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.core.jsonio import Value
from sessiontree.core.messages import Cost, Usage
from sessiontree.core.usage import valid_count


class RunUsage(Value, frozen=True, omit_defaults=False):
    """What a run has used so far. `input` is what was read fresh; `cached` came from the provider's cache."""

    turns: int = 0
    """Requests that were answered."""
    input: int | float = 0
    output: int | float = 0
    cached: int | float = 0
    cache_written: int | float = 0
    cost: float = 0.0
    """US dollars, as far as prices are known."""
    seconds: float = 0.0

    @property
    def tokens(self) -> float:
        """Everything that was sent and answered."""
        return self.input + self.output + self.cached + self.cache_written

    def plus(self, usage: Usage | None, *, turns: int = 0) -> RunUsage:
        used = usage or Usage()
        return msgspec.structs.replace(
            self,
            turns=self.turns + turns,
            input=self.input + valid_count(used.input),
            output=self.output + valid_count(used.output),
            cached=self.cached + valid_count(used.cache_read),
            cache_written=self.cache_written + valid_count(used.cache_write),
            cost=self.cost + (valid_count(used.cost.total) if used.cost is not None else 0.0),
        )

    @property
    def usage(self) -> Usage:
        """The same in the words of one request."""
        return Usage(self.input, self.output, self.cached, self.cache_written, self.tokens, Cost(total=self.cost))

    def since(self, before: RunUsage) -> RunUsage:
        """What was used since, but for the time."""
        counted = (name for name in RunUsage.__struct_fields__ if name != "seconds")
        return RunUsage(**{name: getattr(self, name) - getattr(before, name) for name in counted})

    def and_of(self, other: RunUsage) -> RunUsage:
        """What both have used together."""
        return RunUsage(*(getattr(self, name) + getattr(other, name) for name in RunUsage.__struct_fields__))


Budget: TypeAlias = Callable[[RunUsage], str | None]
"""Asked before each request: None to go on, else why to stop. Several runs may share one that adds them up."""


class Expected(Struct, frozen=True):
    """What a request will use."""

    likely: RunUsage
    """As far as can be told, with the longest answer."""
    most: RunUsage
    """Even if what was said since the provider last counted is much more than it seems."""


class Asked(Struct, frozen=True):
    """A request that is to be made. Every attempt is one."""

    expected: Callable[[], Awaitable[Expected]]
    """As the conversation is when this is called."""
    what: str = ""
    """What it is for, if it is no turn: no entry of the session shows that such a one is under way."""
    is_alone: bool = False
    """Nothing is known of it before, so that no other may be under way with it."""


class Ticket:
    """A request that was let through. A gate hands it out, and gets it back."""


class Gate(Protocol):
    """Who lets requests through one by one, for runs that share what is left.

    Contract: `enter` waits until the request may be made, and gives a ticket; or says why it may not be made at all.
    Every ticket comes back by `leave`, whatever became of the request. Whoever is cancelled while waiting has not
    entered.
    """

    @property
    def counts_cost(self) -> bool:
        """Whether what requests cost is limited, so that only models may be asked whose prices are known."""
        ...

    async def before_turn(self) -> None:
        """A run is about to ask its model; nothing else is writing to its branch. What is appended now is part of the
        request."""
        ...

    async def before_call(self) -> str | None:
        """A call of a tool is about to be run; why it may not be, if it may not."""
        ...

    async def enter(self, asked: Asked) -> Ticket | str: ...

    def leave(self, ticket: Ticket, spent: RunUsage, used: RunUsage) -> None:
        """The request is over, and has used so much; `spent` is what the whole run has used so far."""
        ...


class Limits(Struct, frozen=True):
    """How much a run may use. A request that was begun is ended; only the time ends what is under way."""

    turns: int | None = None
    tokens: float | None = None
    cost: float | None = None
    seconds: float | None = None
    budget: Budget | None = None
    gate: Gate | None = None

    @property
    def counts_cost(self) -> bool:
        """Whether what requests cost is limited, by these or by the gate."""
        return self.cost is not None or (self.gate is not None and self.gate.counts_cost)

    def reached(self, spent: RunUsage) -> str | None:
        """Which limit is reached, in words; None when none is."""
        if self.turns is not None and spent.turns >= self.turns:
            return reached_text(f"{self.turns:,} turns")
        return self.used_up(spent)

    def used_up(self, spent: RunUsage) -> str | None:
        """The same for a request that is no turn, as one for a summary."""
        if self.tokens is not None and spent.tokens >= self.tokens:
            return reached_text(f"{self.tokens:,.0f} tokens")
        if self.cost is not None and spent.cost >= self.cost:
            return reached_text(f"${self.cost:.2f}")
        return self.budget(spent) if self.budget is not None else None


def reached_text(limit: str) -> str:
    return f"the limit of {limit} is reached"
