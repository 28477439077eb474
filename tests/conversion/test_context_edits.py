"""Text that an edit removed from the context in Pi never reaches another client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.conversion.convert import convert
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.core.messages import message_text
from sessiontree.errors import InvalidEntryError, NotFoundError

TIME = "2026-03-01T00:00:00.000Z"
USAGE = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2, "cost": {"total": 0.1}}


def line(kind: str, id: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": id, "parentId": parent, "timestamp": TIME, **fields}


def message(id: str, parent: str | None, role: str, text: str) -> dict[str, Any]:
    own = {"provider": "anthropic", "model": "m", "usage": USAGE, "stopReason": "stop"} if role == "assistant" else {}
    content = [{"type": "text", "text": text}]
    return line("message", id, parent, message={"role": role, "content": content, "timestamp": 1, **own})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "pi.jsonl"
    lines = [
        {"type": "session", "version": 3, "id": "s" * 36, "timestamp": TIME, "cwd": "/p", "sessiontreeFor": "pi"},
        message("00000001", None, "user", "Q1"),
        message("00000002", "00000001", "assistant", "A1 SECRET"),
        message("00000003", "00000002", "user", "Q2 HIDDEN"),
        message("00000004", "00000003", "assistant", "A2"),
        line("context_edit", "00000005", "00000004", targetId="00000002", replacement={"content": "A1 [redacted]"}),
        line("context_edit", "00000006", "00000005", targetId="00000003", replacement=None),
        message("00000007", "00000006", "user", "Q3"),
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def converted(path: Path, to: str, branch: Any = "all") -> tuple[Path, list[str]]:
    target = path.with_name(f"{path.stem}-{to}.jsonl")
    with sessiontree.open(str(path)) as session:
        result = convert(session, to, branch=branch)
        target.write_bytes(b"".join(result.lines))
        return target, [note.what for note in result.report.notes]


def sent(path: Path, dialect: str | None = None) -> list[str]:
    with sessiontree.open(str(path), dialect=dialect) as session:
        return [message_text(each) for each in session.context().messages]


@pytest.mark.parametrize("branch", ["active", "all"])
@pytest.mark.parametrize("target", ["claude", "omp", "neovate"])
def test_a_target_without_edits_gets_the_edited_messages(source: Path, target: str, branch: str) -> None:
    path, notes = converted(source, target, branch)
    assert sent(path, target) == ["Q1", "A1 [redacted]", "A2", "Q3"]
    assert "edited messages" in notes
    for text in path.read_text().splitlines():
        fields = json.loads(text)
        for name in ("sessiontree", "entry"):
            fields.pop(name, None)
        assert "SECRET" not in json.dumps(fields)
        assert "HIDDEN" not in json.dumps(fields)


@pytest.mark.parametrize("replacement", ["gone", [{"type": "text", "text": "gone"}], {}, {"content": 5}])
@pytest.mark.parametrize("target", ["claude", "omp", "neovate", "codex", "gemini", "qwen"])
def test_an_edit_that_cannot_be_read_removes_the_text_as_in_its_own_context(
    source: Path, target: str, replacement: Any
) -> None:
    lines = [json.loads(text) for text in source.read_text().splitlines()]
    lines[5]["replacement"] = replacement
    source.write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert "SECRET" not in "".join(sent(source))
    path, _ = converted(source, target, "active")
    assert "SECRET" not in "".join(sent(path, target))


@pytest.mark.parametrize("target", [{}, {"targetId": None}, {"targetId": 5}])
def test_an_edit_without_a_target_is_refused_with_the_reason(source: Path, target: dict[str, Any]) -> None:
    with sessiontree.open(str(source)) as session, pytest.raises(InvalidEntryError, match="needs a `targetId`"):
        session.append({"type": "context_edit", **target, "replacement": None})


@pytest.mark.parametrize("replacement", ["gone", {}, {"content": 5}, {"content": ["gone"]}])
def test_an_edit_that_cannot_be_read_is_not_written(source: Path, replacement: Any) -> None:
    with sessiontree.open(str(source)) as session, pytest.raises(InvalidEntryError, match="`replacement`"):
        session.append({"type": "context_edit", "targetId": "00000004", "replacement": replacement})


def test_an_edit_of_an_unknown_entry_is_refused(source: Path) -> None:
    with sessiontree.open(str(source)) as session, pytest.raises(NotFoundError, match="no entry '0000'"):
        session.append({"type": "context_edit", "targetId": "0000", "replacement": None})


@pytest.mark.parametrize("between", ["claude", "omp", "neovate"])
def test_converting_back_restores_the_originals_and_the_edits(source: Path, between: str) -> None:
    path, _ = converted(source, between)
    back, notes = converted(path, "pi")
    assert "edited messages" not in notes
    assert sent(back, "pi") == sent(source, "pi") == ["Q1", "A1 [redacted]", "A2", "Q3"]
    with sessiontree.open(str(back)) as session:
        assert message_text(session.entry("00000002").message) == "A1 SECRET"  # type: ignore[union-attr]
        assert message_text(session.entry("00000003").message) == "Q2 HIDDEN"  # type: ignore[union-attr]


def test_an_empty_branch_summary_is_not_sent_by_claude_code(source: Path) -> None:
    with source.open("a") as file:
        file.write(json.dumps(line("branch_summary", "00000008", "00000007", fromId="root", summary="")) + "\n")
        file.write(json.dumps(message("00000009", "00000008", "user", "Q4")) + "\n")
    path, _ = converted(source, "claude")
    assert sent(path, "claude") == ["Q1", "A1 [redacted]", "A2", "Q3", "Q4"]
    back, _ = converted(path, "pi")
    with sessiontree.open(str(back)) as session:
        assert "branch_summary" in session.journal.types


@pytest.mark.parametrize("target", ["claude", "omp", "neovate"])
def test_an_edit_is_refused_where_the_client_would_send_the_original(source: Path, target: str) -> None:
    path, _ = converted(source, target)
    before = path.read_bytes()
    with sessiontree.open(str(path), dialect=target) as session:
        edit = {"type": "context_edit", "targetId": session.leaf, "replacement": None}
        with pytest.raises(sessiontree.UsageError, match="does not apply edits of the context"):
            session.append(edit)
    assert path.read_bytes() == before


@pytest.mark.parametrize("is_failed", [False, True])
@pytest.mark.parametrize("target", ["pi", "native"])
@pytest.mark.parametrize("between", ["claude", "codex", "gemini", "neovate", "omp", "opencode", "qwen"])
def test_a_result_that_an_edit_removed_stays_removed_where_the_edit_cannot_be_stored(
    between: str, target: str, is_failed: bool, tmp_path: Path
) -> None:
    call = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}
    answer = message("00000002", "00000001", "assistant", "Reading.")
    answer["message"]["content"].append(call)
    result = message("00000003", "00000002", "toolResult", "SECRET")
    result["message"] |= {"toolCallId": "c1", "toolName": "read", "isError": False}
    said = message("00000004", "00000003", "assistant", "SECRET again")
    said["message"]["stopReason"] = "error" if is_failed else "stop"
    lines = [
        {"type": "session", "version": 3, "id": "s" * 36, "timestamp": TIME, "cwd": "/p", "sessiontreeFor": "pi"},
        message("00000001", None, "user", "Q1"),
        *(answer, result, said),
        line("context_edit", "00000005", "00000004", targetId="00000003", replacement=None),
        line("context_edit", "00000006", "00000005", targetId="00000004", replacement=None),
        message("00000007", "00000006", "user", "Q2"),
    ]
    path = tmp_path / "pi.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert "SECRET" not in str(sent(path, "pi"))
    copies = {between: tmp_path / "copy.json", target: tmp_path / "again.jsonl"}
    if between != "opencode":
        copies[between] = tmp_path / "copy.jsonl"
    session = sessiontree.open(path, dialect="pi")
    for to, copy in copies.items():
        session = carry_out(session, make_plan(session, Request(to, out=str(copy))))
    again = sent(copies[target], target)
    assert "Q2" in again
    assert "SECRET" not in str(again)
