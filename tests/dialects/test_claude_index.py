"""Claude Code: line summaries created at open agree with the entries, and messages are decoded on first access."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.core.messages import Assistant, ToolResult, message_text
from sessiontree.dialects.claude import CLAUDE
from sessiontree.dialects.claude.index import LineSummary, MetaPromptSummary, summarize_entry
from sessiontree.dialects.claude.messages import context_messages, is_blank
from sessiontree.errors import ReplacedError
from tests.builders import json_line

CORPUS = sorted(Path(__file__).parent.parent.joinpath("corpus", "claude").glob("*.jsonl"))
TIME = "2026-03-01T12:00:00.000Z"


def line(kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "model": "m", "content": content}
    return {"type": kind, "uuid": "u", "parentUuid": None, "timestamp": TIME, "message": message, **fields}


def text(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": value}


CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
REMINDER = "\n<system-reminder>\nx\n</system-reminder>"
CONTENTS: list[Any] = [
    None,
    "",
    "hello",
    REMINDER,
    " \n",
    [],
    [text("hello")],
    [text("")],
    [text(" \n"), text("\t")],
    [text(REMINDER)],
    [text(REMINDER), text("hello")],
    [text(None)],
    [{"type": "text"}],
    [text(" "), CALL],
    [CALL],
    [CALL, {**CALL, "id": "toolu_2"}],
    [{"type": "tool_use", "id": "toolu_1"}],
    [{"type": "tool_use", "name": "Bash", "input": {}}],
    [RESULT],
    [RESULT, {**RESULT, "tool_use_id": "toolu_2"}],
    [RESULT, text("hello")],
    [text(REMINDER), RESULT],
    [{"type": "tool_result", "content": "ok"}],
    [{"type": "thinking", "thinking": "hm", "signature": "s"}],
    [{"type": "thinking"}],
    [{"type": "redacted_thinking", "data": "x"}],
    [{"type": "image", "source": {"type": "base64", "data": "", "media_type": "image/png"}}],
    [{"type": "server_tool_use", "id": "x", "name": "y"}],
    [{}],
]
ODD: list[dict[str, Any]] = [
    line("assistant", [text("hello")], isApiErrorMessage=True, error="rate_limit"),
    line("assistant", [text("hello")], isApiErrorMessage=None),
    {**line("assistant", []), "message": {"model": "<synthetic>", "content": [text("hello")], "stop_reason": "error"}},
    {**line("assistant", []), "message": {"content": [CALL]}},
    {**line("assistant", []), "message": {"id": "", "content": [CALL]}},
    {**line("user", []), "message": None},
    {"type": "system", "uuid": "u", "parentUuid": None, "subtype": "turn_duration"},
    {"type": "system", "uuid": "u", "parentUuid": None, "subtype": "local_command", "content": "hello"},
    {"type": "system", "uuid": "u", "parentUuid": None, "subtype": "compact_boundary"},
    *(
        {"type": "attachment", "uuid": "u", "parentUuid": None, "attachment": {"type": kind, "prompt": "x"}, **fields}
        for kind in ("date", "queued_command", "file")
        for fields in (
            {},
            {"rendered": [{"content": "x"}]},
            {"rendered": [{"content": "x"}], "renderedRole": "system"},
            {"rendered": [], "renderedRole": "user"},
            {"renderedRole": "system"},
        )
    ),
    {"type": "mode", "mode": "normal"},
]


def summary_of(raw: bytes) -> object:
    columns = CLAUDE.decode_block(memoryview(raw), 0)
    return columns.notes[0] if columns is not None and columns.notes else None


def check_summary(raw: bytes) -> bool:
    """Assert that the summary of a line agrees with its entry; return False when there is none."""
    summary, entry = summary_of(raw), CLAUDE.parse(raw.strip())
    if summary is None:
        return False
    assert isinstance(summary, LineSummary)
    fields = json.loads(raw)
    is_meta = fields.get("type") == "user" and fields.get("isMeta") is True and summary.is_prompt
    assert summary == (MetaPromptSummary() if is_meta else summarize_entry(entry))
    messages = context_messages(entry)
    if summary.results:
        assert [message.tool_call_id for message in messages if isinstance(message, ToolResult)] == list(
            summary.results
        )
        assert len(messages) == len(summary.results)
    else:
        assert len(messages) == summary.is_message
        assert not any(isinstance(message, Assistant) and is_blank(message.content) for message in messages)
    return True


@pytest.mark.parametrize("kind", ["user", "assistant"])
@pytest.mark.parametrize("content", CONTENTS, ids=json.dumps)
def test_a_summary_agrees_with_the_entry_whatever_the_content(kind: str, content: Any) -> None:
    check_summary(json_line(line(kind, content)))


@pytest.mark.parametrize("fields", ODD, ids=json.dumps)
def test_a_summary_agrees_with_the_entry_of_an_unusual_line(fields: dict[str, Any]) -> None:
    check_summary(json_line(fields))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_most_lines_of_real_clients_have_a_summary(path: Path) -> None:
    lines = [raw for raw in path.read_bytes().splitlines(keepends=True) if b'"uuid"' in raw]
    assert sum(map(check_summary, lines)) > len(lines) // 2


def test_ordinary_lines_have_a_summary() -> None:
    ordinary = [line("user", "hi"), line("user", [RESULT]), line("assistant", [CALL]), line("assistant", [text("x")])]
    assert all(check_summary(json_line(fields)) for fields in ordinary)


# A context after it was built


def conversation(*prompts: str, uuid: str = "u") -> bytes:
    """Prompts in a row and an answer, which is decoded with its neighbors to find the model."""
    lines, parent = [], None
    for number, words in enumerate((*prompts, "done")):
        kind, content = ("assistant", [text(words)]) if number == len(prompts) else ("user", words)
        lines.append(json_line(line(kind, content, uuid=f"{uuid}{number}", parentUuid=parent, sessionId="s")))
        parent = f"{uuid}{number}"
    return b"".join(lines)


def test_messages_can_be_read_after_the_session_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(conversation(*map(str, range(500))))
    with sessiontree.open(path) as session:
        messages = session.context().messages
    assert [message_text(message) for message in messages] == [*map(str, range(500)), "done"]


def test_messages_do_not_change_when_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(conversation(*map(str, range(200))))
    session = sessiontree.open(path)
    before = session.context().messages
    with open(path, "ab") as file:
        file.write(conversation("more", uuid="v"))
    session.refresh()
    assert [message_text(message) for message in before] == [*map(str, range(200)), "done"]


LONG = tuple(map(str, range(200)))


@pytest.mark.parametrize("now", [b"", conversation(*LONG[:5]), conversation(*LONG, uuid="v")])
def test_reading_messages_of_a_rewritten_file_raises(tmp_path: Path, now: bytes) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(conversation(*LONG))
    messages = sessiontree.open(path).context().messages
    path.write_bytes(now)
    with pytest.raises(ReplacedError):
        messages[0]
