"""Sessions as spans of OpenTelemetry and as trajectories (ATIF), and trajectories as sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.cli import main
from sessiontree.conversion.trajectory import read_trajectory
from sessiontree.core.messages import ToolResult, tool_calls
from sessiontree.errors import NotASessionError, UsageError
from sessiontree.export import export
from sessiontree.export.source import Source
from sessiontree.secrets.redact import Redactor
from sessiontree.session.session import Session
from tests.sample_home import make_sample_home

CLAUDE = "01a1c0de-5e55-7000-8000-000000000001"
KEY = "sk-ant-api03-" + "a1B2" * 20


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    home = make_sample_home(tmp_path / "home", monkeypatch)
    (file,) = home.glob(f".claude/**/{CLAUDE}.jsonl")
    return sessiontree.open(file)


def document(session: Session, format: Any, **options: Any) -> Any:
    return json.loads(b"".join(export(session, format, **options)))


def spans_of(session: Session, **options: Any) -> list[dict[str, Any]]:
    (resource,) = document(session, "otel", **options)["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    return scope["spans"]


def value_of(span: dict[str, Any], key: str) -> Any:
    found = [each["value"] for each in span["attributes"] if each["key"] == key]
    return next(iter(found[0].values())) if found else None


def test_each_prompt_is_a_trace_with_a_span_for_each_answer_and_call(session: Session) -> None:
    spans = spans_of(session)
    roots = [span for span in spans if "parentSpanId" not in span]
    assert [root["name"] for root in roots] == ["invoke_agent claude"] * 2
    assert len({root["traceId"] for root in roots}) == 2
    first = [span for span in spans if span["traceId"] == roots[0]["traceId"] and span is not roots[0]]
    assert {span["parentSpanId"] for span in first} == {roots[0]["spanId"]}
    tools = [span for span in first if span["name"].startswith("execute_tool ")]
    assert [value_of(span, "gen_ai.tool.call.id") for span in tools] == ["call_1", "call_2", "call_3"]
    assert value_of(tools[2], "gen_ai.tool.call.result").startswith("4f1c2aa")
    assert json.loads(value_of(tools[0], "gen_ai.tool.call.arguments")) == {"file_path": "tests/test_login.py"}
    chats = [span for span in spans if span["name"] == "chat claude-sonnet-4-5"]
    assert {value_of(span, "gen_ai.conversation.id") for span in spans} == {session.id}
    assert {value_of(span, "gen_ai.provider.name") for span in chats} == {"anthropic"}
    for span in spans:
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        parents = [root for root in roots if root["traceId"] == span["traceId"]]
        assert int(parents[0]["startTimeUnixNano"]) <= int(span["startTimeUnixNano"])
        assert int(span["endTimeUnixNano"]) <= int(parents[0]["endTimeUnixNano"])
    assert len({(span["traceId"], span["spanId"]) for span in spans}) == len(spans)
    used = session.usage()
    total = used.input + used.cached + used.cache_written
    assert used.requests == 7  # two of them on a branch that is not active
    assert sum(int(value_of(root, "gen_ai.usage.input_tokens")) for root in roots) == total * 5 // 7
    assert len(chats) == 5
    assert spans_of(session) == spans, "ids are derived, so that an export can be repeated"


def test_messages_have_the_parts_of_the_conventions_and_failures_are_marked() -> None:
    session = sessiontree.create(home="memory:traces")
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    session.append({"role": "user", "content": [{"type": "text", "text": "Look \ud800"}, image]})
    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "false"}}
    session.append({"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, call]})
    session.append({"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "content": "no", "isError": True})
    session.append({"role": "assistant", "content": "", "stopReason": "error", "errorMessage": "overloaded"})
    first, tool, last, root = spans_of(session)
    sent = json.loads(value_of(first, "gen_ai.input.messages"))
    assert [part["type"] for part in sent[0]["parts"]] == ["text", "blob"]
    answered = json.loads(value_of(first, "gen_ai.output.messages"))
    assert [part["type"] for part in answered[0]["parts"]] == ["reasoning", "tool_call"]
    assert (value_of(tool, "error.type"), tool["status"]["code"]) == ("tool_error", 2)
    (result,) = json.loads(value_of(last, "gen_ai.input.messages"))
    assert result == {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "no"}]}
    for span in (last, root):
        assert span["status"] == {"code": 2, "message": "overloaded"}


def test_a_trajectory_has_every_message_and_its_results(session: Session) -> None:
    found = document(session, "atif")
    assert (found["schema_version"], found["session_id"]) == ("ATIF-v1.7", session.id)
    assert [step["step_id"] for step in found["steps"]] == list(range(1, len(found["steps"]) + 1))
    assert [step["source"] for step in found["steps"]] == ["user", "agent", "agent", "user", "agent", "agent", "agent"]
    calls = [call["tool_call_id"] for step in found["steps"] for call in step.get("tool_calls", ())]
    assert calls == ["call_1", "call_2", "call_3", "call_5", "call_6"]
    for step in found["steps"]:
        made = [call["tool_call_id"] for call in step.get("tool_calls", ())]
        assert [result["source_call_id"] for result in step.get("observation", {}).get("results", ())] == made
    assert found["final_metrics"]["total_steps"] == len(found["steps"])
    assert found["final_metrics"]["total_completion_tokens"] == 5 * 212


def words(session: Session) -> dict[str, list[Any]]:
    """Texts, calls and results of the active branch, in order; clients write an answer as one line or as several."""
    messages = session.context().messages
    return {
        "texts": [(each.role, each.text) for each in messages if each.text and not isinstance(each, ToolResult)],
        "calls": [(call.id, call.name, call.arguments) for each in messages for call in tool_calls(each)],
        "results": [(each.tool_call_id, each.text, each.is_error) for each in messages if isinstance(each, ToolResult)],
    }


def test_a_trajectory_is_read_back_as_the_same_conversation(session: Session) -> None:
    data = b"".join(export(session, "atif"))
    found = read_trajectory(data, "x.json")
    assert found.notes == ()
    assert words(found.session) == words(session)
    assert found.session.name == session.name
    assert found.session.usage().output == 5 * 212
    assert json.loads(b"".join(export(found.session, "atif")))["steps"][0]["timestamp"]


def test_a_trajectory_of_another_program_is_converted_and_what_is_left_out_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        {"step_id": 1, "source": "system", "message": "You solve tasks."},
        {
            "step_id": 2,
            "source": "user",
            "message": [
                {"type": "text", "text": "What is on it?"},
                {"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}},
            ],
        },
        {
            "step_id": 3,
            "source": "agent",
            "timestamp": "2026-01-02T03:04:05Z",
            "message": "I look.",
            "reasoning_content": "Easy.",
            "tool_calls": [{"tool_call_id": "1", "function_name": "look", "arguments": {"at": "a.png"}}],
            "observation": {"results": [{"source_call_id": "1", "content": "a cat"}, {"content": "It is noon."}]},
            "metrics": {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 4},
            "unknown": 1,
        },
    ]
    trajectory = {"schema_version": "ATIF-v1.4", "session_id": "s", "agent": {"name": "x", "version": "1"}}
    file, out = tmp_path / "trajectory.json", tmp_path / "out.jsonl"
    more = {"steps": steps, "subagent_trajectories": [{}]}
    file.write_text(json.dumps({**trajectory, **more}))
    assert main(["convert", str(file), "--from", "atif", "--to", "pi", "--out", str(out)]) == 0
    told = capsys.readouterr().err
    assert "1 image in another file became a link" in told
    assert "1 trajectory of sub-agents left out" in told
    session = sessiontree.open(out)
    shown = [(message.role, message.text) for message in session.context().messages]
    assert ("toolResult", "a cat") in shown
    assert any("It is noon." in text for _, text in shown)
    assert any("You solve tasks." in text for _, text in shown)
    assert session.usage().cached == 4


@pytest.mark.parametrize("data", [b"{}", b"[]", b"nonsense", b'{"schema_version": "2.0", "steps": []}', b"[" * 10**6])
def test_other_documents_are_refused(data: bytes) -> None:
    with pytest.raises(NotASessionError, match=r"x\.json"):
        read_trajectory(data, "x.json")


@pytest.mark.parametrize("format", ["otel", "atif"])
def test_secrets_are_masked_and_all_branches_are_refused(format: Any) -> None:
    session = sessiontree.create(home="memory:traces")
    session.append("user", f"My key is {KEY}.")
    assert KEY in json.dumps(document(session, format))
    redactor = Redactor("/home/me")
    assert KEY not in json.dumps(document(session, format, redactor=redactor))
    with pytest.raises(UsageError, match="one branch"):
        document(session, format, branch="all")


def test_an_empty_session_has_no_spans_and_no_steps() -> None:
    session = sessiontree.create(home="memory:traces")
    assert spans_of(session) == []
    assert document(session, "atif")["steps"] == []
    assert Source(session).strands
