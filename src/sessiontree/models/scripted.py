"""A fake model that replays a script, for tests and demonstrations. Its messages name it as their model."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncGenerator, Sequence

from sessiontree.core.messages import Assistant, Text, Thinking, ToolCall, message_text
from sessiontree.errors import (
    BusyModelError,
    ContextOverflowError,
    ModelAccessError,
    ModelError,
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
from sessiontree.models.script import ErrorKind, Script, ScriptPlayer, ScriptTurn, pieces, usage_of

PROVIDER = "scripted"
MODEL = "no-model-but-a-script"

_ERRORS: dict[ErrorKind, type[ModelError]] = {
    "rate_limit": BusyModelError,
    "overloaded": BusyModelError,
    "server": BusyModelError,
    "overflow": ContextOverflowError,
    "auth": ModelAccessError,
    "quota": ModelAccessError,
    "refused": RefusedRequestError,
}


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
