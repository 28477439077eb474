"""Render the turns of a script in the streaming protocols of four model APIs.

Each protocol renders a turn as server-sent events, and an error as a status and a body. It follows the provider's
public reference and has only the fields that a client needs. Nothing here opens a connection.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, Protocol

from msgspec import Struct

from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Usage
from sessiontree.models.scripted import ErrorKind, ScriptCall, ScriptTurn, pieces


class ServerSentEvent(NamedTuple):
    event: str | None
    data: JsonObject | str


class Refusal(NamedTuple):
    status: int
    body: JsonObject


class ModelRequest(Struct, frozen=True):
    """The parts of a request that the response depends on."""

    model: str
    body: JsonObject
    number: int
    """The number of the request; ids in the response are derived from it."""


class StreamProtocol(Protocol):
    """One provider's protocol. `last_message` returns the text of the newest message, including tool results."""

    def last_message(self, body: JsonObject) -> str: ...

    def events(self, request: ModelRequest, turn: ScriptTurn, usage: Usage) -> Iterator[ServerSentEvent]: ...

    def refusal(self, kind: ErrorKind) -> Refusal: ...

    def failure(self, kind: ErrorKind) -> ServerSentEvent:
        """The error as an event in the middle of a response."""
        ...


def _texts(value: Any) -> Iterator[str]:
    """Iterate over the texts in a value, at any depth."""
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)


def _call_id(request: ModelRequest, index: int, call: ScriptCall, prefix: str) -> str:
    return call.id or f"{prefix}_{request.number}_{index + 1}"


def _as_int(number: float) -> int:
    return int(number)


class Anthropic:
    """The Messages API."""

    _REFUSALS: ClassVar[dict[ErrorKind, tuple[int, str, str]]] = {
        "rate_limit": (429, "rate_limit_error", "too many requests (scripted error)"),
        "overloaded": (529, "overloaded_error", "overloaded (scripted error)"),
        "server": (500, "api_error", "internal error (scripted error)"),
        "overflow": (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        "auth": (401, "authentication_error", "wrong key (scripted error)"),
        "refused": (400, "invalid_request_error", "invalid request (scripted error)"),
        "quota": (402, "billing_error", "out of credit (scripted error)"),
    }

    def last_message(self, body: JsonObject) -> str:
        return "\n".join(_texts(body["messages"][-1]["content"]))

    def refusal(self, kind: ErrorKind) -> Refusal:
        status, name, message = self._REFUSALS[kind]
        return Refusal(status, {"type": "error", "error": {"type": name, "message": message}})

    def failure(self, kind: ErrorKind) -> ServerSentEvent:
        return ServerSentEvent("error", self.refusal(kind).body)

    def events(self, request: ModelRequest, turn: ScriptTurn, usage: Usage) -> Iterator[ServerSentEvent]:
        for data in self._data(request, turn, usage):
            yield ServerSentEvent(data["type"], data)

    def _data(self, request: ModelRequest, turn: ScriptTurn, usage: Usage) -> Iterator[JsonObject]:
        used = {
            "input_tokens": _as_int(usage.input),
            "cache_read_input_tokens": _as_int(usage.cache_read),
            "cache_creation_input_tokens": _as_int(usage.cache_write),
        }
        message: JsonObject = {
            "id": f"msg_{request.number}",
            "type": "message",
            "role": "assistant",
            "model": request.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**used, "output_tokens": 1},
        }
        yield {"type": "message_start", "message": message}
        index = itertools.count()
        if turn.redacted is not None:
            yield from self._block(next(index), {"type": "redacted_thinking", "data": turn.redacted}, [])
        if turn.thinking is not None:
            deltas = [{"type": "thinking_delta", "thinking": text} for text in pieces(turn.thinking, turn.piece)]
            signature = {"type": "signature_delta", "signature": turn.signature}
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            yield from self._block(next(index), empty, [*deltas, signature])
        if turn.text is not None:
            deltas = [{"type": "text_delta", "text": text} for text in pieces(turn.text, turn.piece)]
            yield from self._block(next(index), {"type": "text", "text": ""}, deltas)
        for number, call in enumerate(turn.tool_calls):
            start = {"type": "tool_use", "id": _call_id(request, number, call, "toolu"), "name": call.name, "input": {}}
            written = json.dumps(call.arguments)
            deltas = [{"type": "input_json_delta", "partial_json": text} for text in pieces(written, turn.piece)]
            yield from self._block(next(index), start, deltas)
        reason = {"length": "max_tokens", "refusal": "refusal", "stop": "end_turn"}.get(turn.stop or "")
        reason = reason or ("tool_use" if turn.tool_calls else "end_turn")
        ended = {"stop_reason": reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": ended, "usage": {**used, "output_tokens": _as_int(usage.output)}}
        yield {"type": "message_stop"}

    def _block(self, index: int, start: JsonObject, deltas: list[JsonObject]) -> Iterator[JsonObject]:
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}


class _OpenAI:
    """The errors of both OpenAI protocols."""

    _REFUSALS: ClassVar[dict[ErrorKind, tuple[int, str, str | None, str]]] = {
        "rate_limit": (429, "rate_limit_error", "rate_limit_exceeded", "too many requests (scripted error)"),
        "overloaded": (503, "service_unavailable_error", "server_is_overloaded", "overloaded (scripted error)"),
        "server": (500, "server_error", "server_error", "internal error (scripted error)"),
        "overflow": (400, "invalid_request_error", "context_length_exceeded", "context too long (scripted error)"),
        "auth": (401, "invalid_request_error", "invalid_api_key", "wrong key (scripted error)"),
        "refused": (400, "invalid_request_error", None, "invalid request (scripted error)"),
        "quota": (429, "insufficient_quota", "insufficient_quota", "out of credit (scripted error)"),
    }

    def refusal(self, kind: ErrorKind) -> Refusal:
        status, name, code, message = self._REFUSALS[kind]
        return Refusal(status, {"error": {"message": message, "type": name, "param": None, "code": code}})


class OpenAIChat(_OpenAI):
    """The Chat Completions API, which other providers also implement."""

    def last_message(self, body: JsonObject) -> str:
        return "\n".join(_texts(body["messages"][-1].get("content")))

    def failure(self, kind: ErrorKind) -> ServerSentEvent:
        return ServerSentEvent(None, self.refusal(kind).body)

    def events(self, request: ModelRequest, turn: ScriptTurn, usage: Usage) -> Iterator[ServerSentEvent]:
        yield self._chunk(request, {"role": "assistant", "content": ""})
        for text in pieces(turn.thinking or "", turn.piece):
            yield self._chunk(request, {"reasoning_content": text})
        for text in pieces(turn.text or "", turn.piece):
            yield self._chunk(request, {"content": text})
        for index, call in enumerate(turn.tool_calls):
            function = {"name": call.name, "arguments": ""}
            start = {"index": index, "id": _call_id(request, index, call, "call"), "type": "function"}
            yield self._chunk(request, {"tool_calls": [{**start, "function": function}]})
        # Arguments of parallel calls are interleaved, so that a client cannot rely on their order.
        written = [pieces(json.dumps(call.arguments), turn.piece) for call in turn.tool_calls]
        for row in itertools.zip_longest(*written):
            for index, text in enumerate(row):
                if text is not None:
                    yield self._chunk(request, {"tool_calls": [{"index": index, "function": {"arguments": text}}]})
        reason = {"length": "length", "refusal": "content_filter", "stop": "stop"}.get(turn.stop or "")
        yield self._chunk(request, {}, reason or ("tool_calls" if turn.tool_calls else "stop"))
        prompt = _as_int(usage.input + usage.cache_read + usage.cache_write)
        output = _as_int(usage.output)
        counts = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": _as_int(usage.cache_read)},
        }
        yield ServerSentEvent(None, {**self._frame(request), "choices": [], "usage": counts})
        yield ServerSentEvent(None, "[DONE]")

    def _chunk(self, request: ModelRequest, delta: JsonObject, reason: str | None = None) -> ServerSentEvent:
        return ServerSentEvent(
            None, {**self._frame(request), "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        )

    def _frame(self, request: ModelRequest) -> JsonObject:
        return {
            "id": f"chatcmpl-{request.number}",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": request.model,
        }


_EMPTY: dict[str, JsonObject] = {
    "reasoning": {"summary": []},
    "message": {"content": []},
    "function_call": {"arguments": ""},
}


class OpenAIResponses(_OpenAI):
    """The Responses API."""

    def last_message(self, body: JsonObject) -> str:
        items = body["input"]
        return items if isinstance(items, str) else "\n".join(_texts(items[-1]))

    def failure(self, kind: ErrorKind) -> ServerSentEvent:
        error = self.refusal(kind).body["error"]
        return ServerSentEvent("error", {**error, "type": "error", "sequence_number": 9999})

    def events(self, request: ModelRequest, turn: ScriptTurn, usage: Usage) -> Iterator[ServerSentEvent]:
        numbers = itertools.count()
        for data in self._data(request, turn, usage):
            yield ServerSentEvent(data["type"], {**data, "sequence_number": next(numbers)})

    def _data(self, request: ModelRequest, turn: ScriptTurn, usage: Usage) -> Iterator[JsonObject]:
        response = self._response(request, "in_progress")
        yield {"type": "response.created", "response": response}
        output: list[JsonObject] = []
        for item, deltas in self._items(request, turn):
            position = {"output_index": len(output), "item_id": item["id"]}
            begun = {**item, **_EMPTY[item["type"]], "status": "in_progress"}
            begun.pop("encrypted_content", None)
            yield {"type": "response.output_item.added", "output_index": len(output), "item": begun}
            for delta in deltas:
                yield {**delta, **position}
            yield {"type": "response.output_item.done", "output_index": len(output), "item": item}
            output.append(item)
        prompt = _as_int(usage.input + usage.cache_read + usage.cache_write)
        counts = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": _as_int(usage.cache_read)},
            "output_tokens": _as_int(usage.output),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + _as_int(usage.output),
        }
        reason = {"length": "max_output_tokens", "refusal": "content_filter"}.get(turn.stop or "")
        status = "incomplete" if reason else "completed"
        ended = {**self._response(request, status), "output": output, "usage": counts}
        if reason:
            ended["incomplete_details"] = {"reason": reason}
        yield {"type": f"response.{status}", "response": ended}

    def _items(self, request: ModelRequest, turn: ScriptTurn) -> Iterator[tuple[JsonObject, list[JsonObject]]]:
        if turn.thinking is not None:
            part = {"type": "summary_text", "text": turn.thinking}
            begun: JsonObject = {"type": "response.reasoning_summary_part.added", "summary_index": 0}
            deltas: list[JsonObject] = [{**begun, "part": {**part, "text": ""}}]
            deltas += [
                {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": text}
                for text in pieces(turn.thinking, turn.piece)
            ]
            deltas.append({"type": "response.reasoning_summary_text.done", "summary_index": 0, "text": turn.thinking})
            deltas.append({"type": "response.reasoning_summary_part.done", "summary_index": 0, "part": part})
            item = {"type": "reasoning", "id": f"rs_{request.number}", "summary": [part]}
            yield {**item, "encrypted_content": turn.signature}, deltas
        if turn.text is not None:
            content = {"type": "output_text", "text": turn.text, "annotations": []}
            deltas = [
                {"type": "response.content_part.added", "content_index": 0, "part": {**content, "text": ""}},
                *(
                    {"type": "response.output_text.delta", "content_index": 0, "delta": text, "logprobs": []}
                    for text in pieces(turn.text, turn.piece)
                ),
                {"type": "response.output_text.done", "content_index": 0, "text": turn.text, "logprobs": []},
                {"type": "response.content_part.done", "content_index": 0, "part": content},
            ]
            message = {"type": "message", "id": f"msg_{request.number}", "role": "assistant", "status": "completed"}
            yield {**message, "content": [content]}, deltas
        for index, call in enumerate(turn.tool_calls):
            written = json.dumps(call.arguments)
            deltas = [
                {"type": "response.function_call_arguments.delta", "delta": text}
                for text in pieces(written, turn.piece)
            ]
            deltas.append({"type": "response.function_call_arguments.done", "arguments": written, "name": call.name})
            item = {"type": "function_call", "id": f"fc_{request.number}_{index + 1}", "status": "completed"}
            call_id = _call_id(request, index, call, "call")
            yield {**item, "call_id": call_id, "name": call.name, "arguments": written}, deltas

    def _response(self, request: ModelRequest, status: str) -> JsonObject:
        return {
            "id": f"resp_{request.number}",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": status,
            "model": request.model,
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }


class Gemini:
    """The Gemini API."""

    _REFUSALS: ClassVar[dict[ErrorKind, tuple[int, str, str]]] = {
        "rate_limit": (429, "RESOURCE_EXHAUSTED", "too many requests (scripted error)"),
        "overloaded": (503, "UNAVAILABLE", "overloaded (scripted error)"),
        "server": (500, "INTERNAL", "internal error (scripted error)"),
        "overflow": (400, "INVALID_ARGUMENT", "input token count exceeds the number of tokens allowed"),
        "auth": (403, "PERMISSION_DENIED", "wrong key (scripted error)"),
        "refused": (400, "INVALID_ARGUMENT", "invalid request (scripted error)"),
        "quota": (429, "RESOURCE_EXHAUSTED", "out of credit (scripted error)"),
    }

    def last_message(self, body: JsonObject) -> str:
        return "\n".join(_texts(body["contents"][-1]))

    def refusal(self, kind: ErrorKind) -> Refusal:
        status, name, message = self._REFUSALS[kind]
        return Refusal(status, {"error": {"code": status, "message": message, "status": name}})

    def failure(self, kind: ErrorKind) -> ServerSentEvent:
        return ServerSentEvent(None, self.refusal(kind).body)

    def events(self, request: ModelRequest, turn: ScriptTurn, usage: Usage) -> Iterator[ServerSentEvent]:
        for text in pieces(turn.thinking or "", turn.piece):
            yield self._chunk(request, {"text": text, "thought": True})
        for text in pieces(turn.text or "", turn.piece):
            yield self._chunk(request, {"text": text})
        for index, call in enumerate(turn.tool_calls):
            function = {"name": call.name, "args": call.arguments, "id": _call_id(request, index, call, "call")}
            yield self._chunk(request, {"functionCall": function, "thoughtSignature": turn.signature})
        prompt = _as_int(usage.input + usage.cache_read + usage.cache_write)
        counts = {
            "promptTokenCount": prompt,
            "cachedContentTokenCount": _as_int(usage.cache_read),
            "candidatesTokenCount": _as_int(usage.output),
            "totalTokenCount": prompt + _as_int(usage.output),
        }
        reason = {"length": "MAX_TOKENS", "refusal": "SAFETY"}.get(turn.stop or "", "STOP")
        yield self._chunk(request, {"text": ""}, {"finishReason": reason}, {"usageMetadata": counts})

    def _chunk(
        self,
        request: ModelRequest,
        part: JsonObject,
        candidate: JsonObject | None = None,
        more: JsonObject | None = None,
    ) -> ServerSentEvent:
        content = {"role": "model", "parts": [part]}
        frame = {"modelVersion": request.model, "responseId": f"resp_{request.number}"}
        return ServerSentEvent(
            None, {"candidates": [{"content": content, "index": 0, **(candidate or {})}], **frame, **(more or {})}
        )
