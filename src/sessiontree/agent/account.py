"""What one run uses, and how its requests pass the gate: room is reserved before each, and what it used counts after.

A request that a gate has reserved room for is held to it: its answer may be no longer than was expected. And it counts
even if nobody tells what it used, as when it is dropped on its way or the provider does not say: then it counts as what
was sent and what is known to have come.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from sessiontree.agent.spending import Limits, Spent
from sessiontree.compacting.estimate import measured_tokens
from sessiontree.errors import CompactionError
from sessiontree.messages import Assistant, Usage, text_of, tool_calls
from sessiontree.models import Model
from sessiontree.models.facts import cost_of
from sessiontree.models.library import LONGEST_ANSWER

_LEAST_ANSWER = 1_024
"""Tokens that an answer may have whatever is left of the window: the estimate of what is in it may be too high."""


class LimitReached(Exception):  # noqa: N818 - nothing went wrong
    """A request is not made, because no more may be used."""


class Account:
    """The account of one run. `size` tells how many tokens a request made now sends."""

    def __init__(self, limits: Limits, model: Model, size: Callable[[], Awaitable[int]]) -> None:
        self._limits, self._model, self._size = limits, model, size
        self._began = 0.0
        self._used = Spent()
        self._reserved: Usage | None = None
        self.untold = Spent()
        """What is among `spent` and stands nowhere in the session. Only where a gate asks what requests will use."""

    def begin(self) -> None:
        """The clock starts."""
        self._began = time.monotonic()

    def close(self) -> None:
        """The clock stops."""
        self._used, self._began = self.spent, 0.0

    @property
    def spent(self) -> Spent:
        if not self._began:
            return self._used
        return msgspec.structs.replace(self._used, seconds=time.monotonic() - self._began)

    @property
    def longest_answer(self) -> int | None:
        """How long the answer to the request under way may be; None: as long as the model allows."""
        return int(self._reserved.output) if self._reserved is not None else None

    def count(self, usage: Usage | None, *, turns: int = 0) -> None:
        """Count the request under way, or a part of it."""
        self._used = self._used.plus(usage, turns=turns)
        self._reserved = None

    def charge(self, spent: Spent) -> None:
        """Count what others have used for the run."""
        self._used = self._used.and_of(spent)

    def count_answer(self, answer: Assistant) -> None:
        """Count the request that was answered so. One that was refused has used nothing."""
        if answer.usage is None and (answer.content or answer.stop_reason != "error"):
            self._count_untold(answer)
        self.count(answer.usage, turns=1)

    def count_attempt(self, came: Assistant) -> None:
        """Count an attempt that failed and is made again, if something had come of it."""
        if came.content:
            self._count_untold(came)

    def _count_untold(self, came: Assistant) -> None:
        """Count the request under way, if it was not yet: its usage nobody tells."""
        if self._reserved is not None:
            size = measured_tokens(
                "".join([text_of(came.content), *(str(call.arguments) for call in tool_calls(came))])
            )
            used = Spent().plus(self._priced(Usage(self._reserved.input, size)))
            self.untold = self.untold.and_of(used)
            self.charge(used)

    def check(self) -> None:
        """`LimitReached` when a limit of the run itself is."""
        why = self._limits.reached(self.spent)
        if why is not None:
            raise LimitReached(why)

    @contextlib.asynccontextmanager
    async def admitted(self, came: Callable[[], Assistant | None] = Assistant) -> AsyncIterator[None]:
        """Room for one request; `LimitReached` when the gate has none.

        `came` is asked when the request is dropped on its way, and gives what had come of the answer; None when it was
        not sent yet.
        """
        gate = self._limits.gate
        why = await gate.enter(self._expected) if gate is not None else None
        if why is not None:
            raise LimitReached(why)
        try:
            yield
        except (asyncio.CancelledError, CompactionError):
            partial = came()
            if partial is not None and partial.usage is None:
                self._count_untold(partial)
            raise
        finally:
            self._reserved = None
            if gate is not None:
                gate.leave(self.spent)

    async def _expected(self) -> Spent:
        """What a request made now will use at most: everything is read fresh, and the answer is as long as it may be.

        It is an estimate for what was said since the provider last counted.
        """
        size, facts = await self._size(), self._model.facts
        longest = min(facts.output, LONGEST_ANSWER, max(facts.window - size, _LEAST_ANSWER))
        self._reserved = Usage(size, longest)
        return Spent().plus(self._priced(self._reserved), turns=1)

    def _priced(self, usage: Usage) -> Usage:
        return msgspec.structs.replace(usage, cost=cost_of(usage, self._model.facts.prices))
