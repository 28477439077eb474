"""Conversions from and to Codex, whose sessions have no branches, and Qwen Code: the same conversation, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

import sessiontree
from sessiontree import Session
from sessiontree.conversion.verify import first_difference
from sessiontree.conversion.walk import iter_entries
from sessiontree.core.messages import Assistant, ToolResult, message_text, tool_calls
from sessiontree.repair import examine
from tests.builders import examples, opened
from tests.conversion.conversations import everything, sessions
from tests.dialects.goldens import cases, outline, session_file

LANDED = ("claude", "neovate", "omp", "pi", "native")
GOLDENS = [(program, case) for program in ("codex", "qwen") for case in cases(program) if case[0] != "D"]
REWORDED = ("compac", "compress", "interrupted-tool")
"""Each program has its own words for summaries, and for calls without a result."""


def converted(session: Session, to: str) -> Session:
    return opened(b"".join(sessiontree.convert(session, to).lines), to)


def content_of(session: Session) -> list[object]:
    """The canonical entries of the active branch, without the data that differs in each file."""
    return [
        (entry.kind, entry.id, {name: value for name, value in entry.fields.items() if name != "sessiontree"})
        for entry, _ in iter_entries(session, session.leaf, all_branches=False)
        if entry.kind != "leaf"
    ]


@pytest.mark.parametrize("target", ["codex", "qwen"])
@pytest.mark.parametrize("source", LANDED)
def test_everything_survives_a_round_trip(source: str, target: str) -> None:
    there = converted(everything(), source)
    across = converted(there, target)
    assert first_difference(there, there.leaf, across, all_branches=False) is None
    assert content_of(converted(across, source)) == content_of(there)


@pytest.mark.parametrize("target", ["codex", "qwen"])
@examples(25)
@given(session=sessions())
def test_any_conversation_survives_a_round_trip(target: str, session: Session) -> None:
    there = converted(session, target)
    assert first_difference(session, session.leaf, there, all_branches=False) is None
    assert content_of(converted(there, "native")) == content_of(session)


@pytest.mark.parametrize("target", ["codex", "qwen"])
def test_doctor_finds_nothing_in_a_converted_session(target: str) -> None:
    findings = examine(converted(everything(), target))
    assert [finding.rule.id for finding in findings if finding.severity != "note"] == []


@pytest.mark.parametrize("target", ["codex", "qwen"])
def test_a_converted_session_has_the_same_labels_and_name(target: str) -> None:
    session = everything()
    there = converted(session, target)
    assert (there.given_name, sorted(there.labels.values())) == ("the last line", ["the question"])
    back = converted(there, "native")
    assert (back.given_name, sorted(back.labels.values())) == ("the last line", ["the question"])


def texts_and_calls(session: Session) -> list[tuple[Any, ...]]:
    """Texts, calls and results of a context. Thinking stays with its provider; names of tools are mapped."""
    return [found[:3] if found[1] == "call" else found for found in outline(session) if found[1] != "thinking"]


@pytest.mark.parametrize("target", [*LANDED, "codex", "qwen"])
@pytest.mark.parametrize(("program", "case"), GOLDENS)
def test_a_session_of_the_program_converts_to_every_dialect_and_back(program: str, case: str, target: str) -> None:
    session = sessiontree.open(session_file(program, case))
    there = converted(session, target)
    assert first_difference(session, session.leaf, there, all_branches=False) is None
    back = converted(there, program)
    assert first_difference(session, session.leaf, back, all_branches=False) is None
    if not any(part in case for part in REWORDED):
        assert texts_and_calls(there) == texts_and_calls(session)
    assert outline(back) == outline(session)


@pytest.mark.parametrize("target", ["codex", "qwen"])
def test_calls_become_calls_of_the_targets_tools(target: str) -> None:
    session = sessiontree.create(cwd="/work", in_memory=True)
    session.append("user", "list")
    arguments = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls -la"}}
    session.append("assistant", [arguments], provider="p", model="m")
    session.append("toolResult", "a.txt", toolCallId="c1", toolName="bash")
    wanted = {
        "codex": ("exec_command", {"cmd": "ls -la"}),
        "qwen": ("run_shell_command", {"command": "ls -la"}),
    }[target]
    there = converted(session, target)
    assert outline(there)[1:] == [("assistant", "call", "c1", *wanted), ("tool", "result", "c1", "a.txt")]
    assert outline(converted(there, "native")) == outline(session)


def test_the_result_of_a_call_with_an_empty_id_is_sent_by_qwen_code() -> None:
    session = sessiontree.create(cwd="/work", in_memory=True)
    session.append("user", "list the files")
    block = {"type": "toolCall", "id": "", "name": "ls", "arguments": {"path": "."}}
    session.append_entry({"role": "assistant", "content": [block]})
    session.append_entry({"role": "toolResult", "toolCallId": "", "toolName": "ls", "content": "a.txt"})
    there = converted(session, "qwen")
    call, result = there.context().messages[1:]
    assert isinstance(call, Assistant)
    assert isinstance(result, ToolResult)
    assert [block.id for block in tool_calls(call)] == [result.tool_call_id] != [""]
    assert message_text(result) == "a.txt"
    assert content_of(converted(there, "native"))[:3] == content_of(session)


def test_a_rollout_has_the_events_that_make_the_picker_show_it() -> None:
    session = sessiontree.create(cwd="/work", in_memory=True)
    session.append("user", "a prompt")
    lines = b"".join(sessiontree.convert(session, "codex").lines)
    assert b'"payload":{"type":"user_message","message":"a prompt"' in lines
    assert b'"originator"' in lines
    assert b'"cli_version"' in lines
    assert b'"ordinal"' not in lines
