"""Models of providers, through the real library, against a server that speaks their protocols."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sessiontree.core.messages import (
    Assistant,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
    text_of,
    tool_calls,
)
from sessiontree.errors import (
    BusyModelError,
    ContextOverflowError,
    ModelAccessError,
    ModelError,
    RefusedRequestError,
    UnreachableError,
)
from sessiontree.models import (
    AnswerAccumulator,
    BlockEnd,
    Request,
    ScriptTurn,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
    answer,
    open_model,
)
from sessiontree.models.scripted import ErrorKind, ScriptCall, ScriptError
from sessiontree.testing.model_server import ModelServer
from tests.models.helpers import HELLO, MODELS, PICTURE, READ, ask, ask_server, message, request

every_protocol = pytest.mark.parametrize("protocol", MODELS)

TWO_CALLS = ScriptTurn(
    thinking="Two files, so two calls.",
    text="I look at both.",
    tool_calls=(ScriptCall("read", {"path": "a.py"}, "call_a"), ScriptCall("read", {"path": "日本.py"}, "call_b")),
    usage=Usage(100, 20, 30, 0),
    piece=5,
)


def conversation(body: dict[str, Any]) -> list[Any]:
    """The messages of a request in any protocol, without cache markers."""
    found = body.get("messages") or body.get("input") or body["contents"]
    kept: list[Any] = json.loads(json.dumps(found), object_hook=_without_marks)
    return kept


def _without_marks(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in ("cache_control", "prompt_cache_breakpoint")}


@every_protocol
def test_an_answer_arrives_as_deltas_and_as_a_message(protocol: str) -> None:
    with ModelServer([TWO_CALLS]) as server:
        (events,) = ask_server(server, MODELS[protocol], HELLO)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "I look at both."
    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)) == "Two files, so two calls."
    starts = [event for event in events if isinstance(event, ToolCallStart)]
    assert [(start.id, start.name) for start in starts] == [("call_a", "read"), ("call_b", "read")]
    for start, path in zip(starts, ("a.py", "日本.py"), strict=True):
        pieces = [
            event.arguments for event in events if isinstance(event, ToolCallDelta) and event.index == start.index
        ]
        assert json.loads("".join(pieces)) == {"path": path}
    whole = message(events)
    assert text_of(whole.content) == "I look at both."
    assert [call.arguments for call in tool_calls(whole)] == [{"path": "a.py"}, {"path": "日本.py"}]
    assert whole.stop_reason == "toolUse"
    assert [event.block for event in events if isinstance(event, BlockEnd)] == list(whole.content)
    assert (whole.provider, whole.model) == tuple(MODELS[protocol].split(":"))


@every_protocol
def test_usage_counts_cached_tokens_separately_and_has_the_cost(protocol: str) -> None:
    with ModelServer([TWO_CALLS]) as server:
        (events,) = ask_server(server, MODELS[protocol], HELLO)
    (report,) = [event for event in events if isinstance(event, UsageReport)]
    usage = message(events).usage
    assert usage == report.usage
    assert usage is not None
    assert (usage.input, usage.output, usage.cache_read, usage.total_tokens) == (100, 20, 30, 150)
    if protocol == "anthropic":
        assert usage.cost is not None
        assert usage.cost.total == pytest.approx((100 * 5 + 20 * 25 + 30 * 0.5) / 1_000_000)
    if protocol == "chat":
        assert usage.cost is None


def test_tokens_written_to_the_cache_are_counted_where_a_provider_reports_them() -> None:
    with ModelServer([ScriptTurn(text="x", usage=Usage(7, 1, 2, 50))]) as server:
        (events,) = ask_server(server, MODELS["anthropic"], HELLO)
    usage = message(events).usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.cache_write) == (7, 2, 50)


@every_protocol
def test_received_messages_are_sent_back_with_signatures_results_and_images(protocol: str) -> None:
    with ModelServer([TWO_CALLS, ScriptTurn(text="done")]) as server:
        (events,) = ask_server(server, MODELS[protocol], HELLO)
        answered = message(events)
        results = (
            ToolResult(tool_call_id="call_a", tool_name="read", content=(Text("one"), Text("two"), Image(PICTURE))),
            ToolResult(tool_call_id="call_b", tool_name="read", content="no such file", is_error=True),
        )
        follow = User(content=(Text("and this?"), Image(PICTURE)))
        ask_server(server, MODELS[protocol], request(User(content="hello"), answered, *results, follow))
        first, second = (conversation(recorded.body) for recorded in server.requests)
    assert second[: len(first)] == first, "the beginning is the same, so the provider's cache stays valid"
    CHECKS[protocol](second)


def check_anthropic(sent: list[Any]) -> None:
    _, answered, asked = sent
    assert answered["content"] == [
        {"type": "thinking", "thinking": "Two files, so two calls.", "signature": TWO_CALLS.signature},
        {"type": "text", "text": "I look at both."},
        {"type": "tool_use", "id": "call_a", "name": "read", "input": {"path": "a.py"}},
        {"type": "tool_use", "id": "call_b", "name": "read", "input": {"path": "日本.py"}},
    ]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
    one, two, *rest = asked["content"]
    assert (one["tool_use_id"], one["is_error"]) == ("call_a", False)
    assert one["content"] == [{"type": "text", "text": "one\ntwo"}, image]
    assert (two["tool_use_id"], two["is_error"]) == ("call_b", True)
    assert rest == [{"type": "text", "text": "and this?"}, image]


def check_responses(sent: list[Any]) -> None:
    reasoning = next(item for item in sent if item.get("type") == "reasoning")
    assert (reasoning["id"], reasoning["encrypted_content"]) == ("rs_1", TWO_CALLS.signature)
    assert reasoning["summary"] == [{"type": "summary_text", "text": "Two files, so two calls."}]
    text = next(item for item in sent if item.get("type") == "message")
    assert (text["id"], text["content"][0]["text"]) == ("msg_1", "I look at both.")
    calls = [item for item in sent if item.get("type") == "function_call"]
    assert [(call["id"], call["call_id"]) for call in calls] == [("fc_1_1", "call_a"), ("fc_1_2", "call_b")]
    assert json.loads(calls[1]["arguments"]) == {"path": "日本.py"}
    one, two = (item for item in sent if item.get("type") == "function_call_output")
    assert [part["type"] for part in one["output"]] == ["input_text", "input_image"]
    assert PICTURE in one["output"][1]["image_url"]
    assert json.loads(two["output"]) == {"error": "no such file"}
    assert [part["type"] for part in sent[-1]["content"]] == ["input_text", "input_image"]


def check_chat(sent: list[Any]) -> None:
    system, _, answered, one, two, pictures, rest = sent
    assert system == {"role": "system", "content": "be brief"}
    assert answered["content"] == "I look at both."
    assert [call["id"] for call in answered["tool_calls"]] == ["call_a", "call_b"]
    assert json.loads(answered["tool_calls"][1]["function"]["arguments"]) == {"path": "日本.py"}
    assert one["content"].startswith("one\ntwo\n")
    assert json.loads(two["content"]) == {"error": "no such file"}
    assert PICTURE in pictures["content"][0]["image_url"]["url"]
    assert [part["type"] for part in rest["content"]] == ["text", "image_url"]


def check_gemini(sent: list[Any]) -> None:
    _, answered, *asked = sent
    text, one, two = answered["parts"]
    assert text == {"text": "I look at both."}
    assert (one["functionCall"]["id"], one["thoughtSignature"]) == ("call_a", TWO_CALLS.signature)
    assert two["functionCall"]["args"] == {"path": "日本.py"}
    answers = [part["functionResponse"] for turn in asked for part in turn["parts"] if "functionResponse" in part]
    assert [answer["id"] for answer in answers] == ["call_a", "call_b"]
    assert answers[1]["response"] == {"error": "no such file"}
    assert "inline_data" in json.dumps(answers[0]) or "inlineData" in json.dumps(answers[0])


CHECKS = {
    "anthropic": check_anthropic,
    "responses": check_responses,
    "chat": check_chat,
    "gemini": check_gemini,
}


def test_redacted_thinking_is_sent_back_unchanged() -> None:
    with ModelServer([ScriptTurn(redacted="c2VjcmV0", text="hm"), ScriptTurn(text="done")]) as server:
        (events,) = ask_server(server, MODELS["anthropic"], HELLO)
        answered = message(events)
        ask_server(server, MODELS["anthropic"], request(User(content="hello"), answered, User(content="go on")))
        sent = server.requests[1].body["messages"][1]["content"]
    assert isinstance(answered.content, tuple)
    assert answered.content[0] == Thinking("", "c2VjcmV0", redacted=True)
    assert sent[0] == {"type": "redacted_thinking", "data": "c2VjcmV0"}


@every_protocol
def test_thinking_of_another_provider_is_not_sent_and_never_as_text(protocol: str) -> None:
    foreign = Assistant(
        content=(Thinking("a foreign thought", "c2ln"), Text("hello"), ToolCall("1|2", "read", {}, "dGhvdWdodA==")),
        api="someone-elses",
        provider="elsewhere",
        model="theirs",
    )
    with ModelServer([ScriptTurn(text="ok")]) as server:
        ask_server(server, MODELS[protocol], request(User(content="x"), foreign, User(content="go on")))
        sent = json.dumps(server.requests[0].body)
    assert "foreign thought" not in sent
    assert "dGhvdWdodA" not in sent
    assert "No result was recorded" in sent, "the open call is answered"


@every_protocol
def test_canceling_in_the_middle_closes_the_connection_and_keeps_the_partial_answer(protocol: str) -> None:
    async def cancelled(server: ModelServer) -> Assistant | None:
        model = open_model(MODELS[protocol], environment=server.environment())
        accumulator = AnswerAccumulator()
        came = asyncio.Event()

        async def read() -> None:
            async for event in model.stream(HELLO):
                accumulator.add(event)
                came.set()

        task = asyncio.create_task(read())
        await asyncio.wait_for(came.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await model.close()
        return accumulator.message()

    with ModelServer([ScriptTurn(text="word " * 200, piece=5, delay=0.05)]) as server:
        partial = asyncio.run(cancelled(server))
        assert server.wait_for("left").path
    assert partial is not None
    assert text_of(partial.content).startswith("word")
    assert partial.stop_reason == "aborted"


def test_several_requests_run_at_the_same_time() -> None:
    async def all_at_once(server: ModelServer) -> list[Assistant]:
        model = open_model(MODELS["anthropic"], environment=server.environment())
        try:
            return await asyncio.gather(*(answer(model, HELLO) for _ in range(5)))
        finally:
            await model.close()

    with ModelServer([ScriptTurn(text="slowly", piece=1, delay=0.05, repeat=True)]) as server:
        answers = asyncio.run(all_at_once(server))
    assert [text_of(one.content) for one in answers] == ["slowly"] * 5
    assert len({one.response_id for one in answers}) == 5


def test_a_model_can_be_used_in_one_event_loop_after_another() -> None:
    with ModelServer([ScriptTurn(text="again", repeat=True)]) as server:
        model = open_model(MODELS["anthropic"], environment=server.environment())
        for _ in range(2):
            assert text_of(message(ask(model, HELLO)[0]).content) == "again"


def test_closing_the_stream_ends_the_request_too() -> None:
    async def closed(server: ModelServer) -> None:
        model = open_model(MODELS["anthropic"], environment=server.environment())
        stream = model.stream(HELLO)
        await anext(stream)
        await stream.aclose()
        await model.close()

    with ModelServer([ScriptTurn(text="word " * 200, piece=5, delay=0.05)]) as server:
        asyncio.run(closed(server))
        server.wait_for("left")


ERRORS: list[tuple[ErrorKind, type[ModelError], str]] = [
    ("rate_limit", BusyModelError, "rate limit"),
    ("overloaded", BusyModelError, "overloaded"),
    ("server", BusyModelError, "fault"),
    ("overflow", ContextOverflowError, "larger than the model's window"),
    ("auth", ModelAccessError, "_API_KEY"),
    ("refused", RefusedRequestError, "rejected this request"),
]


@every_protocol
@pytest.mark.parametrize(("kind", "expected", "text"), ERRORS)
def test_rejections_become_errors_with_a_next_step(
    protocol: str, kind: ErrorKind, expected: type[ModelError], text: str
) -> None:
    with ModelServer([ScriptTurn(error=ScriptError(kind))]) as server:
        with pytest.raises(expected, match=text) as raised:
            ask_server(server, MODELS[protocol], HELLO)
        assert len(server.requests) == 1, "the library sends each request once"
    assert type(raised.value) is expected
    assert str(raised.value).startswith(MODELS[protocol])
    assert raised.value.partial is None


@pytest.mark.parametrize("protocol", ["anthropic", "responses", "chat"])
def test_a_rate_limit_has_the_delay(protocol: str) -> None:
    with (
        ModelServer([ScriptTurn(error=ScriptError("rate_limit", retry_after=7))]) as server,
        pytest.raises(BusyModelError, match="try again in 7 s") as raised,
    ):
        ask_server(server, MODELS[protocol], HELLO)
    assert raised.value.retry_after == 7


@pytest.mark.parametrize("protocol", ["anthropic", "responses", "chat"])
def test_an_account_without_credit_is_an_access_error_and_not_retried(protocol: str) -> None:
    with (
        ModelServer([ScriptTurn(error=ScriptError("quota"))]) as server,
        pytest.raises(ModelAccessError, match="credit or quota"),
    ):
        ask_server(server, MODELS[protocol], HELLO)


@every_protocol
def test_an_error_in_the_middle_of_an_answer_keeps_the_partial_answer(protocol: str) -> None:
    turn = ScriptTurn(text="the first half", error=ScriptError("overloaded", in_stream=True))
    with ModelServer([turn]) as server, pytest.raises(BusyModelError) as raised:
        ask_server(server, MODELS[protocol], HELLO)
    partial = raised.value.partial
    assert isinstance(partial, Assistant)
    assert text_of(partial.content) == "the first half"
    assert partial.stop_reason == "error"


@every_protocol
def test_a_dropped_connection_is_not_a_complete_answer(protocol: str) -> None:
    with (
        ModelServer([ScriptTurn(text="never to be finished " * 5, drop_after=6)]) as server,
        pytest.raises(UnreachableError) as raised,
    ):
        ask_server(server, MODELS[protocol], HELLO)
    partial = raised.value.partial
    assert isinstance(partial, Assistant)
    assert text_of(partial.content).startswith("never")


@every_protocol
def test_a_missing_server_is_unreachable(protocol: str) -> None:
    with ModelServer([]) as server:
        gone = server.environment()
    with pytest.raises(UnreachableError, match="connection failed"):
        ask(open_model(MODELS[protocol], environment=gone), HELLO)


@every_protocol
@pytest.mark.parametrize(("stop", "reason"), [("length", "length"), ("refusal", "error")])
def test_the_stop_reason_is_reported(protocol: str, stop: Any, reason: str) -> None:
    with ModelServer([ScriptTurn(text="so far", stop=stop)]) as server:
        (events,) = ask_server(server, MODELS[protocol], HELLO)
    ended = message(events)
    assert ended.stop_reason == reason
    assert (ended.error_message is None) == (reason != "error")


def test_local_servers_are_configured_by_their_usual_variables() -> None:
    names = ["ollama:qwen3", "vllm:Qwen/Qwen3", "llamacpp:any", "openai-chat:gpt-4.1"]
    with ModelServer([ScriptTurn(text="hi", repeat=True)]) as server:
        for name in names:
            (events,) = ask_server(server, name, HELLO)
            assert text_of(message(events).content) == "hi"
        assert {one.path for one in server.requests} == {"/v1/chat/completions"}
        assert [one.body["model"] for one in server.requests] == ["qwen3", "Qwen/Qwen3", "any", "gpt-4.1"]


def test_an_overflow_reported_only_in_the_message_text_is_recognized() -> None:
    from pydantic_ai.exceptions import ModelHTTPError, ModelRequestRejectedError

    from sessiontree.models.endpoints import find_endpoint
    from sessiontree.models.pydantic_ai_errors import map_error

    endpoint = find_endpoint("llamacpp:any", {})
    bodies: list[dict[str, Any]] = [
        {"error": {"code": 400, "message": "too large", "type": "exceed_context_size_error"}},
        {"error": {"message": "the request exceeds the available context size", "type": "invalid_request_error"}},
    ]
    for body in bodies:
        error = ModelHTTPError.for_category(ModelRequestRejectedError, status_code=400, model_name="any", body=body)
        assert isinstance(map_error(error, endpoint, None), ContextOverflowError)


def test_thinking_and_limits_of_a_request_are_sent_in_the_providers_fields() -> None:
    asked = Request([User(content="x")], None, [READ], max_tokens=77, thinking="high", cache=False)
    with ModelServer([ScriptTurn(text="ok", repeat=True)]) as server:
        ask_server(server, MODELS["anthropic"], asked)
        ask_server(server, MODELS["responses"], asked)
        anthropic, responses = (one.body for one in server.requests)
    assert anthropic["max_tokens"] == 77
    assert "system" not in anthropic
    assert "cache_control" not in json.dumps(anthropic)
    assert responses["max_output_tokens"] == 77
    assert responses["reasoning"]["effort"] == "high"
    assert responses["store"] is False, "the provider must not store the conversation"
