"""Qwen Code: what the real program 0.24.4 sent for each golden, the dialect contract, and its rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.dialects.contract import ReadOptions
from sessiontree.dialects.qwen import QWEN
from sessiontree.dialects.qwen.context import NOT_RECORDED
from sessiontree.repair import carry_out, examine, plan_repair
from sessiontree.sources.detect import detect
from sessiontree.testing import check_dialect
from tests.builders import THOROUGH, opened
from tests.dialects.goldens import cases, copied, expectation, outline, sent_by_program, session_file
from tests.library.world import World

SESSION = "23c9d07a-b8a9-4d00-aab1-cb91be59c9d0"
WHOLE = [case for case in cases("qwen") if not case.startswith("D")]


@pytest.mark.parametrize("case", cases("qwen"))
def test_the_context_is_what_qwen_code_sent(case: str) -> None:
    assert outline(sessiontree.open(session_file("qwen", case))) == sent_by_program("qwen", case)


@pytest.mark.parametrize("case", cases("qwen"))
def test_a_golden_is_recognized_and_has_its_id(case: str) -> None:
    path = session_file("qwen", case)
    assert detect(path.read_bytes()[: 64 * 1024], path.name) is QWEN
    assert sessiontree.open(path).id == expectation("qwen", case)["session_id"]


@pytest.mark.parametrize("case", WHOLE)
def test_doctor_finds_no_damage_in_a_healthy_session(case: str) -> None:
    findings = examine(sessiontree.open(session_file("qwen", case)))
    assert [finding.rule.id for finding in findings if finding.severity != "note"] == []


def test_the_dialect_keeps_its_contract() -> None:
    samples = [session_file("qwen", case).read_bytes() for case in cases("qwen")]
    check_dialect(QWEN, samples, cuts=40 if THOROUGH else 2)


def test_a_fork_names_its_origin() -> None:
    origin = sessiontree.open(session_file("qwen", "06-fork")).header.forked_from
    assert origin is not None
    assert origin.session == expectation("qwen", "06-fork")["parent_session_id"]


def test_what_a_missing_parent_hides_is_recovered_and_repaired(tmp_path: Path) -> None:
    path = copied("qwen", "D5-tool-result-deleted", tmp_path)
    recovered = outline(sessiontree.open(path, read_options=ReadOptions(recovered=True)))
    assert [found[2] for found in recovered if found[0] == "user"] == [
        "Turn one",
        "Turn two, show b.txt [[TOOL:cat b.txt]]",
        "Turn three",
    ]
    session = sessiontree.open(path)
    carry_out(plan_repair(session), session)
    assert outline(sessiontree.open(path)) == recovered


# Rules


def record(id: str, parent: str | None, kind: str, **fields: Any) -> dict[str, Any]:
    base = {"uuid": id, "parentUuid": parent, "sessionId": SESSION, "timestamp": "2026-11-16T07:00:00.000Z"}
    return {**base, "type": kind, "cwd": "/work", "version": "0.24.4", **fields}


def content(role: str, *parts: dict[str, Any] | str) -> dict[str, Any]:
    return {"role": role, "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def call(id: str) -> dict[str, Any]:
    return {"functionCall": {"id": id, "name": "f", "args": {}}}


def result(id: str, text: str) -> dict[str, Any]:
    return {"functionResponse": {"id": id, "name": "f", "response": {"output": text}}}


def written(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / f"{SESSION}.jsonl"
    path.write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in records))
    return path


def chain(*records: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Records that follow each other, each with its type and message."""
    return [
        record(f"r{at}", f"r{at - 1}" if at else None, kind, message=message)
        for at, (kind, message) in enumerate(records)
    ]


def test_lines_with_one_uuid_are_one_record(tmp_path: Path) -> None:
    first, second = chain(("user", content("user", "hello")), ("assistant", content("model", "one ")))
    path = written(tmp_path, first, second, {**second, "message": content("model", "two", call("c1"))})
    session = sessiontree.open(path)
    assert outline(session)[1:3] == [("assistant", "text", "one two"), ("assistant", "call", "c1", "f", {})]
    assert (len(session.path_ids()), session.problems) == (2, [])


def test_a_call_without_a_result_gets_an_error_before_the_next_prompt(tmp_path: Path) -> None:
    records = chain(
        ("user", content("user", "hello")),
        ("assistant", content("model", call("c1"), call("c2"))),
        ("tool_result", content("user", result("c2", "two"))),
        ("user", content("user", "next")),
    )
    found = outline(sessiontree.open(written(tmp_path, *records)))
    assert found[3:] == [
        ("tool", "result", "c2", "two"),
        ("tool", "result", "c1", NOT_RECORDED),
        ("user", "text", "next"),
    ]


def test_a_rewind_leads_back_and_what_it_left_is_a_branch(tmp_path: Path) -> None:
    records = chain(
        ("user", content("user", "one")),
        ("assistant", content("model", "a1")),
        ("user", content("user", "two")),
        ("assistant", content("model", "a2")),
    )
    rewind = record("r4", "r1", "system", subtype="rewind", systemPayload={"truncatedCount": 2})
    path = written(tmp_path, *records, rewind)
    assert [found[2] for found in outline(sessiontree.open(path))] == ["one", "a1"]
    more = record("r5", "r4", "user", message=content("user", "three"))
    session = sessiontree.open(written(tmp_path, *records, rewind, more))
    assert [found[2] for found in outline(session)] == ["one", "a1", "three"]
    assert session.leaves() == ["r3", "r5"]


def test_a_command_that_only_the_client_answered_is_not_sent(tmp_path: Path) -> None:
    items = {"phase": "result", "rawCommand": "/stats", "outputHistoryItems": [{"type": "assistant", "text": "x"}]}
    command = record("r1", "r0", "system", subtype="slash_command", systemPayload=items)
    path = written(tmp_path, *chain(("user", content("user", "/stats"))), command)
    assert outline(sessiontree.open(path)) == []


def test_a_session_can_be_continued_and_branched(tmp_path: Path) -> None:
    path = copied("qwen", "01-plain", tmp_path)
    before = path.read_bytes()
    session = sessiontree.open(path)
    first = next(id for id in session.path_ids() if session.type_of(id) == "message")
    session.append("user", "more")
    session.move(first)
    session.append("user", "elsewhere")
    assert path.read_bytes().startswith(before)
    again = sessiontree.open(path)
    assert [found[2] for found in outline(again)] == ["Hello, first question [[THINK]]", "elsewhere"]
    assert all(json.loads(line)["sessionId"] == session.id for line in path.read_bytes().splitlines())


def test_a_title_is_shown_and_can_be_changed(tmp_path: Path) -> None:
    titled = record("r1", "r0", "system", subtype="custom_title", systemPayload={"customTitle": "The title"})
    path = written(tmp_path, *chain(("user", content("user", "hello"))), titled)
    session = sessiontree.open(path)
    assert session.name == "The title"
    session.append({"type": "session_info", "name": "Another"})
    assert sessiontree.open(path).name == "Another"
    assert json.loads(path.read_bytes().splitlines()[-1])["systemPayload"]["customTitle"] == "Another"


def test_usage_is_counted_once_for_each_response() -> None:
    usage = sessiontree.open(session_file("qwen", "01-plain")).usage()
    assert (usage.requests, usage.input, usage.output) == (2, 200, 40)


def test_archived_sessions_and_sub_agents_are_listed(tmp_path: Path) -> None:
    world = World(tmp_path)
    lines = chain(("user", content("user", "hello")), ("assistant", content("model", "hi")))
    parent = world.put(f".qwen/projects/-work/chats/{SESSION}.jsonl", lines)
    world.put(".qwen/projects/-work/chats/archive/33c9d07a-b8a9-4d00-aab1-cb91be59c9d0.jsonl", lines)
    world.put(f".qwen/projects/-work/subagents/{SESSION}/agent-a1.jsonl", lines)
    with world.library() as library:
        library.refresh()
        found = {summary.id: summary for summary in library.everything()}
    assert found.keys() == {SESSION, "33c9d07a-b8a9-4d00-aab1-cb91be59c9d0", "agent-a1"}
    assert (found["agent-a1"].kind, found["agent-a1"].parent) == ("subagent", str(parent))


def test_separators_at_which_qwen_code_would_end_a_line_are_escaped() -> None:
    session = sessiontree.create(cwd="/work", in_memory=True)
    session.append("user", "one\u2028two\u2029three")
    lines = b"".join(sessiontree.convert(session, "qwen").lines)
    assert "\u2028".encode() not in lines
    assert "\u2029".encode() not in lines
    assert outline(opened(lines, "qwen")) == [("user", "text", "one\u2028two\u2029three")]
