"""Token, cost and time limits of a run, and the usage they apply to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.core.jsonio import Value
from sessiontree.core.messages import Cost, Usage
from sessiontree.core.usage import valid_count


class RunUsage(Value, frozen=True, omit_defaults=False):
    """Usage of a run so far. `input` excludes tokens read from (`cached`) or written to the provider's cache."""

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
        """Tokens sent and received, cached ones included."""
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
        """The same numbers as the `Usage` of a single request."""
        return Usage(self.input, self.output, self.cached, self.cache_written, self.tokens, Cost(total=self.cost))

    def since(self, before: RunUsage) -> RunUsage:
        """The difference from an earlier value, without the time."""
        counted = (name for name in RunUsage.__struct_fields__ if name != "seconds")
        return RunUsage(**{name: getattr(self, name) - getattr(before, name) for name in counted})

    def combine(self, other: RunUsage) -> RunUsage:
        """The sum of both, time included."""
        return RunUsage(*(getattr(self, name) + getattr(other, name) for name in RunUsage.__struct_fields__))


Budget: TypeAlias = Callable[[RunUsage], str | None]
"""Called before each request; returns None to continue, or the reason to stop. Several runs may share one."""


class RequestEstimate(Struct, frozen=True):
    """Estimated usage of one request."""

    likely: RunUsage
    """With the longest answer that is allowed."""
    maximum: RunUsage
    """The same, if the text added since the provider's last token count is far larger than estimated."""


class GateRequest(Struct, frozen=True):
    """A model request that asks to pass a gate. Each retry is one."""

    expected: Callable[[], Awaitable[RequestEstimate]]
    """Estimates the request from the conversation at the time of the call."""
    purpose: str = ""
    """Empty for a turn. Other requests (a summary) have no entry in the session that shows they are in progress."""
    is_exclusive: bool = False
    """Its usage cannot be estimated, so no other request may be in progress at the same time."""


class Ticket:
    """Permission for one request, issued by a gate and returned to it."""


class RequestGate(Protocol):
    """Admits requests one by one, for runs that share a budget.

    Contract: `enter` waits until the request may be made and returns a ticket, or returns the reason why it may not.
    Every ticket is returned by `leave`, however the request ended. A caller cancelled while waiting has not entered.
    """

    @property
    def counts_cost(self) -> bool:
        """Whether cost is limited; if so, only models with known prices may be used."""
        ...

    async def before_turn(self) -> None:
        """Called before a run sends a turn, while nothing else writes to its branch. Entries appended here are part of
        the request."""
        ...

    async def before_call(self) -> str | None:
        """Called before a tool call runs; returns the reason if it may not run."""
        ...

    async def enter(self, asked: GateRequest) -> Ticket | str: ...

    def leave(self, ticket: Ticket, spent: RunUsage, used: RunUsage) -> None:
        """Return a ticket. `used` is the usage of this request, `spent` that of the run so far."""
        ...


class Limits(Struct, frozen=True):
    """Limits of a run. A request in progress is completed; only the time limit interrupts one."""

    turns: int | None = None
    tokens: float | None = None
    cost: float | None = None
    seconds: float | None = None
    budget: Budget | None = None
    gate: RequestGate | None = None

    @property
    def counts_cost(self) -> bool:
        """Whether cost is limited, here or by the gate."""
        return self.cost is not None or (self.gate is not None and self.gate.counts_cost)

    def reached(self, usage: RunUsage) -> str | None:
        """The limit that is reached, as a message; None if there is none."""
        if self.turns is not None and usage.turns >= self.turns:
            return reached_text(f"{self.turns:,} turns")
        return self.used_up(usage)

    def used_up(self, usage: RunUsage) -> str | None:
        """Like `reached`, for requests that are not turns, such as summaries."""
        if self.tokens is not None and usage.tokens >= self.tokens:
            return reached_text(f"{self.tokens:,.0f} tokens")
        if self.cost is not None and usage.cost >= self.cost:
            return reached_text(f"${self.cost:.2f}")
        return self.budget(usage) if self.budget is not None else None


def reached_text(limit: str) -> str:
    return f"the limit of {limit} is reached"
