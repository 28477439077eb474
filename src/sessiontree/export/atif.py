"""A session as a trajectory in the Agent Trajectory Interchange Format (ATIF), version 1.7.

`sessiontree.conversion.trajectory` reads such documents.
"""

from __future__ import annotations

from collections.abc import Iterator

from sessiontree import __version__
from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import JsonObject, render_json
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    Content,
    Image,
    Message,
    System,
    Text,
    Thinking,
    ToolResult,
    Usage,
    User,
    blocks_of,
    message_blocks,
    text_of,
)
from sessiontree.core.usage import valid_count
from sessiontree.export.source import Source
from sessiontree.export.turns import Step, iter_turns

VERSION = "ATIF-v1.7"
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def render_atif(source: Source) -> Iterator[bytes]:
    """One trajectory as JSON, step by step."""
    facts = source.facts()
    model = source.session.context().state.model
    agent: JsonObject = {"name": facts.dialect, "version": "unknown"}
    if model is not None and model.model_id:
        agent["model_name"] = model.model_id
    head = {"schema_version": VERSION, "session_id": facts.id, "agent": agent}
    about = {"title": facts.title, "cwd": facts.folder, "exported_by": f"sessiontree {__version__}"}
    head["extra"] = {name: value for name, value in about.items() if value}
    yield render_json(head)[:-1] + b',"steps":['
    count = 0
    for turn in iter_turns(source):
        for step in turn.steps:
            count += 1
            rendered = {"step_id": count, **_step(step)}
            yield (b"," if count > 1 else b"") + render_json(rendered)
    used = source.used()
    metrics: JsonObject = {
        "total_prompt_tokens": used.input + used.cached + used.cache_written,
        "total_completion_tokens": used.output,
        "total_cached_tokens": used.cached,
        "total_steps": count,
    }
    if used.cost:
        metrics["total_cost_usd"] = used.cost
    yield b'],"final_metrics":' + render_json(metrics) + b"}\n"


def _step(step: Step) -> JsonObject:
    message = step.message
    fields: JsonObject = {"timestamp": iso_time(step.ended), "source": _origin(message)}
    if not isinstance(message, Assistant):
        fields["message"] = message.command if isinstance(message, BashExecution) else _content(_shown(message))
        if not isinstance(message, User | System):
            fields["extra"] = {"role": message.role}
        if isinstance(message, BashExecution):
            result = {"content": message.output, "extra": {"exit_code": message.exit_code}}
            fields["observation"] = {"results": [result]}
        return fields
    fields["message"] = _content(message.content)
    fields["llm_call_count"] = 1
    if message.model:
        fields["model_name"] = message.model
    thought = "\n\n".join(block.thinking for block in blocks_of(message.content) if isinstance(block, Thinking))
    if thought:
        fields["reasoning_content"] = thought
    if step.calls:
        fields["tool_calls"] = [
            {"tool_call_id": call.id, "function_name": call.name, "arguments": call.arguments} for call in step.calls
        ]
        fields["observation"] = {"results": [_result(result.message) for result in step.results.values()]}
    if message.usage is not None:
        fields["metrics"] = _metrics(message.usage)
    about = {"provider": message.provider, "stop_reason": message.stop_reason, "error": message.error_message}
    fields["extra"] = {name: value for name, value in about.items() if value}
    return fields


def _origin(message: Message) -> str:
    match message:
        case Assistant():
            return "agent"
        case User():
            return "user"
        case _:
            return "system"


def _shown(message: Message) -> Content:
    return message.content if isinstance(message, ToolResult) else message_blocks(message)


def _content(content: Content) -> str | list[JsonObject]:
    """A text, or parts if there are images."""
    blocks = blocks_of(content)
    if not any(isinstance(block, Image) and block.mime_type in _IMAGES for block in blocks):
        return text_of(content)
    parts: list[JsonObject] = []
    for block in blocks:
        if isinstance(block, Text):
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, Image) and block.mime_type in _IMAGES:
            path = f"data:{block.mime_type};base64,{block.data}"
            parts.append({"type": "image", "source": {"media_type": block.mime_type, "path": path}})
    return parts


def _result(result: ToolResult) -> JsonObject:
    fields: JsonObject = {"source_call_id": result.tool_call_id, "content": _content(result.content)}
    return {**fields, "extra": {"is_error": True}} if result.is_error else fields


def _metrics(usage: Usage) -> JsonObject:
    """Token counts. The format counts cached tokens as part of the prompt."""
    cached, written = int(valid_count(usage.cache_read)), int(valid_count(usage.cache_write))
    fields: JsonObject = {
        "prompt_tokens": int(valid_count(usage.input)) + cached + written,
        "completion_tokens": int(valid_count(usage.output)),
        "cached_tokens": cached,
    }
    if usage.cost is not None:
        fields["cost_usd"] = valid_count(usage.cost.total)
    return {**fields, "extra": {"cache_creation_input_tokens": written}} if written else fields
