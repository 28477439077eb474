"""The Model protocol: requests and events, independent of providers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Assistant, Message, RedactedThinking, Text, Thinking, ToolCall, Usage
from sessiontree.errors import ModelError
from sessiontree.models.facts import Facts

ThinkingLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
AnswerBlock: TypeAlias = Text | Thinking | RedactedThinking | ToolCall


class Tool(Struct, frozen=True):
    """A tool that a model may call."""

    name: str
    description: str
    parameters: JsonObject = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema of its arguments."""


class Request(Struct, frozen=True):
    """A request to a model."""

    messages: Sequence[Message]
    """The conversation. Its system messages come first in the system text."""
    system: str | None = None
    """More system text, after that of the messages."""
    tools: Sequence[Tool] = ()
    max_tokens: int | None = None
    """Largest answer; default: the model's own limit."""
    thinking: ThinkingLevel | None = None
    """Amount of thinking; default: the model's own."""
    cache: bool = True
    """Use the provider's prompt cache, where it has to be requested."""


class TextDelta(Struct, frozen=True, tag="text"):
    index: int
    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking"):
    index: int
    text: str


class ToolCallStart(Struct, frozen=True, tag="toolCallStart"):
    index: int
    id: str
    name: str


class ToolCallDelta(Struct, frozen=True, tag="toolCallDelta"):
    index: int
    arguments: str
    """Part of the arguments' JSON text."""


class BlockEnd(Struct, frozen=True, tag="blockEnd"):
    """A complete block with its signature; a call with decoded arguments."""

    index: int
    block: AnswerBlock


class UsageReport(Struct, frozen=True, tag="usage"):
    usage: Usage


class Stop(Struct, frozen=True, tag="stop"):
    """The answer is complete."""

    message: Assistant


Event: TypeAlias = TextDelta | ThinkingDelta | ToolCallStart | ToolCallDelta | BlockEnd | UsageReport | Stop


class Model(Protocol):
    """Answers requests.

    Contract: `stream` yields events and ends with exactly one `Stop`, which contains the complete message. Otherwise it
    raises a `ModelError`, whose `partial` is the message so far. Indexes of blocks increase, and a block's deltas
    come before its `BlockEnd`. Deltas of several calls may alternate, and all calls may end only with the answer.
    Closing the generator, or cancelling the task that reads it, ends the request and its connection. A model sends each
    request once (see `retry`). Several streams may run at the same time.
    """

    @property
    def name(self) -> str:
        """Name as "provider:name"."""
        ...

    @property
    def facts(self) -> Facts: ...

    def stream(self, request: Request, /) -> AsyncGenerator[Event, None]: ...

    async def close(self) -> None:
        """Release connections. The model can be used again after that."""
        ...


async def answer(model: Model, request: Request) -> Assistant:
    """Wait for the complete message."""
    stream = model.stream(request)
    try:
        async for event in stream:
            if isinstance(event, Stop):
                return event.message
    finally:
        await stream.aclose()
    raise ModelError(f"{model.name}: the answer ended without a stop event")
