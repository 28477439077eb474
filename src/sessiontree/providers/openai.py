"""Render turns for the OpenAI Responses API (input items) and the Chat Completions API (messages).

Neither accepts thinking that it did not store itself, so none is sent. Neither has a flag for failed results, so the
text starts with "Error:". Not all models understand images in results, so those follow in a user message. Consecutive
messages of one role are allowed. Pairs, images and texts are already prepared (see `turns`, `tool_calls`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import assert_never

from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Image, RedactedThinking, Text, Thinking, ToolCall
from sessiontree.providers.templates import NO_OUTPUT
from sessiontree.providers.tool_calls import Limits, rename_tools
from sessiontree.providers.turns import Answer, AssistantTurn, ResultsTurn, Turn, UserBlock, UserTurn

RESPONSES_LIMITS = Limits(call_id=64, tool_name=64)
# The limit is not documented, but the API's error names it: "maximum length 40".
CHAT_LIMITS = Limits(call_id=40, tool_name=64)

IMAGES_FOLLOW = "(The images of this result follow in a user message.)"


def render_items(turns: Sequence[Turn], notes: list[str]) -> list[JsonObject]:
    """Render the `input` field of a Responses request."""
    items: list[JsonObject] = []
    for turn in rename_tools(turns, RESPONSES_LIMITS, notes):
        match turn:
            case UserTurn():
                items.append(_user_item(turn.blocks))
            case AssistantTurn():
                items += _output_items(_without_thinking(turn, notes))
            case ResultsTurn():
                items += [
                    {"type": "function_call_output", "call_id": answer.call_id, "output": _result_text(answer)}
                    for answer in turn.answers
                ]
                if pictures := _pictures(turn.answers):
                    items.append(_user_item(pictures))
            case _:
                assert_never(turn)
    return items


def render_chat(system: str | None, turns: Sequence[Turn], notes: list[str]) -> list[JsonObject]:
    """Render the `messages` field of a Chat Completions request, system text first."""
    messages: list[JsonObject] = [] if system is None else [{"role": "system", "content": system}]
    for turn in rename_tools(turns, CHAT_LIMITS, notes):
        match turn:
            case UserTurn():
                messages.append({"role": "user", "content": _chat_content(turn.blocks)})
            case AssistantTurn():
                if blocks := _without_thinking(turn, notes):
                    messages.append(_chat_assistant(blocks))
            case ResultsTurn():
                messages += [
                    {"role": "tool", "tool_call_id": answer.call_id, "content": _result_text(answer)}
                    for answer in turn.answers
                ]
                if pictures := _pictures(turn.answers):
                    messages.append({"role": "user", "content": _chat_content(pictures)})
            case _:
                assert_never(turn)
    return messages


def _without_thinking(turn: AssistantTurn, notes: list[str]) -> list[Text | ToolCall]:
    blocks: list[Text | ToolCall] = []
    for block in turn.blocks:
        match block:
            case Text() | ToolCall():
                blocks.append(block)
            case Thinking() | RedactedThinking():
                notes.append("A thinking block was left out.")
            case _:
                assert_never(block)
    return blocks


def _result_text(answer: Answer) -> str:
    texts = [block.text for block in answer.blocks if isinstance(block, Text)]
    if len(texts) < len(answer.blocks):
        texts.append(IMAGES_FOLLOW)
    text = "\n".join(texts) or NO_OUTPUT
    return f"Error: {text}" if answer.is_error else text


def _pictures(answers: Sequence[Answer]) -> list[UserBlock]:
    """The images of some results, each group after a text that names its call."""
    pictures: list[UserBlock] = []
    for answer in answers:
        images = [block for block in answer.blocks if isinstance(block, Image)]
        if images:
            pictures += [Text(f"Images of the result of the tool call {answer.call_id}:"), *images]
    return pictures


def _data_url(image: Image) -> str:
    return f"data:{image.mime_type};base64,{image.data}"


def _arguments(call: ToolCall) -> str:
    return json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))


def _user_item(blocks: Sequence[UserBlock]) -> JsonObject:
    return {"type": "message", "role": "user", "content": [_input_part(block) for block in blocks]}


def _input_part(block: UserBlock) -> JsonObject:
    match block:
        case Text():
            return {"type": "input_text", "text": block.text}
        case Image():
            return {"type": "input_image", "image_url": _data_url(block)}
        case _:
            assert_never(block)


def _output_items(blocks: Sequence[Text | ToolCall]) -> list[JsonObject]:
    """Render consecutive texts as one message and each call as an item, in recorded order."""
    items: list[JsonObject] = []
    for _, run in groupby(blocks, key=type):
        parts: list[JsonObject] = []
        for block in run:
            match block:
                case Text():
                    parts.append({"type": "output_text", "text": block.text})
                case ToolCall():
                    items.append(_call_item(block))
                case _:
                    assert_never(block)
        if parts:
            items.append({"type": "message", "role": "assistant", "content": parts})
    return items


def _call_item(call: ToolCall) -> JsonObject:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": _arguments(call)}


def _chat_content(blocks: Sequence[UserBlock]) -> str | list[JsonObject]:
    texts = [block.text for block in blocks if isinstance(block, Text)]
    if len(texts) == len(blocks):
        return "\n".join(texts)
    return [_chat_part(block) for block in blocks]


def _chat_part(block: UserBlock) -> JsonObject:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Image():
            return {"type": "image_url", "image_url": {"url": _data_url(block)}}
        case _:
            assert_never(block)


def _chat_assistant(blocks: Sequence[Text | ToolCall]) -> JsonObject:
    texts = [block.text for block in blocks if isinstance(block, Text)]
    message: JsonObject = {"role": "assistant", "content": "\n".join(texts) or None}
    calls = [_chat_call(block) for block in blocks if isinstance(block, ToolCall)]
    if calls:
        message["tool_calls"] = calls
    return message


def _chat_call(call: ToolCall) -> JsonObject:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}
