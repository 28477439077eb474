"""Convert messages to the library's. Deterministic, so that the provider's prompt cache stays valid.

The rules that all providers share are applied first (`providers.turns`, `providers.tool_calls`). Then turns
become the library's parts, and blocks get their provider data (`signatures`), if the receiving provider is the one that
wrote them. Nothing here sends a request.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import assert_never

import pydantic_ai.messages as library
from msgspec import Struct
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from sessiontree.core.messages import Image, Message, RedactedThinking, Text, Thinking, ToolCall
from sessiontree.models.base import Tool
from sessiontree.models.endpoints import Api, Endpoint
from sessiontree.models.signatures import NONE, Mark, parse_call, parse_text, parse_thinking
from sessiontree.providers import anthropic, openai
from sessiontree.providers.templates import NO_OUTPUT, NO_USER_BEFORE, NO_USER_BETWEEN
from sessiontree.providers.tool_calls import Limits, pair_results, rename_tools
from sessiontree.providers.turns import (
    Answer,
    AssistantBlock,
    AssistantTurn,
    ResultsTurn,
    Turn,
    UserBlock,
    UserTurn,
    read_conversation,
)

LIMITS: dict[Api, Limits] = {
    "anthropic-messages": anthropic.LIMITS,
    "openai-responses": openai.RESPONSES_LIMITS,
    "openai-completions": openai.CHAT_LIMITS,
    "google-generative-ai": Limits(call_id=64, tool_name=64),
}

REDACTED = "redacted_thinking"
"""The library's id for redacted thinking."""


class Sendable(Struct, frozen=True):
    """A conversation as the library's messages."""

    system: str | None
    messages: list[library.ModelMessage]
    notes: tuple[str, ...] = ()
    """One sentence for each change or omission."""


def to_provider(messages: Sequence[Message], endpoint: Endpoint, thinking_field: str | None = None) -> Sendable:
    """Convert a conversation for a model.

    `thinking_field` is the field in which a Chat Completions server accepts thinking back; most accept none.
    """
    conversation = read_conversation(messages)
    notes = list(conversation.notes)
    turns = rename_tools(pair_results(conversation.turns, "complete", notes), LIMITS[endpoint.api], notes)
    names = {
        block.id: block.name
        for turn in turns
        if isinstance(turn, AssistantTurn)
        for block in turn.blocks
        if isinstance(block, ToolCall)
    }
    sent: list[library.ModelMessage] = []
    for turn in turns:
        _add(sent, turn, names, endpoint, thinking_field, notes)
    if sent and isinstance(sent[0], library.ModelResponse):
        sent.insert(0, _user_request(NO_USER_BEFORE))
        notes.append("A user text was inserted before the first message, which is the assistant's.")
    return Sendable(conversation.system, sent, tuple(notes))


def parameters(tools: Sequence[Tool], system: str | None) -> ModelRequestParameters:
    """Request parameters: system text and tools."""
    return ModelRequestParameters(
        function_tools=[
            # Not strict: that would change the schema that the tool's author wrote.
            ToolDefinition(
                name=tool.name, parameters_json_schema=tool.parameters, description=tool.description, strict=False
            )
            for tool in tools
        ],
        instruction_parts=[library.InstructionPart(system)] if system else [],
    )


def _add(
    sent: list[library.ModelMessage],
    turn: Turn,
    names: dict[str, str],
    endpoint: Endpoint,
    thinking_field: str | None,
    notes: list[str],
) -> None:
    match turn:
        case UserTurn():
            _add_request_parts(sent, [library.UserPromptPart(_content(turn.blocks))])
        case ResultsTurn():
            _add_request_parts(sent, _results(turn.answers, names, endpoint.api))
        case AssistantTurn():
            parts = _response_parts(turn, endpoint, thinking_field, notes)
            if parts:
                _add_response(sent, parts, turn, endpoint, notes)
        case _:
            assert_never(turn)


def _add_request_parts(sent: list[library.ModelMessage], parts: list[library.ModelRequestPart]) -> None:
    """Add parts to the last request: results and the user message after them are one request."""
    if sent and isinstance(sent[-1], library.ModelRequest):
        sent[-1] = library.ModelRequest([*sent[-1].parts, *parts])
    else:
        sent.append(library.ModelRequest(parts))


def _add_response(
    sent: list[library.ModelMessage],
    parts: list[library.ModelResponsePart],
    turn: AssistantTurn,
    endpoint: Endpoint,
    notes: list[str],
) -> None:
    if sent and isinstance(sent[-1], library.ModelResponse):
        sent.append(_user_request(NO_USER_BETWEEN))
        notes.append("A user text was inserted between two assistant messages.")
    is_own = _is_own(turn, endpoint)
    sent.append(
        library.ModelResponse(
            parts,
            provider_name=_system(endpoint) if is_own else turn.provider,
            model_name=turn.model,
        )
    )


def _user_request(text: str) -> library.ModelRequest:
    return library.ModelRequest([library.UserPromptPart(text)])


def _content(blocks: Sequence[UserBlock]) -> str | list[library.UserContent]:
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return blocks[0].text
    return [block.text if isinstance(block, Text) else _image(block) for block in blocks]


def _image(image: Image) -> library.BinaryContent:
    return library.BinaryContent(base64.b64decode(image.data), media_type=image.mime_type)


def _results(answers: Sequence[Answer], names: dict[str, str], api: Api) -> list[library.ModelRequestPart]:
    """Results, followed by the images that are not allowed in a result."""
    parts: list[library.ModelRequestPart] = []
    pictures: list[library.UserContent] = []
    for answer in answers:
        images = [_image(block) for block in answer.blocks if isinstance(block, Image)]
        is_inside = api != "openai-completions" and not (api == "anthropic-messages" and answer.is_error)
        parts.append(_result(answer, names[answer.call_id], images, is_inside=is_inside))
        pictures += [] if is_inside else images
    if pictures:
        parts.append(library.UserPromptPart(pictures))
    return parts


def _result(
    answer: Answer, tool: str, images: list[library.BinaryContent], *, is_inside: bool
) -> library.ToolReturnPart:
    """A result: its text as one string (several would reach some providers as a JSON list), then its images."""
    text = "\n".join(block.text for block in answer.blocks if isinstance(block, Text))
    content: str | list[str | library.BinaryContent] = text or NO_OUTPUT
    if images and is_inside:
        content = [text, *images] if text else [*images]
    elif images:
        content = f"{text}\n{openai.IMAGES_FOLLOW}" if text else openai.IMAGES_FOLLOW
    return library.ToolReturnPart(tool, content, answer.call_id, outcome="failed" if answer.is_error else "success")


def _response_parts(
    turn: AssistantTurn, endpoint: Endpoint, thinking_field: str | None, notes: list[str]
) -> list[library.ModelResponsePart]:
    is_own = _is_own(turn, endpoint)
    parts = []
    for block in turn.blocks:
        part = _response_part(block, endpoint, is_own)
        if isinstance(block, Thinking | RedactedThinking) and not _is_accepted_back(part, endpoint.api, thinking_field):
            notes.append("A thinking block that this provider would not accept was left out.")
        elif part is not None:
            parts.append(part)
    while parts and isinstance(parts[-1], library.ThinkingPart):
        parts.pop()
        notes.append("A thinking block with nothing after it was left out.")
    return parts


def _is_accepted_back(part: library.ModelResponsePart | None, api: Api, thinking_field: str | None) -> bool:
    if not isinstance(part, library.ThinkingPart):
        return False
    # Thinking without such a field would be put into the text by the library, and the model would imitate that style.
    return api != "openai-completions" or (thinking_field is not None and part.id == thinking_field)


def _response_part(block: AssistantBlock, endpoint: Endpoint, is_own: bool) -> library.ModelResponsePart | None:
    api, system = endpoint.api, _system(endpoint)
    match block:
        case Text():
            mark = parse_text(api, block.text_signature) if is_own else NONE
            return library.TextPart(
                block.text, id=mark.id, provider_name=system if mark else None, provider_details=_details(mark)
            )
        case ToolCall():
            mark = parse_call(api, block.thought_signature) if is_own else NONE
            return library.ToolCallPart(
                block.name,
                block.arguments,
                block.id,
                id=mark.id,
                provider_name=system if mark else None,
                provider_details=_details(mark),
            )
        case Thinking() | RedactedThinking():
            return _thinking(block, api, system) if is_own else None
        case _:
            assert_never(block)


def _thinking(block: Thinking | RedactedThinking, api: Api, system: str) -> library.ThinkingPart | None:
    if isinstance(block, RedactedThinking):
        return library.ThinkingPart("", id=REDACTED, signature=block.data, provider_name=system) if block.data else None
    if block.redacted:
        signature = block.thinking_signature
        return library.ThinkingPart("", id=REDACTED, signature=signature, provider_name=system) if signature else None
    mark = parse_thinking(api, block.thinking_signature)
    if not mark:
        return None
    return library.ThinkingPart(block.thinking, id=mark.id, signature=mark.signature, provider_name=system)


def _details(mark: Mark) -> dict[str, str] | None:
    if mark.phase:
        return {"phase": mark.phase}
    return {"thought_signature": mark.signature} if mark.signature else None


def _is_own(turn: AssistantTurn, endpoint: Endpoint) -> bool:
    """Whether the receiving provider wrote the message, and therefore knows its signatures."""
    if endpoint.api == "anthropic-messages":
        return anthropic.is_from_claude(turn)
    if turn.api is not None and turn.api != endpoint.api:
        return False
    return (turn.provider or "").lower() == endpoint.provider


def _system(endpoint: Endpoint) -> str:
    """The library's name of the provider."""
    return "openai" if endpoint.provider == "openai-chat" else endpoint.provider
