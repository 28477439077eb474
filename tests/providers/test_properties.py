"""Whatever goes in, the provider must accept what comes out.

The validators below are written from the providers' documentation and their refusals, not from our renderers, and use
nothing of the package.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.core.jsonio import iter_json
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    Block,
    BranchSummaryText,
    CompactionSummary,
    CustomText,
    Image,
    Message,
    OtherBlock,
    OtherMessage,
    RedactedThinking,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from sessiontree.providers import Form, Unanswered, deferred_texts, render, render_stream
from tests.builders import examples

IMAGE_TYPES = {"image/jpeg", "image/png", "image/gif", "image/webp"}


def check_encodable(value: object) -> None:
    encoded = json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    assert json.loads(encoded) == value


def check_text(text: object) -> None:
    assert isinstance(text, str)
    assert text.strip()


def check_base64(data: str) -> None:
    assert base64.b64decode(data, validate=True)


def check_data_url(url: str) -> None:
    mime_type, data = re.fullmatch(r"data:([^;]+);base64,(.+)", url).groups()  # type: ignore[union-attr]
    assert mime_type in IMAGE_TYPES
    check_base64(data)


def check_anthropic(messages: list[dict[str, Any]]) -> None:
    seen_ids: set[str] = set()
    for index, message in enumerate(messages):
        assert set(message) == {"role", "content"}
        assert message["role"] == ("user", "assistant")[index % 2]
        assert message["content"]
        before = messages[index - 1]["content"] if index else []
        if message["role"] == "user":
            check_anthropic_user(message["content"], [b["id"] for b in before if b["type"] == "tool_use"])
        else:
            check_anthropic_assistant(message["content"], seen_ids)
    if messages and messages[-1]["role"] == "assistant":
        last = messages[-1]["content"][-1]
        assert last["type"] == "text"
        assert last["text"] == last["text"].rstrip()


def check_anthropic_user(blocks: list[dict[str, Any]], asked: list[str]) -> None:
    results = [block for block in blocks if block["type"] == "tool_result"]
    assert blocks[: len(results)] == results
    assert sorted(block["tool_use_id"] for block in results) == sorted(asked)
    for block in results:
        assert block.get("is_error", True) is True
        assert block["content"]
        for part in block["content"]:
            check_anthropic_shown(part)
            assert part["type"] == "text" or "is_error" not in block
    for block in blocks[len(results) :]:
        check_anthropic_shown(block)


def check_anthropic_shown(block: dict[str, Any]) -> None:
    if block["type"] == "image":
        assert block["source"]["type"] == "base64"
        assert block["source"]["media_type"] in IMAGE_TYPES
        check_base64(block["source"]["data"])
    else:
        assert block["type"] == "text"
        check_text(block["text"])


def check_anthropic_assistant(blocks: list[dict[str, Any]], seen_ids: set[str]) -> None:
    assert blocks[-1]["type"] in {"text", "tool_use"}
    for block in blocks:
        match block["type"]:
            case "text":
                check_text(block["text"])
            case "thinking":
                assert isinstance(block["thinking"], str)
                assert block["signature"]
            case "redacted_thinking":
                assert block["data"]
            case "tool_use":
                assert re.fullmatch("[a-zA-Z0-9_-]+", block["id"])
                assert re.fullmatch("[a-zA-Z0-9_-]{1,128}", block["name"])
                assert isinstance(block["input"], dict)
                assert block["id"] not in seen_ids
                seen_ids.add(block["id"])
            case other:
                raise AssertionError(f"the API knows no block {other!r} here")


def check_responses(items: list[dict[str, Any]]) -> None:
    open_ids: list[str] = []
    seen_ids: set[str] = set()
    answering = False
    for item in items:
        if item["type"] == "function_call_output":
            answering = True
            open_ids.remove(item["call_id"])
            check_text(item["output"])
            continue
        # Once a response's calls begin to be answered, all of them are.
        assert not (answering and open_ids)
        answering = False
        if item["type"] == "function_call":
            assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", item["call_id"])
            assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", item["name"])
            assert isinstance(json.loads(item["arguments"]), dict)
            assert item["call_id"] not in seen_ids
            seen_ids.add(item["call_id"])
            open_ids.append(item["call_id"])
        else:
            assert item["type"] == "message"
            # Texts of the same response may be between its calls, texts of the user may not.
            assert item["role"] == "assistant" or not open_ids
            check_responses_content(item["role"], item["content"])
    assert not open_ids


def check_responses_content(role: str, parts: list[dict[str, Any]]) -> None:
    assert parts
    for part in parts:
        match role, part["type"]:
            case ("user", "input_text") | ("assistant", "output_text"):
                check_text(part["text"])
            case ("user", "input_image"):
                check_data_url(part["image_url"])
            case other:
                raise AssertionError(f"the API knows no {other!r}")


def check_chat(messages: list[dict[str, Any]]) -> None:
    open_ids: list[str] = []
    seen_ids: set[str] = set()
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            open_ids.remove(message["tool_call_id"])
            check_text(message["content"])
            continue
        assert not open_ids
        match message["role"]:
            case "system":
                assert index == 0
                check_text(message["content"])
            case "user":
                check_chat_user(message["content"])
            case "assistant":
                open_ids = check_chat_assistant(message)
                assert seen_ids.isdisjoint(open_ids)
                assert len(set(open_ids)) == len(open_ids)
                seen_ids.update(open_ids)
            case other:
                raise AssertionError(f"the API knows no role {other!r}")
    assert not open_ids


def check_chat_user(content: str | list[dict[str, Any]]) -> None:
    if isinstance(content, str):
        check_text(content)
        return
    assert content
    for part in content:
        if part["type"] == "image_url":
            check_data_url(part["image_url"]["url"])
        else:
            assert part["type"] == "text"
            check_text(part["text"])


def check_chat_assistant(message: dict[str, Any]) -> list[str]:
    if message["content"] is None:
        assert message["tool_calls"]
    else:
        check_text(message["content"])
    calls = message.get("tool_calls")
    if calls is None:
        return []
    assert calls
    for call in calls:
        assert call["type"] == "function"
        assert re.fullmatch("[a-zA-Z0-9_-]{1,40}", call["id"])
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
        assert isinstance(json.loads(call["function"]["arguments"]), dict)
    return [call["id"] for call in calls]


# Few ids, so that they repeat, go missing and collide once changed; the odd ones are refused somewhere.
IDS = st.sampled_from(["a", "a_2", "a|2", "b", "", "c\ud800", "c\ud801", "读", "x" * 70 + "1", "x" * 70 + "2"])
NAMES = st.sampled_from(["read", "", "mcp.x", "mcp_x", "工具", "n" * 70, "n" * 140, "bad\ud800"])
TEXTS = st.one_of(
    st.sampled_from(["", " ", "\n\t", "hello", "end \n", "\ud83d", "half \ude00", "中文", "日本語 ", "한국", "```"]),
    st.text(st.characters(), max_size=8),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
SIGNATURES = st.sampled_from([None, "", "sig", "签\ud800"])
IMAGES = st.builds(
    Image,
    st.sampled_from(["iVBORw0KGgo=", "/9j/4AAQ", "R0lGODlh", "aGVsbG8=", "", "blob:sha256:0", "aGk", "\ud800"]),
    st.sampled_from(["image/png", "image/jpeg", "IMAGE/JPG", "image/svg+xml", "", "\ud800"]),
)
BLOCKS: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, TEXTS),
    st.builds(Thinking, TEXTS, SIGNATURES, st.sampled_from([None, False, True])),
    st.builds(RedactedThinking, st.sampled_from(["", "data", "\ud800"])),
    IMAGES,
    st.builds(ToolCall, IDS, NAMES, OBJECTS),
    st.builds(OtherBlock, TEXTS, JSON),
)
CONTENTS = TEXTS | st.lists(BLOCKS, max_size=5).map(tuple)
CALLING = st.builds(
    Assistant,
    content=st.lists(st.builds(ToolCall, IDS, NAMES, OBJECTS), min_size=1, max_size=4).map(tuple),
    stop_reason=st.sampled_from([None, "toolUse", "error", "aborted"]),
    response_id=st.sampled_from([None, "r1", "r2"]),
)
OTHERS = st.builds(
    OtherMessage,
    kind=st.sampled_from(["developer", "pythonExecution", "fileMention", "", "odd\ud800"]),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "content": JSON | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=2),
            "code": JSON,
            "output": TEXTS,
            "files": JSON | st.lists(st.fixed_dictionaries({"path": TEXTS, "content": TEXTS}), max_size=2),
        },
    ),
)
MESSAGES: st.SearchStrategy[list[Message]] = st.lists(
    st.one_of(
        st.builds(User, content=CONTENTS),
        st.builds(
            Assistant,
            content=CONTENTS,
            model=st.sampled_from([None, "claude-x", "gpt-x"]),
            response_id=st.sampled_from([None, "r1", "r2"]),
        ),
        CALLING,
        st.builds(ToolResult, tool_call_id=IDS, content=CONTENTS, is_error=st.booleans()),
        st.builds(CustomText, content=CONTENTS),
        st.builds(BashExecution, command=TEXTS, output=TEXTS, exit_code=st.none() | st.integers(0, 3)),
        st.builds(System, content=CONTENTS, sections=st.none() | st.dictionaries(TEXTS, st.none() | TEXTS, max_size=2)),
        st.builds(CompactionSummary, summary=TEXTS),
        st.builds(BranchSummaryText, summary=TEXTS),
        OTHERS,
    ),
    max_size=12,
)
UNANSWERED: st.SearchStrategy[Unanswered] = st.sampled_from(["complete", "strip"])

CHECKS = {"anthropic": check_anthropic, "openai": check_responses, "openai-chat": check_chat}


def check_accepted(messages: list[Message], form: Form, unanswered: Unanswered) -> None:
    rendered = render(messages, form, unanswered=unanswered)
    check_encodable([rendered.system, rendered.messages, list(rendered.notes)])
    if rendered.system is not None:
        check_text(rendered.system)
    CHECKS[form](rendered.messages)


@examples(400)
@given(MESSAGES, UNANSWERED)
def test_anthropic_accepts_whatever_comes_out(messages: list[Message], unanswered: Unanswered) -> None:
    check_accepted(messages, "anthropic", unanswered)


@examples(400)
@given(MESSAGES, UNANSWERED)
def test_the_responses_api_accepts_whatever_comes_out(messages: list[Message], unanswered: Unanswered) -> None:
    check_accepted(messages, "openai", unanswered)


@examples(400)
@given(MESSAGES, UNANSWERED)
def test_chat_completions_accepts_whatever_comes_out(messages: list[Message], unanswered: Unanswered) -> None:
    check_accepted(messages, "openai-chat", unanswered)


@given(MESSAGES)
def test_rendering_changes_nothing_it_was_given(messages: list[Message]) -> None:
    before = repr(messages)
    for form in CHECKS:
        render(messages, form)  # type: ignore[arg-type]
    assert repr(messages) == before


@given(MESSAGES)
def test_every_recorded_call_is_sent_when_calls_are_completed(messages: list[Message]) -> None:
    recorded = sum(
        isinstance(block, ToolCall)
        for message in messages
        if isinstance(message, Assistant) and not isinstance(message.content, str)
        for block in message.content
    )
    items = render(messages, "openai").messages
    assert sum(item["type"] == "function_call" for item in items) == recorded


@given(MESSAGES)
def test_no_call_is_answered_as_unknown_when_calls_are_stripped(messages: list[Message]) -> None:
    items = render(messages, "openai", unanswered="strip").messages
    answered = sum(item["type"] == "function_call_output" for item in items)
    assert answered <= sum(isinstance(message, ToolResult) for message in messages)


@examples(300)
@given(MESSAGES, UNANSWERED)
def test_messages_that_are_rendered_one_by_one_are_the_same(messages: list[Message], unanswered: Unanswered) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deferred_texts, "_LONG", 2)  # nearly every text is deferred
        for form in CHECKS:
            rendered = render(messages, form, unanswered=unanswered)  # type: ignore[arg-type]
            streamed = render_stream(messages, form, unanswered=unanswered)  # type: ignore[arg-type]
            printed = json.loads(b"".join(iter_json({"messages": streamed.messages})))
            assert (streamed.system, printed["messages"], streamed.notes) == (
                rendered.system,
                rendered.messages,
                rendered.notes,
            )
