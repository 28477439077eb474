"""Convert the library's events and parts to ours. The inverse of `to_provider`, without loss."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

import pydantic_ai.messages as library
from pydantic_ai.usage import RequestUsage

from sessiontree.core.jsonio import JsonObject, parse_json
from sessiontree.core.messages import Assistant, Text, Thinking, ToolCall, Usage
from sessiontree.models.base import AnswerBlock, BlockEnd, Event, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart
from sessiontree.models.endpoints import Api, Endpoint
from sessiontree.models.facts import Prices, cost_of
from sessiontree.models.signatures import Mark, render_call, render_text, render_thinking
from sessiontree.models.to_provider import REDACTED

# The library's stop reasons -> Pi's.
STOP_REASONS = {"stop": "stop", "length": "length", "tool_call": "toolUse", "content_filter": "error", "error": "error"}


def events_of(event: library.ModelResponseStreamEvent, api: Api) -> Iterator[Event]:
    """Convert an event; some have no counterpart."""
    match event:
        case library.PartStartEvent(part=library.TextPart() as part):
            if part.content:
                yield TextDelta(event.index, part.content)
        case library.PartStartEvent(part=library.ThinkingPart() as part):
            if part.content:
                yield ThinkingDelta(event.index, part.content)
        case library.PartStartEvent(part=library.ToolCallPart() as part):
            yield ToolCallStart(event.index, part.tool_call_id, part.tool_name)
            if part.args:
                yield ToolCallDelta(event.index, _arguments_text(part.args))
        case library.PartDeltaEvent(delta=library.TextPartDelta() as delta):
            if delta.content_delta:
                yield TextDelta(event.index, delta.content_delta)
        case library.PartDeltaEvent(delta=library.ThinkingPartDelta() as delta):
            if delta.content_delta:
                yield ThinkingDelta(event.index, delta.content_delta)
        case library.PartDeltaEvent(delta=library.ToolCallPartDelta() as delta):
            if delta.args_delta:
                yield ToolCallDelta(event.index, _arguments_text(delta.args_delta))
        case library.PartEndEvent(part=library.TextPart() | library.ThinkingPart()):
            block = block_of(event.part, api)
            if block is not None:
                yield BlockEnd(event.index, block)
        case _:
            pass


def ended_calls(parts: Sequence[library.ModelResponsePart], api: Api) -> Iterator[BlockEnd]:
    """End events of all calls of a complete answer.

    The library ends a call when the next part starts, but parts of parallel calls may alternate, so these are used.
    """
    for index, part in enumerate(parts):
        if isinstance(part, library.ToolCallPart):
            block = block_of(part, api)
            if block is not None:
                yield BlockEnd(index, block)


def block_of(part: library.ModelResponsePart, api: Api) -> AnswerBlock | None:
    """Convert a part to a block; None for parts without a counterpart, such as the provider's own searches."""
    match part:
        case library.TextPart():
            return Text(part.content, render_text(api, _mark(part)))
        case library.ThinkingPart(id=identity) if identity == REDACTED:
            return Thinking("", part.signature, redacted=True)
        case library.ThinkingPart():
            mark = Mark(part.id, part.signature or _thought_signature(part))
            return Thinking(part.content, render_thinking(api, mark, part.content))
        case library.ToolCallPart():
            call = render_call(api, _mark(part))
            return ToolCall(part.tool_call_id, part.tool_name, _arguments(part), call)
        case _:
            return None


def message_of(response: library.ModelResponse, endpoint: Endpoint, prices: Prices) -> Assistant:
    """Convert a complete answer to a message."""
    blocks = tuple(block for part in response.parts if (block := block_of(part, endpoint.api)) is not None)
    has_calls = any(isinstance(block, ToolCall) for block in blocks)
    reason = STOP_REASONS.get(response.finish_reason or "", "stop")
    error = None
    if reason == "error":
        error = f"{endpoint.name} ended its answer early: {(response.finish_reason or '').replace('_', ' ')}"
    return Assistant(
        timestamp=int(time.time() * 1000),
        content=blocks,
        api=endpoint.api,
        provider=endpoint.provider,
        model=endpoint.model,
        usage=usage_of(response.usage, prices),
        # Some servers report "stop" although there are tool calls.
        stop_reason="toolUse" if has_calls and reason == "stop" else reason,
        error_message=error,
        response_id=response.provider_response_id,
    )


def usage_of(used: RequestUsage, prices: Prices) -> Usage:
    """Convert usage: our `input` counts only uncached tokens."""
    fresh = max(0, used.input_tokens - used.cache_read_tokens - used.cache_write_tokens)
    usage = Usage(
        input=fresh,
        output=used.output_tokens,
        cache_read=used.cache_read_tokens,
        cache_write=used.cache_write_tokens,
        total_tokens=used.input_tokens + used.output_tokens,
    )
    return Usage(
        usage.input, usage.output, usage.cache_read, usage.cache_write, usage.total_tokens, cost_of(usage, prices)
    )


def _mark(part: library.TextPart | library.ToolCallPart) -> Mark:
    phase = (part.provider_details or {}).get("phase")
    return Mark(part.id, _thought_signature(part), phase if isinstance(phase, str) else None)


def _thought_signature(part: library.TextPart | library.ToolCallPart | library.ThinkingPart) -> str | None:
    found = (part.provider_details or {}).get("thought_signature")
    return found if isinstance(found, str) else None


def _arguments(part: library.ToolCallPart) -> JsonObject:
    """Arguments of a call. Invalid ones are kept under the key that the library uses to send them back."""
    if isinstance(part.args, dict):
        return part.args
    if not part.args:
        return {}
    try:
        found = parse_json(part.args.encode("utf-8", "surrogatepass"))
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"INVALID_JSON": part.args}


def _arguments_text(arguments: str | dict[str, object]) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
