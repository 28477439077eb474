"""A session as OpenTelemetry spans, by the semantic conventions for generative AI, in OTLP JSON.

Each prompt is a trace: `invoke_agent` with a `chat` span for each answer and an `execute_tool` span for each call.
`gen_ai.conversation.id` is the session. Ids are derived from the session's, so that an export can be repeated. Input
messages of a span are those since the answer before it: with the whole history in each, a trace would be quadratic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from sessiontree import __version__
from sessiontree.core.jsonio import JsonObject, render_json
from sessiontree.core.messages import (
    Assistant,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    message_blocks,
    text_of,
)
from sessiontree.core.usage import valid_count
from sessiontree.export.source import Source
from sessiontree.export.turns import Step, Turn, is_input, iter_turns

SCHEMA = "https://opentelemetry.io/schemas/1.41.0"
_INTERNAL, _CLIENT = 1, 3
_ERROR = 2
_PROVIDERS = {"google": "gcp.gemini", "mistral": "mistral_ai"}
_PLATFORMS = ("gcp.gemini", "aws.bedrock")
"""Names of providers with the platform they belong to."""
_FINISH = {"stop": "stop", "length": "length", "toolUse": "tool_call", "error": "error", "aborted": "error"}
_ROLES = {"assistant": "assistant", "toolResult": "tool", "system": "system"}


def render_otel(source: Source) -> Iterator[bytes]:
    """One `ExportTraceServiceRequest` as JSON."""
    facts = source.facts()
    resource = _attributes({"service.name": facts.dialect, "sessiontree.session.cwd": facts.folder})
    scope = {"name": "sessiontree", "version": __version__}
    yield b'{"resourceSpans":[{"resource":' + render_json({"attributes": resource})
    yield b',"scopeSpans":[{"scope":' + render_json(scope) + b',"schemaUrl":' + render_json(SCHEMA) + b',"spans":['
    separator = b""
    for turn in iter_turns(source):
        for span in _Trace(facts.id, facts.dialect, turn).spans():
            yield separator + render_json(span)
            separator = b","
    yield b"]}]}]}\n"


class _Trace:
    """The spans of one turn."""

    def __init__(self, session: str, agent: str, turn: Turn) -> None:
        self._session, self._agent, self._steps = session, agent, turn.steps
        self._id = _digest(session, turn.steps[0].id)[:32]
        self._root = self._span_id("turn")

    def spans(self) -> Iterator[JsonObject]:
        new: list[Message] = []
        for step in self._steps:
            if isinstance(step.message, Assistant):
                yield self._chat(step, step.message, new)
                new = []
                for call in step.calls:
                    yield self._tool(step, call)
                new += [result.message for result in step.results.values()]
            elif is_input(step.message):
                new.append(step.message)
        yield self._turn()

    def _turn(self) -> JsonObject:
        answers = [step.message for step in self._steps if isinstance(step.message, Assistant)]
        prompt = [step.message for step in self._steps[:1] if is_input(step.message)]
        last = answers[-1] if answers else None
        ended = max([step.ended for step in self._steps] + [result.time for result in self._results()])
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": self._agent,
            "gen_ai.provider.name": _provider(last),
            "gen_ai.request.model": last.model if last is not None else None,
            "gen_ai.input.messages": _messages(prompt),
            "gen_ai.output.messages": _messages([last]) if last is not None else None,
            **_usage(answers),
        }
        started = self._steps[0].ended  # when the prompt was written
        name = f"invoke_agent {self._agent}"
        return self._span(name, self._root, None, _INTERNAL, started, ended, attributes, _failure(last))

    def _results(self) -> Iterator[Any]:
        for step in self._steps:
            yield from step.results.values()

    def _chat(self, step: Step, answer: Assistant, new: list[Message]) -> JsonObject:
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _provider(answer),
            "gen_ai.request.model": answer.model,
            "gen_ai.response.model": answer.model,
            "gen_ai.response.id": answer.response_id,
            "gen_ai.response.finish_reasons": [_finish(answer)],
            "gen_ai.input.messages": _messages(new),
            "gen_ai.output.messages": _messages([answer]),
            **_usage([answer]),
        }
        name = f"chat {answer.model}" if answer.model else "chat"
        id = self._span_id(step.id)
        return self._span(name, id, self._root, _CLIENT, step.started, step.ended, attributes, _failure(answer))

    def _tool(self, step: Step, call: ToolCall) -> JsonObject:
        result = step.results.get(call.id)
        message = None if result is None else result.message
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.arguments": render_json(call.arguments).decode(),
            "gen_ai.tool.call.result": None if message is None else text_of(message.content),
        }
        failure = ("tool_error", "") if message is not None and message.is_error else None
        ended = step.ended if result is None else result.time
        id = self._span_id(step.id, call.id)
        name = f"execute_tool {call.name}"
        return self._span(name, id, self._root, _INTERNAL, step.ended, ended, attributes, failure)

    def _span(
        self,
        name: str,
        id: str,
        parent: str | None,
        kind: int,
        started: int,
        ended: int,
        attributes: JsonObject,
        failure: tuple[str, str] | None,
    ) -> JsonObject:
        attributes = {**attributes, "gen_ai.conversation.id": self._session}
        if failure is not None:
            attributes["error.type"] = failure[0]
        return {
            "traceId": self._id,
            "spanId": id,
            **({} if parent is None else {"parentSpanId": parent}),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": f"{started}000000",
            "endTimeUnixNano": f"{max(started, ended)}000000",
            "attributes": _attributes(attributes),
            "status": {} if failure is None else {"code": _ERROR, "message": failure[1]},
        }

    def _span_id(self, *names: str) -> str:
        return _digest(self._id, *names)[:16]


def _digest(*names: str) -> str:
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).hexdigest()


def _attributes(values: JsonObject) -> list[JsonObject]:
    """Attributes with a value, in OTLP's form."""
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value not in (None, "", [])]


def _value(value: Any) -> JsonObject:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
        case _:
            return {"stringValue": str(value)}


def _provider(answer: Assistant | None) -> str:
    name = (answer.provider if answer is not None else None) or "unknown"
    return next((full for full in _PLATFORMS if full.endswith(f".{name}")), _PROVIDERS.get(name, name))


def _finish(answer: Assistant) -> str:
    return _FINISH.get(answer.stop_reason or "stop", answer.stop_reason or "stop")


def _failure(answer: Assistant | None) -> tuple[str, str] | None:
    if answer is None or answer.stop_reason not in ("error", "aborted"):
        return None
    return answer.stop_reason, answer.error_message or ""


def _usage(answers: list[Assistant]) -> JsonObject:
    """Token counts. The conventions also count cached tokens as input."""
    used = [answer.usage for answer in answers if answer.usage is not None]
    if not used:
        return {}
    read, written = (sum(int(valid_count(n)) for n in counts) for counts in _cached(used))
    return {
        "gen_ai.usage.input_tokens": sum(int(valid_count(usage.input)) for usage in used) + read + written,
        "gen_ai.usage.output_tokens": sum(int(valid_count(usage.output)) for usage in used),
        "gen_ai.usage.cache_read.input_tokens": read,
        "gen_ai.usage.cache_creation.input_tokens": written,
    }


def _cached(used: list[Any]) -> tuple[list[Any], list[Any]]:
    return [usage.cache_read for usage in used], [usage.cache_write for usage in used]


def _messages(messages: list[Message]) -> str | None:
    """Messages in the conventions' JSON, as text: most backends do not take structured attributes of spans."""
    rendered: list[JsonObject] = []
    for message in messages:
        fields: JsonObject = {"role": _ROLES.get(message.role, "user"), "parts": list(_parts(message))}
        if isinstance(message, Assistant):
            fields["finish_reason"] = _finish(message)
        rendered.append(fields)
    return render_json(rendered).decode() if rendered else None


def _parts(message: Message) -> Iterator[JsonObject]:
    if isinstance(message, ToolResult):
        yield {"type": "tool_call_response", "id": message.tool_call_id, "response": text_of(message.content)}
        return
    for block in message_blocks(message):
        match block:
            case Text():
                yield {"type": "text", "content": block.text}
            case Thinking():
                yield {"type": "reasoning", "content": block.thinking}
            case ToolCall():
                yield {"type": "tool_call", "id": block.id, "name": block.name, "arguments": block.arguments}
            case Image():
                yield {"type": "blob", "modality": "image", "mime_type": block.mime_type, "content": block.data}
            case _:
                continue
