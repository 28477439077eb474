"""The contract of a model: what it is asked, and the events it answers with.

Nothing here knows a provider. A model that keeps the contract can be a provider's, a script, or anyone's own.
"""

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
    """The JSON Schema of its arguments."""


class Request(Struct, frozen=True):
    """What a model is asked."""

    messages: Sequence[Message]
    """The conversation. System messages in it come first in the system text, as they do in a context."""
    system: str | None = None
    """More system text, behind that of the messages."""
    tools: Sequence[Tool] = ()
    max_tokens: int | None = None
    """How long the answer may be; without it, as long as the model's facts allow."""
    thinking: ThinkingLevel | None = None
    """How much to think; without it, as the model does by itself."""
    cache: bool = True
    """Ask the provider to keep the beginning for the next request, where it has to be asked."""


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
    """A piece of the arguments' JSON text."""


class BlockEnd(Struct, frozen=True, tag="blockEnd"):
    """A block is complete, with its signature; a call with its arguments decoded."""

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

    Contract: `stream` gives events until exactly one `Stop`, which is the last and carries the whole message; or it
    raises a `ModelError`, whose `partial` is what had come. The index of a block grows, and a block's deltas come
    before its `BlockEnd`. Deltas of several calls may alternate, and all of them may end only with the answer. Closing
    the generator, or cancelling the task that reads it, ends the request and its connection. A model makes each request
    once: who wants another attempt asks again (see `retrying`). Several streams may run at the same time.
    """

    @property
    def name(self) -> str:
        """As "provider:name"."""
        ...

    @property
    def facts(self) -> Facts: ...

    def stream(self, request: Request, /) -> AsyncGenerator[Event, None]: ...

    async def close(self) -> None:
        """Give back what it holds. It may be used again after that."""
        ...


async def answer(model: Model, request: Request) -> Assistant:
    """The whole message, for those who do not want to see it come."""
    stream = model.stream(request)
    try:
        async for event in stream:
            if isinstance(event, Stop):
                return event.message
    finally:
        await stream.aclose()
    raise ModelError(f"{model.name}: the answer ended without an end")
