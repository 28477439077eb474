"""The fake model that replays a script: it keeps the contract of `Model`, and its messages name it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sessiontree.core.messages import Assistant, Text, ToolCall, User, text_of, tool_calls
from sessiontree.errors import (
    BusyModelError,
    DamagedError,
    ModelError,
    NotFoundError,
    RefusedRequestError,
    UnreachableError,
)
from sessiontree.models import (
    AnswerAccumulator,
    BlockEnd,
    Request,
    ScriptedModel,
    ScriptTurn,
    Stop,
    TextDelta,
    ThinkingDelta,
    answer,
    open_model,
    with_retries,
)
from sessiontree.models.retry import RetryEvent, next_delay
from sessiontree.models.scripted import ScriptCall, ScriptError
from sessiontree.settings import Retry
from tests.models.helpers import HELLO, ask, message, request


def test_a_script_is_played_turn_by_turn_and_messages_name_the_fake_model() -> None:
    model = ScriptedModel([ScriptTurn(text="one"), ScriptTurn(tool_calls=(ScriptCall("ls"), ScriptCall("ls")))])
    first, second = ask(model, HELLO, HELLO)
    assert text_of(message(first).content) == "one"
    assert message(first).provider == "scripted"
    assert model.name == "scripted:script"
    assert [call.id for call in tool_calls(message(second))] == ["call_1", "call_2"]
    assert message(second).stop_reason == "toolUse"
    assert len(model.requests) == 2
    with pytest.raises(RefusedRequestError, match="no turn left"):
        ask(model, HELLO)


def test_a_turn_can_require_a_text_in_the_request() -> None:
    turns = [ScriptTurn(when="weather", text="rain"), ScriptTurn(text="hello", repeat=True)]
    model = ScriptedModel(turns)
    asked = [HELLO, request(User(content="the weather?")), HELLO]
    assert [text_of(message(events).content) for events in ask(model, *asked)] == ["hello", "rain", "hello"]


def test_blocks_arrive_in_order_and_end_as_in_the_message() -> None:
    model = ScriptedModel([ScriptTurn(thinking="hm", text="word " * 10, tool_calls=(ScriptCall("ls", {"a": 1}),))])
    (events,) = ask(model, HELLO)
    assert [event.block for event in events if isinstance(event, BlockEnd)] == list(message(events).content)
    kinds = [type(event) for event in events if isinstance(event, TextDelta | ThinkingDelta)]
    assert kinds == sorted(kinds, key=[ThinkingDelta, TextDelta].index)


def test_a_broken_answer_is_kept_without_its_incomplete_call() -> None:
    turn = ScriptTurn(
        text="before the break", piece=4, tool_calls=(ScriptCall("rm", {"path": "x" * 50}),), drop_after=8
    )
    with pytest.raises(UnreachableError) as raised:
        ask(ScriptedModel([turn]), HELLO)
    partial = raised.value.partial
    assert isinstance(partial, Assistant)
    assert partial.content == (Text("before the break"),)


def test_without_any_event_there_is_no_message() -> None:
    assert AnswerAccumulator().message() is None
    accumulator = AnswerAccumulator()
    accumulator.add(BlockEnd(0, ToolCall("a", "ls", {})))
    kept = accumulator.message()
    assert kept is not None
    assert tool_calls(kept) == (ToolCall("a", "ls", {}),)


def test_a_script_file_is_opened_as_a_model_and_an_invalid_one_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text('{"turns": [{"text": "hi", "toolCalls": [{"name": "ls"}]}]}')
    (events,) = ask(open_model(f"scripted:{file}"), HELLO)
    assert text_of(message(events).content) == "hi"
    file.write_text('{"turns": [{"text": 5}]}')
    with pytest.raises(DamagedError, match=r"turns\[0\]\.text"):
        open_model(f"scripted:{file}")
    with pytest.raises(NotFoundError):
        open_model("scripted:/no/such/file")


def test_answer_returns_the_complete_message() -> None:
    assert text_of(asyncio.run(answer(ScriptedModel([ScriptTurn(text="hi")]), HELLO)).content) == "hi"


def busy(**fields: float) -> ScriptTurn:
    return ScriptTurn(error=ScriptError("rate_limit", **fields))


def retried(turns: list[ScriptTurn], retry: Retry) -> tuple[list[RetryEvent], list[float], Assistant]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def run() -> tuple[list[RetryEvent], Assistant]:
        seen = [event async for event in with_retries(ScriptedModel(turns), HELLO, retry, sleep=sleep)]
        assert isinstance(seen[-1], Stop)
        return [event for event in seen if isinstance(event, RetryEvent)], seen[-1].message

    notices, ended = asyncio.run(run())
    return notices, slept, ended


def test_retries_wait_for_the_providers_delay_or_back_off() -> None:
    notices, slept, ended = retried([busy(retry_after=7), busy(), busy(), ScriptTurn(text="ok")], Retry(4, 2.0, 60.0))
    assert [notice.attempt for notice in notices] == [1, 2, 3]
    assert slept[0] == 7
    assert 3.0 <= slept[1] <= 4.0
    assert 6.0 <= slept[2] <= 8.0
    assert text_of(ended.content) == "ok"


def test_after_the_last_attempt_or_for_too_long_a_delay_the_error_is_raised() -> None:
    with pytest.raises(BusyModelError):
        retried([busy(), busy(), ScriptTurn(text="ok")], Retry(1, 0.0, 1.0))
    with pytest.raises(BusyModelError):
        retried([busy(retry_after=3600), ScriptTurn(text="ok")], Retry(4, 2.0, 60.0))
    with pytest.raises(BusyModelError):
        retried([busy(), ScriptTurn(text="ok")], Retry(attempts=0))
    assert next_delay(ModelError("x"), 500, Retry(attempts=1000, longest_delay=5.0)) is not None


def test_an_interrupted_answer_is_retried_but_a_rejection_is_not() -> None:
    turns = [ScriptTurn(text="half of it and more", drop_after=1), ScriptTurn(text="whole")]
    notices, _, ended = retried(turns, Retry(1, 0.0, 0.0))
    assert isinstance(notices[0].error, UnreachableError)
    assert text_of(ended.content) == "whole"
    with pytest.raises(ModelError, match="overflow"):
        retried([ScriptTurn(error=ScriptError("overflow")), ScriptTurn(text="x")], Retry())


def test_a_request_without_messages_is_answered() -> None:
    assert text_of(message(ask(ScriptedModel([ScriptTurn(text="hi")]), Request([]))[0]).content) == "hi"
