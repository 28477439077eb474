"""A fake model that replays a script, turn by turn, for tests and demonstrations. Its messages name it as their model.

    {"turns": [{"text": "Let me look.", "toolCalls": [{"name": "read", "arguments": {"path": "a.py"}}]},
               {"when": "def main", "text": "It is a program."}]}

`ScriptedModel` plays such a script in the process, and `sessiontree.testing.model_server` plays it over HTTP.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Literal, TypeAlias

import msgspec

from sessiontree.core.jsonio import JsonObject, Value, parse_json
from sessiontree.core.messages import Assistant, Text, Thinking, ToolCall, Usage, message_text
from sessiontree.errors import (
    BusyModelError,
    ContextOverflowError,
    DamagedError,
    ModelAccessError,
    ModelError,
    NotFoundError,
    RefusedRequestError,
    UnreachableError,
)
from sessiontree.models.accumulator import AnswerAccumulator
from sessiontree.models.base import (
    AnswerBlock,
    BlockEnd,
    Event,
    Request,
    Stop,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from sessiontree.models.facts import Facts

ErrorKind: TypeAlias = Literal["rate_limit", "overloaded", "server", "overflow", "auth", "refused", "quota"]

PROVIDER = "scripted"
MODEL = "script"

_ERRORS: dict[ErrorKind, type[ModelError]] = {
    "rate_limit": BusyModelError,
    "overloaded": BusyModelError,
    "server": BusyModelError,
    "overflow": ContextOverflowError,
    "auth": ModelAccessError,
    "quota": ModelAccessError,
    "refused": RefusedRequestError,
}


class ScriptCall(Value, frozen=True):
    name: str
    arguments: JsonObject = msgspec.field(default_factory=dict)
    id: str | None = None


class ScriptError(Value, frozen=True):
    """The request fails with the provider's own kind of error."""

    kind: ErrorKind
    retry_after: float | None = None
    in_stream: bool = False
    """Fail inside the answer, after the content of the turn was sent."""


class ScriptTurn(Value, frozen=True):
    """One answer: thinking, then text, then calls, in that order."""

    thinking: str | None = None
    signature: str = "c2lnbmVkIGJ5IGEgc2NyaXB0"
    """Fake signature of the thinking."""
    redacted: str | None = None
    """Redacted thinking."""
    text: str | None = None
    tool_calls: tuple[ScriptCall, ...] = ()
    usage: Usage | None = None
    """Reported usage; by default computed from the lengths."""
    stop: Literal["stop", "length", "refusal"] | None = None
    delay: float = 0.0
    """Seconds before each delta."""
    first_delay: float = 0.0
    """Seconds before the first event."""
    piece: int = 16
    """Characters per delta."""
    error: ScriptError | None = None
    drop_after: int | None = None
    """Break the connection after this many deltas."""
    when: str | None = None
    """Use this turn only if the last message of the request contains this text."""
    repeat: bool = False
    """The turn may be used any number of times."""


class Script(Value, frozen=True):
    turns: tuple[ScriptTurn, ...]


class ScriptPlayer:
    """Plays a script: each request gets the first unused turn that matches. Thread-safe."""

    def __init__(self, script: Script) -> None:
        self._turns = list(script.turns)
        self._lock = threading.Lock()

    def next_turn(self, last_message: str) -> ScriptTurn | None:
        """The turn for a request with this last message; None at the end of the script."""
        with self._lock:
            for index, turn in enumerate(self._turns):
                if turn.when is None or turn.when in last_message:
                    if not turn.repeat:
                        del self._turns[index]
                    return turn
        return None


def parse_script(data: bytes) -> Script:
    """Parse a script from JSON; ValueError if it is invalid."""
    return msgspec.convert(parse_json(data), Script)


def read_script(path: str) -> Script:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such script") from None
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return parse_script(data)
    except ValueError as error:
        raise DamagedError(f"{path}: not a valid script: {error}") from None


class ScriptedModel:
    """A Model that replays a script; `requests` records the requests."""

    def __init__(self, script: Script | Sequence[ScriptTurn], facts: Facts | None = None) -> None:
        self._player = ScriptPlayer(script if isinstance(script, Script) else Script(tuple(script)))
        self._facts = facts or Facts(source=f"{PROVIDER}/{MODEL}")
        self._numbers = itertools.count(1)
        self.requests: list[Request] = []

    @property
    def name(self) -> str:
        return f"{PROVIDER}:{MODEL}"

    @property
    def facts(self) -> Facts:
        return self._facts

    async def close(self) -> None:
        """Nothing to close."""

    async def stream(self, request: Request, /) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        texts = [message_text(message) for message in request.messages]
        turn = self._player.next_turn(texts[-1] if texts else "")
        if turn is None:
            raise RefusedRequestError(f"{self.name}: the script has no turn left for this request")
        if turn.error is not None and not turn.error.in_stream:
            raise self._error(turn, None)
        accumulator = AnswerAccumulator(PROVIDER, MODEL)
        await asyncio.sleep(turn.first_delay)
        for sent, event in enumerate(self._events(turn)):
            if turn.drop_after is not None and sent >= turn.drop_after:
                message = f"{self.name}: the script breaks off here"
                raise UnreachableError(message, accumulator.message("error", message))
            await asyncio.sleep(turn.delay)
            accumulator.add(event)
            yield event
        if turn.error is not None:
            raise self._error(turn, accumulator.message("error"))
        usage = usage_of(turn, sum(map(len, texts)) + len(request.system or ""))
        yield UsageReport(usage)
        answer = accumulator.message()
        reason = turn.stop or ("toolUse" if turn.tool_calls else "stop")
        yield Stop(
            Assistant(
                timestamp=int(time.time() * 1000),
                content=answer.content if answer is not None else (),
                provider=PROVIDER,
                model=MODEL,
                usage=usage,
                stop_reason="error" if reason == "refusal" else reason,
                error_message="the script refuses" if reason == "refusal" else None,
            )
        )

    def _events(self, turn: ScriptTurn) -> list[Event]:
        events: list[Event] = []
        blocks: list[AnswerBlock] = []
        if turn.redacted is not None:
            blocks.append(Thinking("", turn.redacted, redacted=True))
            events.append(BlockEnd(0, blocks[0]))
        for kind, text in ((Thinking, turn.thinking), (Text, turn.text)):
            if text is None:
                continue
            delta = ThinkingDelta if kind is Thinking else TextDelta
            events += [delta(len(blocks), piece) for piece in pieces(text, turn.piece)]
            block = Thinking(text, turn.signature) if kind is Thinking else Text(text)
            events.append(BlockEnd(len(blocks), block))
            blocks.append(block)
        for call in turn.tool_calls:
            made = ToolCall(call.id or f"call_{next(self._numbers)}", call.name, call.arguments)
            events.append(ToolCallStart(len(blocks), made.id, made.name))
            written = json.dumps(call.arguments, ensure_ascii=False)
            events += [ToolCallDelta(len(blocks), piece) for piece in pieces(written, turn.piece)]
            events.append(BlockEnd(len(blocks), made))
            blocks.append(made)
        return events

    def _error(self, turn: ScriptTurn, partial: Assistant | None) -> ModelError:
        assert turn.error is not None
        message = f"{self.name}: the script fails here ({turn.error.kind.replace('_', ' ')})"
        return _ERRORS[turn.error.kind](message, partial, turn.error.retry_after)


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), max(size, 1))]


def usage_of(turn: ScriptTurn, request_size: int) -> Usage:
    """Usage of a turn; by default four characters count as a token."""
    if turn.usage is not None:
        return turn.usage
    length = len(turn.thinking or "") + len(turn.text or "") + sum(len(str(call.arguments)) for call in turn.tool_calls)
    used, given = request_size // 4 + 1, length // 4 + 1
    return Usage(used, given, total_tokens=used + given)
