"""The parts of the acceptance matrix that need no program: scripted answers, histories of requests, and the report."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from acceptance.comparison import joined_answers
from acceptance.directives import make_call, read_directives
from acceptance.matrix import Cell, Matrix, render_matrix
from acceptance.model_server import ModelServer
from acceptance.requests import find_history

from sessiontree.core.messages import parse_message
from sessiontree.providers import render

Body = dict[str, Any]

PROMPT = f"Read it. {make_call('read', path='a.txt')} [[SAY It was read.]]"
ARGUMENTS = {"path": "a.txt"}
ANTHROPIC: list[Body] = [
    {"role": "user", "content": [{"type": "text", "text": PROMPT}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": ARGUMENTS}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "alpha"}]},
]
CHAT: list[Body] = [
    {"role": "user", "content": PROMPT},
    {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "read", "arguments": '{"path": "a.txt"}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "alpha"}]},
]
RESPONSES: list[Body] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": PROMPT}]},
    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a.txt"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "alpha"},
]
CONTENTS: list[Body] = [
    {"role": "user", "parts": [{"text": PROMPT}]},
    {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "read", "args": ARGUMENTS}}]},
    {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "read", "response": {"output": "alpha"}}}]},
]
PROTOCOLS = {
    "/v1/messages": ("messages", ANTHROPIC),
    "/v1/chat/completions": ("messages", CHAT),
    "/v1/responses": ("input", RESPONSES),
    "/v1beta/models/any:streamGenerateContent": ("contents", CONTENTS),
}


@pytest.mark.parametrize("path", PROTOCOLS)
def test_a_prompt_makes_the_model_call_tools_and_then_answer(path: str) -> None:
    key, items = PROTOCOLS[path]
    first = read_directives({key: items[:1], "tools": [{}]})
    assert first is not None
    assert [(call.name, call.arguments) for call in first.tool_calls] == [("read", ARGUMENTS)]
    last = read_directives({key: items, "tools": [{}]})
    assert last is not None
    assert (last.text, last.tool_calls) == ("It was read.", ())
    assert read_directives({key: items}) is None  # a title is asked for without tools


@pytest.mark.parametrize("path", PROTOCOLS)
def test_the_server_streams_the_call_in_each_protocol(path: str) -> None:
    key, items = PROTOCOLS[path]
    body = {"model": "any", "stream": True, key: items[:1], "tools": [{}]}
    with ModelServer() as server:
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request) as answer:
            streamed = answer.read().decode()
    assert "a.txt" in streamed.replace("\\", "")
    assert server.requests[0]["body"] == body


def test_a_prompt_that_opencode_quotes_is_read_too() -> None:
    quoted = '"' + PROMPT.replace('"', '\\"') + '"'
    turn = read_directives({"messages": [{"role": "user", "content": quoted}], "tools": [{}]})
    assert turn is not None
    assert len(turn.tool_calls) == 1


@pytest.mark.parametrize("path", PROTOCOLS)
def test_a_request_of_each_protocol_gives_the_same_history(path: str) -> None:
    key, items = PROTOCOLS[path]
    check: Body = {"type": "message", "role": "user", "content": "CHECK", "parts": [{"text": "CHECK"}]}
    check["content"] = [{"type": "text", "text": "CHECK"}]
    found = find_history([{"path": path, "body": {key: [*items, check], "tools": [{}]}}], "CHECK")
    assert found is not None
    blocks = [(message["role"], block) for message in found for block in message["content"]]
    assert [role for role, _ in blocks] == ["user", "assistant", "user"]
    assert blocks[0][1]["text"] == PROMPT
    assert blocks[1][1] == ANTHROPIC[1]["content"][0]
    assert blocks[2][1]["tool_use_id"] == "c1"
    assert blocks[2][1]["content"] in ("alpha", [{"type": "text", "text": "alpha"}])


def test_calls_of_one_response_stay_before_their_results() -> None:
    recorded = [
        {"role": "assistant", "content": [{"type": "toolCall", "id": id, "name": "read", "arguments": {}}]}
        for id in ("c1", "c2")
    ]
    results = [
        {"role": "toolResult", "toolCallId": id, "toolName": "read", "content": [{"type": "text", "text": id}]}
        for id in ("c1", "c2")
    ]
    messages = [parse_message(message) for message in [*recorded, *results]]
    sent = render(joined_answers(messages), "anthropic").messages
    kinds = [
        block["type"] for message in sent if not isinstance(message["content"], str) for block in message["content"]
    ]
    assert [kind for kind in kinds if kind != "text"] == ["tool_use", "tool_use", "tool_result", "tool_result"]


def test_the_report_names_every_difference_and_a_newer_version_loudly() -> None:
    cells = [Cell("pi", "pi", "ok"), Cell("pi", "codex", "differs", "", ["-ours", "+theirs"])]
    versions = {"pi": "Pi 1.5.0", "codex": "could not run: no network"}
    matrix = Matrix(cells, {"pi": "ok"}, versions, ["!!! Pi 9 BEHAVES DIFFERENTLY from 1.5.0"], 3.2)
    report = render_matrix(matrix)
    assert not matrix.is_ok()
    assert "pi in codex differs" in report
    assert "+theirs" in report
    assert "could not run: no network" in report
    assert report.endswith("1 ok, 1 differs, 3 s\n!!! Pi 9 BEHAVES DIFFERENTLY from 1.5.0")
    assert Matrix(cells[:1], {"pi": "ok"}, versions).is_ok()
    assert not Matrix(cells[:1], {"pi": "a rule"}, versions).is_ok()
