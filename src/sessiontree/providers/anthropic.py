"""Render turns for the Anthropic Messages API.

The API rejects requests that break any of these rules:

* The first message is the user's, and roles alternate.
* Results come first in the message after their calls. An error result contains only text.
* No text is blank, and a final assistant message does not end in whitespace.
* Thinking has the signature that Claude gave it, and is never the last block of a message.

Pairs, images and texts are already prepared (see `turns`, `tool_calls`). Within a response the recorded order is kept,
even for thinking between texts and calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Image, RedactedThinking, Text, Thinking, ToolCall
from sessiontree.providers.templates import NO_OUTPUT, NO_USER_BEFORE, NO_USER_BETWEEN
from sessiontree.providers.tool_calls import Limits, rename_tools
from sessiontree.providers.turns import Answer, AssistantBlock, AssistantTurn, ResultsTurn, Turn, UserBlock, UserTurn

# No limit for ids is documented. Other providers allow 64, and ids from Anthropic are much shorter.
LIMITS = Limits(call_id=64, tool_name=128)

THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})


def render_messages(turns: Sequence[Turn], notes: list[str]) -> list[JsonObject]:
    """Render the `messages` field of a request."""
    messages: list[JsonObject] = []
    for turn in rename_tools(turns, LIMITS, notes):
        match turn:
            case UserTurn():
                _append(messages, "user", [_content_block(block) for block in turn.blocks])
            case ResultsTurn():
                _append(messages, "user", _results(turn.answers))
            case AssistantTurn():
                _append_assistant(messages, _assistant_blocks(turn, notes), notes)
            case _:
                assert_never(turn)
    _begin_with_user(messages, notes)
    trim_last_assistant(messages)
    return messages


def _append(messages: list[JsonObject], role: str, blocks: list[JsonObject]) -> None:
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"] += blocks
    else:
        messages.append({"role": role, "content": blocks})


def _append_assistant(messages: list[JsonObject], blocks: list[JsonObject], notes: list[str]) -> None:
    if not blocks:
        return
    if messages and _would_bury_thinking(messages[-1], blocks):
        _append(messages, "user", [{"type": "text", "text": NO_USER_BETWEEN}])
        notes.append("A user text was put between two assistant messages to keep the thinking of the second.")
    _append(messages, "assistant", blocks)


def _begin_with_user(messages: list[JsonObject], notes: list[str]) -> None:
    if messages and messages[0]["role"] == "assistant":
        messages.insert(0, {"role": "user", "content": [{"type": "text", "text": NO_USER_BEFORE}]})
        notes.append("A user text was put before the first message, which was the assistant's.")


def trim_last_assistant(messages: list[JsonObject]) -> None:
    """Remove whitespace at the end of a final assistant message."""
    if messages and messages[-1]["role"] == "assistant":
        last = messages[-1]["content"][-1]
        if last["type"] == "text":
            last["text"] = last["text"].rstrip()


def _content_block(block: UserBlock) -> JsonObject:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Image():
            source = {"type": "base64", "media_type": block.mime_type, "data": block.data}
            return {"type": "image", "source": source}
        case _:
            assert_never(block)


def _results(answers: Sequence[Answer]) -> list[JsonObject]:
    """Result blocks, then the images that are not allowed in an error result."""
    pictures = [_content_block(block) for answer in answers if answer.is_error for block in _images(answer)]
    return [_result(answer) for answer in answers] + pictures


def _result(answer: Answer) -> JsonObject:
    content = [_content_block(block) for block in answer.blocks if not (answer.is_error and isinstance(block, Image))]
    result: JsonObject = {
        "type": "tool_result",
        "tool_use_id": answer.call_id,
        "content": content or [{"type": "text", "text": NO_OUTPUT}],
    }
    if answer.is_error:
        result["is_error"] = True
    return result


def _images(answer: Answer) -> list[Image]:
    return [block for block in answer.blocks if isinstance(block, Image)]


def _assistant_blocks(turn: AssistantTurn, notes: list[str]) -> list[JsonObject]:
    own_thinking = is_from_claude(turn)
    blocks = [
        rendered for block in turn.blocks if (rendered := _assistant_block(block, own_thinking, notes)) is not None
    ]
    while blocks and blocks[-1]["type"] in THINKING_TYPES:
        blocks.pop()
        notes.append("A thinking block with nothing after it was left out.")
    return blocks


def _assistant_block(block: AssistantBlock, own_thinking: bool, notes: list[str]) -> JsonObject | None:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case ToolCall():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}
        case Thinking() | RedactedThinking():
            rendered = _thinking(block)
            if rendered is None:
                notes.append("A thinking block without a signature was left out.")
            elif not own_thinking:
                notes.append("A thinking block of another provider's model was left out.")
                return None
            return rendered
        case _:
            assert_never(block)


def _thinking(block: Thinking | RedactedThinking) -> JsonObject | None:
    match block:
        case RedactedThinking():
            return {"type": "redacted_thinking", "data": block.data} if block.data else None
        case Thinking(thinking_signature=None | ""):
            return None
        case Thinking(redacted=True):
            return {"type": "redacted_thinking", "data": block.thinking_signature}
        case Thinking():
            return {"type": "thinking", "thinking": block.thinking, "signature": block.thinking_signature}
        case _:
            assert_never(block)


def is_from_claude(turn: AssistantTurn) -> bool:
    """False when the turn is from another company's model, whose signatures Anthropic would reject.

    Model and provider take precedence over the API, because other companies serve their models with Anthropic's API.
    """
    if turn.model or turn.provider:
        return "claude-" in (turn.model or "").lower() or "anthropic" in (turn.provider or "").lower()
    return not turn.api or "anthropic" in turn.api.lower()


def _would_bury_thinking(last: JsonObject, blocks: Sequence[JsonObject]) -> bool:
    """True when joining the blocks to the last message would put thinking after other blocks.

    A message with thinking must start with it, so such a response cannot be joined to one without thinking.
    """
    return (
        last["role"] == "assistant"
        and last["content"][0]["type"] not in THINKING_TYPES
        and any(block["type"] in THINKING_TYPES for block in blocks)
    )
