"""Any recorded conversation becomes a valid conversation of the library, deterministically."""

from __future__ import annotations

import pydantic_ai.messages as library
import pytest

from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    CompactionSummary,
    Message,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from sessiontree.models.endpoints import Endpoint, find_endpoint
from sessiontree.models.to_provider import Sendable, to_provider
from sessiontree.testing.model_server import ModelServer

NAMES = ("anthropic:claude-opus-5", "openai:gpt-5.6", "openai-compatible:x", "google:gemini-3.5-flash")


@pytest.fixture(params=NAMES)
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    with ModelServer([]) as server:
        return find_endpoint(request.param, server.environment())


def shape(sendable: Sendable) -> list[str]:
    return [f"{message.kind}:{','.join(part.part_kind for part in message.parts)}" for message in sendable.messages]


def test_results_and_the_user_message_after_them_are_one_request(endpoint: Endpoint) -> None:
    messages: list[Message] = [
        System(content="rules"),
        User(content="go"),
        Assistant(content=(Text("ok"), ToolCall("a", "read", {}), ToolCall("b", "read", {}))),
        ToolResult(tool_call_id="b", content="2"),
        ToolResult(tool_call_id="a", content="1"),
        User(content="next"),
    ]
    sent = to_provider(messages, endpoint)
    assert sent.system == "rules"
    assert shape(sent) == [
        "request:user-prompt",
        "response:text,tool-call,tool-call",
        "request:tool-return,tool-return,user-prompt",
    ]


def test_user_texts_are_inserted_where_assistant_messages_come_first_or_follow_each_other(endpoint: Endpoint) -> None:
    sent = to_provider([Assistant(content="a"), Assistant(content="b"), User(content="c")], endpoint)
    assert shape(sent) == [
        "request:user-prompt",
        "response:text",
        "request:user-prompt",
        "response:text",
        "request:user-prompt",
    ]
    assert len(sent.notes) == 2


def test_summaries_and_commands_become_user_texts(endpoint: Endpoint) -> None:
    messages: list[Message] = [CompactionSummary(summary="we did x"), BashExecution(command="ls", output="a.py")]
    (request,) = to_provider(messages, endpoint).messages
    user_text = " ".join(str(part.content) for part in request.parts if isinstance(part, library.UserPromptPart))
    assert "we did x" in user_text
    assert "a.py" in user_text


def test_thinking_with_nothing_after_it_or_no_signature_is_left_out(endpoint: Endpoint) -> None:
    answer = Assistant(
        content=(Thinking("unsigned"), Text("x"), Thinking("signed", "c2ln")),
        api=endpoint.api,
        provider=endpoint.provider,
        model="claude" if endpoint.provider == "anthropic" else "m",
    )
    sent = to_provider([User(content="q"), answer, User(content="r")], endpoint)
    assert shape(sent)[1] == "response:text"


def test_a_longer_conversation_begins_with_the_shorter_one(endpoint: Endpoint) -> None:
    messages: list[Message] = [
        User(content="go"),
        Assistant(content=(ToolCall("odd id / with | signs", "read", {"a": 1}),)),
        ToolResult(tool_call_id="odd id / with | signs", content="1"),
        Assistant(content="done"),
    ]
    longer = [*messages, User(content="more"), Assistant(content="yes"), User(content="again")]
    shown = [
        [
            (part.part_kind, getattr(part, "content", None))
            for message in to_provider(some, endpoint).messages
            for part in message.parts
        ]
        for some in (messages, longer)
    ]
    assert shown[1][: len(shown[0])] == shown[0]


def test_thinking_in_a_field_is_sent_back_only_to_a_server_that_accepts_that_field() -> None:
    with ModelServer([]) as server:
        endpoint = find_endpoint("openai-compatible:x", server.environment())
    answer = Assistant(
        content=(Thinking("hm", "reasoning_content"), Text("x")), api=endpoint.api, provider=endpoint.provider
    )
    for field, kinds in (("reasoning_content", "thinking,text"), ("reasoning", "text"), (None, "text")):
        assert shape(to_provider([User(content="q"), answer], endpoint, field))[1] == f"response:{kinds}"
