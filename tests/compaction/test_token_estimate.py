"""Token estimates: Pi's arithmetic exactly, the measured estimate closely, or any tokenizer."""

from __future__ import annotations

from random import Random

import pytest

from sessiontree.compaction import MEASURED, PI, tokenizer_estimator
from sessiontree.compaction.token_estimate import estimated_size, is_larger, measured_tokens, utf16_length
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    BranchSummaryText,
    CompactionSummary,
    Image,
    Message,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (User(content=""), 0),
        (User(content="abcd"), 1),
        (User(content="abcde"), 2),
        (User(content="中文字"), 1),
        (User(content="🙂🙂"), 1),
        (User(content="🙂🙂a"), 2),
        (User(content=(Text("abcd"), Image("aGk="))), 1201),
        (ToolResult(content=(Image("aGk="), Image("aGk="))), 2400),
        (Assistant(content=(Thinking("abcd"), Text("ab"))), 2),
        (Assistant(content=(ToolCall("id", "read", {"path": "a.py", "n": 1}),)), 7),
        (Assistant(content=(ToolCall("id", "say", {"text": "中"}),)), 4),
        (BashExecution(command="ls", output="a b"), 2),
        (CompactionSummary(summary="x" * 9), 3),
        (BranchSummaryText(summary="x" * 8), 2),
        (System(content="abcd", sections={"a": "abcd", "b": None}, tools_added=[{"name": "x"}]), 6),
    ],
)
def test_pis_arithmetic(message: Message, tokens: int) -> None:
    assert PI(message) == tokens


def test_javascript_counts_a_lone_surrogate_as_one() -> None:
    assert utf16_length("\ud800a") == 2


@pytest.mark.parametrize("text", ["解析器读取每一行。", "行を読み込みます。", "줄을 읽어 들입니다."])
def test_scripts_other_than_latin_have_more_tokens_than_a_quarter_of_their_characters(text: str) -> None:
    assert measured_tokens(text * 10) > len(text * 10) * 0.5
    assert PI(User(content=text * 10)) <= len(text * 10) / 4 + 1


def test_code_has_more_tokens_than_prose_of_its_length() -> None:
    code = "for (let i = 0; i < n; i++) { sum[i] += weights[i] * x[i]; }\n" * 10
    prose = "then the reader walks along the lines and looks for the one that it needs" * 10
    assert measured_tokens(code) / len(code) > measured_tokens(prose) / len(prose)
    assert measured_tokens(prose) == round(len(prose) / 4)


def test_a_real_tokenizer_can_replace_the_estimate() -> None:
    estimate = tokenizer_estimator(lambda text: len(text.split()), image=7)
    assert estimate(User(content=(Text("three words here"), Image("aGk=")))) == 3 + 7 + 4
    assert MEASURED(User(content="")) == 4


@pytest.mark.parametrize("largest", [0, 400_000])
def test_a_sample_of_very_many_messages_gives_a_close_estimate(largest: int) -> None:
    random = Random(5)
    words = "the lexer keeps {'line': 12} and 读取每一行 of it\n"
    messages: list[Message] = [User(content="x" * largest)]
    for number in range(6_000):
        call = ToolCall(f"c{number}", "edit", {"path": "a.py", "oldText": words * random.randint(1, 9), "n": [1, 2]})
        messages.append(Assistant(content=(Text(words * random.randint(1, 5)), call)))
        messages.append(ToolResult(tool_call_id=call.id, content=(Text(words * random.randint(1, 90)), Image("aGk="))))
    exact = sum(map(MEASURED, messages))
    assert abs(estimated_size(messages, MEASURED) - exact) < exact * 0.03
    assert estimated_size(messages, PI) == sum(map(PI, messages))
    assert estimated_size(messages[:4_000], MEASURED) == sum(map(MEASURED, messages[:4_000]))


def test_is_larger_agrees_with_the_estimated_size() -> None:
    messages = [System(content="abcd" * 5), User(content="abcd" * 7), System(content="abcd"), User(content="abcd" * 3)]
    size = estimated_size(messages)
    assert [is_larger(messages, limit) for limit in (0, size - 1, size, size + 1)] == [True, True, False, False]


def test_the_measured_estimate_accepts_any_text() -> None:
    assert measured_tokens("") == 0
    assert measured_tokens("\ud800" * 10) == measured_tokens("é" * 10) == 5
    assert measured_tokens("abcd" * 10 + "中" * 10) == measured_tokens("abcd" * 10) + measured_tokens("中" * 10)
