"""Neovate's sessions with other names for tokens, and in the folder `~/.neo/sessions`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sessiontree
from sessiontree.core.usage import total_usage
from sessiontree.library.library import Library
from sessiontree.providers import render
from sessiontree.views.json import describe_own_message

LINES = [
    {"type": "message", "role": "user", "content": "q", "uuid": "a", "parentUuid": None, "sessionId": "6a7f9b2c"},
    {
        "type": "message",
        "role": "assistant",
        "content": "hi",
        "uuid": "b",
        "parentUuid": "a",
        "sessionId": "6a7f9b2c",
        "usage": {"promptTokens": 120, "completionTokens": 7, "totalTokens": 127},
    },
]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".neo" / "sessions" / "6a7f9b2c.jsonl"
    path.parent.mkdir(parents=True)
    stamped = [{**line, "timestamp": f"2026-01-01T00:00:0{at}.000Z"} for at, line in enumerate(LINES)]
    path.write_text("".join(json.dumps(line) + "\n" for line in stamped))
    return path


def test_prompt_and_completion_tokens_are_counted(path: Path) -> None:
    with sessiontree.open(str(path)) as session:
        assert session.dialect.name == "neovate"
        totals = total_usage(session.entries(session.journal.tree.ids))
        (_, answer) = session.dialect.decode(session.journal, [0, 1])
    assert (totals.requests, totals.input, totals.output) == (1, 120, 7)
    assert answer.fields["message"]["usage"]["input"] == 120


def test_sessions_in_the_folder_neo_are_found(path: Path, tmp_path: Path) -> None:
    with Library(str(tmp_path / "st")) as library:
        assert library.find("6a7f9b2c").ref == str(path)


def test_messages_in_their_own_form_have_the_content_of_the_line(path: Path) -> None:
    with sessiontree.open(str(path)) as session:
        context = session.context()
        pairs = zip(context.sources, context.messages, strict=True)
        described = [describe_own_message(session, source, message) for source, message in pairs]
    assert [message["content"] for message in described] == ["q", "hi"]
    assert described[1]["usage"]["promptTokens"] == 120


@pytest.mark.parametrize(
    ("result", "sent"),
    [({"llmContent": "rows"}, "rows"), ("rows", "rows"), ({"rows": 3}, '{"rows":3}'), (None, "(no output)")],
)
def test_a_result_without_a_call_and_an_id_is_sent_as_text(path: Path, result: object, sent: str) -> None:
    part = {"type": "tool_result", "name": "read", "input": {"path": "a"}, "result": result}
    line = {**LINES[0], "uuid": "c", "parentUuid": "b", "content": [{"type": "text", "text": "Read it"}, part]}
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    with sessiontree.open(str(path)) as session:
        rendered = render(session.context().messages, "openai").messages
    texts = [block["text"] for message in rendered for block in message["content"]]
    assert texts[:2] == ["q", "hi"]
    assert sorted(texts[2:]) == sorted(
        ["The tool read was called; the call was not recorded. It returned:", sent, "Read it"]
    )
