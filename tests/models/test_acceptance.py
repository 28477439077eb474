"""Providers accept the request that the library makes from any conversation.

Requests are checked as they arrive at a server, with the validators of `tests/providers`, which follow the providers'
documentation.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import assume, given

from sessiontree.core.messages import Message
from sessiontree.models import Request, ScriptTurn, answer, open_model
from sessiontree.models.endpoints import find_endpoint
from sessiontree.models.to_provider import to_provider
from sessiontree.testing.model_server import ModelServer
from tests.builders import examples
from tests.models.helpers import MODELS
from tests.providers.test_properties import (
    MESSAGES,
    check_anthropic,
    check_chat,
    check_encodable,
    check_responses,
)


def arrived(messages: list[Message], protocol: str) -> dict[str, Any]:
    """The body of the request for some messages."""
    with ModelServer([ScriptTurn(text="ok")]) as server:
        environment = server.environment()
        assume(to_provider(messages, find_endpoint(MODELS[protocol], environment)).messages)

        async def ask() -> None:
            model = open_model(MODELS[protocol], environment=environment)
            try:
                await answer(model, Request(messages))
            finally:
                await model.close()

        asyncio.run(ask())
        body = server.requests[0].body
    check_encodable(body)
    return body


@examples(25)
@given(MESSAGES)
def test_anthropic_accepts_the_request_of_any_conversation(messages: list[Message]) -> None:
    sent = arrived(messages, "anthropic")["messages"]
    for message in sent:
        for block in message["content"]:
            if block.get("is_error") is False:
                del block["is_error"]
    if sent[-1]["role"] == "assistant":
        # A request ends with a user message; the caller has to add one if there is none.
        sent = sent[:-1]
    check_anthropic(sent)


@examples(25)
@given(MESSAGES)
def test_chat_completions_accepts_the_request_of_any_conversation(messages: list[Message]) -> None:
    sent = arrived(messages, "chat")["messages"]
    for message in sent:
        message.setdefault("content", None)
    check_chat(sent)


@examples(25)
@given(MESSAGES)
def test_the_responses_api_accepts_the_request_of_any_conversation(messages: list[Message]) -> None:
    items = [_spelled_out(item) for item in arrived(messages, "responses")["input"] if item.get("role") != "system"]
    check_responses(items)


def _spelled_out(item: dict[str, Any]) -> dict[str, Any]:
    """An item without the short forms that the API allows."""
    if item.get("type") == "function_call_output":
        output = item["output"]
        text = output if isinstance(output, str) else " ".join(part.get("text", "an image") for part in output)
        return {**item, "output": text}
    if item.get("type", "message") != "message":
        return item
    content = item["content"]
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    return {
        **item,
        "type": "message",
        "content": [{"type": kind, "text": content}] if isinstance(content, str) else content,
    }
