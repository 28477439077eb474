"""The comparison of histories in the acceptance run: what counts as equal, and what does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from acceptance import network, trees
from acceptance.agent_sessions import without_our_data
from acceptance.cases import Case, branch_ends, compare_history, convert, try_case_safely
from acceptance.comparison import (
    ANSWER_TO_SUMMARY,
    MISSING_RESULT_TEXTS,
    both_lines,
    joined_texts,
    purposes,
    with_images_after_last_result,
    with_images_after_results,
    with_placeholders,
    with_repeated_ids,
    with_texts_before_calls,
    without_failed_turns,
    without_open_calls,
)
from acceptance.expectations import expected_messages
from acceptance.requests import find_history, without_reminders
from acceptance.sources import PICTURE, Dialect, Source

import sessiontree
from sessiontree.core.messages import BashExecution, CompactionSummary, Message, parse_message, tool_calls
from sessiontree.providers import render

GOLDENS = Path(__file__).parent / "goldens"
COMPACTED = {
    "codex": "codex/*/*01a1e328-729b-72f0-a75b-3cb2a6baa4d3.jsonl",
    "qwen": "qwen/*/*4bb5666c-bef6-4130-9910-82f6e8087621.jsonl",
}
SUMMARY = CompactionSummary(summary="We read both files.")


def said(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


def lines(messages: list[Message], sent: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    return both_lines(render(messages, "anthropic").messages, sent, messages)


@pytest.mark.parametrize("agent", COMPACTED)
def test_the_words_of_an_agent_around_a_summary_are_not_expected_of_another_program(agent: str) -> None:
    (path,) = GOLDENS.glob(COMPACTED[agent])
    session = sessiontree.open(path, dialect=agent)
    meant = expected_messages(session, "opencode")
    assert isinstance(meant[0], CompactionSummary)
    assert "SUMMARY-BY-FAKE-MODEL" in meant[0].summary
    assert not any(isinstance(message, CompactionSummary) for message in meant[1:])
    assert ANSWER_TO_SUMMARY not in [message.text for message in meant]


def test_calls_directly_after_a_summary_are_expected(tmp_path: Path) -> None:
    session = sessiontree.create(cwd="/p")
    session.append("user", "First.")
    session.append({"type": "compaction", "summary": SUMMARY.summary, "tokensBefore": 1})
    session.append("assistant", [{"type": "toolCall", "id": "c1", "name": "read", "arguments": {}}])
    session.append("toolResult", "the file", toolCallId="c1", toolName="read")
    path = tmp_path / "session.jsonl"
    path.write_bytes(without_our_data(b"".join(sessiontree.convert(session, "gemini").lines), "gemini"))
    summary, answer, *_ = expected_messages(sessiontree.open(path, dialect="gemini"), "claude")
    assert isinstance(summary, CompactionSummary)
    assert [call.id for call in tool_calls(answer)] == ["c1"]


@pytest.mark.parametrize("agent", ["codex", "gemini", "qwen"])
def test_answers_that_a_compaction_kept_are_expected_after_its_summary(agent: Dialect, tmp_path: Path) -> None:
    session = sessiontree.create(cwd="/p")
    session.append("user", "First.")
    kept = session.append("assistant", [{"type": "text", "text": "One."}]).id
    session.append({"type": "compaction", "summary": SUMMARY.summary, "tokensBefore": 1, "firstKeptEntryId": kept})
    session.append("user", "Second.")
    path = tmp_path / "session.jsonl"
    path.write_bytes(without_our_data(b"".join(sessiontree.convert(session, agent).lines), agent))
    source = sessiontree.open(path, dialect=agent)
    assert ["One." in message.text for message in source.context().messages] == [False, True, False]
    first, *others = expected_messages(source, "claude")
    assert isinstance(first, CompactionSummary)
    assert [message.text for message in others] == ["One.", "Second."]


@pytest.mark.parametrize(
    "sent",
    [
        [said("user", "Earlier: We read both files."), said("user", "Next.")],
        [said("user", "<s>We read both files.</s>"), said("assistant", ANSWER_TO_SUMMARY), said("user", "Next.")],
        [said("user", "What did we do so far?"), said("assistant", "We read both files."), said("user", "Next.")],
    ],
)
def test_a_summary_is_equal_in_the_words_of_each_program(sent: list[dict[str, Any]]) -> None:
    ours, theirs = lines([SUMMARY, parse_message({"role": "user", "content": "Next."})], sent)
    assert ours == theirs


@pytest.mark.parametrize(
    "sent",
    [
        [said("user", "We read one file."), said("user", "Next.")],
        [said("user", "We read both files."), said("user", "Next."), said("assistant", ANSWER_TO_SUMMARY)],
        [said("user", "We read both files."), said("user", "What did we do so far?"), said("user", "Next.")],
        [said("user", "Next."), said("user", "We read both files.")],
    ],
)
def test_another_summary_or_its_words_at_another_place_differ(sent: list[dict[str, Any]]) -> None:
    ours, theirs = lines([SUMMARY, parse_message({"role": "user", "content": "Next."})], sent)
    assert ours != theirs


def test_a_call_without_a_result_is_left_out_and_every_other_one_stays() -> None:
    answered = ["assistant calls read c1: {}", "result of c1: alpha"]
    for without in (["result of c2: (nothing was recorded)"], ["error of c2: (nothing was recorded)"], []):
        assert without_open_calls([*answered, "assistant calls read c2: {}", *without]) == answered


def test_only_an_image_that_cannot_be_decoded_may_be_replaced_by_a_text() -> None:
    images = [{"type": "image", "data": data, "mimeType": "image/png"} for data in ("AAAA", PICTURE)]
    message = parse_message({"role": "user", "content": images})
    ours, _ = lines([message], [])
    replaced = with_placeholders(ours, [message], "omitted")
    assert replaced == ["user: omitted", ours[1]]


@pytest.mark.parametrize("words", ["Attached media from tool result:", "(attached media from previous tool call)"])
def test_images_that_are_sent_after_a_result_belong_to_it(words: str) -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    sent = [
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "read", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "a picture"},
        {"role": "user", "content": [{"type": "text", "text": words}, image]},
        {"role": "user", "content": "CHECK"},
    ]
    found = find_history([{"path": "/v1/chat/completions", "body": {"messages": sent, "tools": [{}]}}], "CHECK")
    assert found is not None
    assert [block["type"] for block in found[-1]["content"][0]["content"]] == ["text", "image"]


def test_a_program_is_ended_after_its_cpu_time_and_not_while_it_waits(tmp_path: Path) -> None:
    def run(code: str) -> int | None:
        return network.run([sys.executable, "-c", code], {}, tmp_path, 1.0).exit_code

    assert run("while True: pass") is None
    assert run("import time; time.sleep(1.2)") == 0


def test_a_text_that_contains_a_summary_is_not_one() -> None:
    recorded: list[Message] = [
        CompactionSummary(summary="two lines"),
        BashExecution(command="ls", output="two lines and more"),
    ]
    ours = render(recorded, "anthropic").messages
    texts = ["Summary: two lines", "<bash-input>ls</bash-input>", "<bash-stdout>two lines and more</bash-stdout>"]
    theirs = [{"role": "user", "content": text} for text in texts]
    here, there = both_lines(ours, theirs, recorded)
    assert here == there == ["summary: two lines", "user: ls | two lines and more"]


def test_a_program_s_words_before_a_summary_are_not_taken_for_a_command() -> None:
    recorded: list[Message] = [
        CompactionSummary(summary="two lines and more"),
        BashExecution(command="ls", output="two lines"),
    ]
    theirs = [said("user", "The tools were used. Summary: two lines and more"), said("user", "Ran ls: two lines")]
    here, there = both_lines(render(recorded, "anthropic").messages, theirs, recorded)
    assert here == there == ["summary: two lines and more", "user: ls | two lines"]


@pytest.mark.parametrize("seed", [1323, 1451])
def test_answers_with_results_after_both_are_compared_with_results_after_each(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(trees.GENERATORS["omp"](seed))
    case = Case(Source("omp", path), "claude")
    (tmp_path / "converted").mkdir()
    converted = sessiontree.open(convert(case.source, "claude", tmp_path / "converted"), dialect="claude")
    rebuilt = {"messages": render(converted.context().messages, "anthropic").messages}
    ours, theirs = compare_history(case, case.source.opened("claude"), rebuilt)
    assert ours == theirs


def test_texts_of_answers_that_a_program_joins_are_compared_as_one() -> None:
    separate = ["user: Hello", "assistant: one", "assistant: two words", "user: And?", "assistant: three"]
    joined = ["user: Hello", "assistant: onetwo words", "user: And?", "assistant: three"]
    assert joined_texts(separate) == joined_texts(joined)
    assert joined_texts(separate) != joined_texts(["user: Hello", "assistant: one", "user: And?", "assistant: three"])
    assert joined_texts(separate) != joined_texts([*joined[:-1], "user: three"])


def test_a_conversion_that_fails_is_a_case_that_differs(tmp_path: Path) -> None:
    outcome = try_case_safely(Case(Source("pi", tmp_path / "nowhere.jsonl"), "codex"), tmp_path / "run")
    assert outcome.status == "differs"
    assert "nowhere.jsonl" in outcome.reason


def test_an_aborted_answer_with_content_stays_where_the_program_sends_it() -> None:
    def answer(stopped: str, *blocks: dict[str, Any]) -> Message:
        return parse_message({"role": "assistant", "content": list(blocks), "stopReason": stopped})

    words, thoughts = {"type": "text", "text": "words"}, {"type": "thinking", "thinking": "thoughts"}
    sent = [answer("aborted", thoughts, words), answer("stop", words)]
    failed = [answer("error", words), answer("aborted", thoughts)]
    assert without_failed_turns([*failed, *sent], sends_aborted=True) == sent
    assert without_failed_turns([*failed, *sent]) == sent[1:]


def test_reminders_are_left_out_and_notifications_follow_the_results() -> None:
    note = "<task-notification>done</task-notification>"
    reminder = "\n<system-reminder>\nx\n</system-reminder>\n"
    marked = f"<system-reminder>words\n{note}\n</system-reminder>"
    parts = [{"type": "text", "text": "b"}, {"type": "text", "text": reminder}, {"type": "text", "text": marked}]
    results = [
        {"type": "tool_result", "tool_use_id": "1", "content": f"a{marked}{reminder}"},
        {"type": "tool_result", "tool_use_id": "2", "content": parts},
    ]
    messages = [
        {"role": "user", "content": [*results, {"type": "text", "text": "prompt"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "answer"}]},
        {"role": "user", "content": [{"type": "text", "text": reminder}]},
        {"role": "user", "content": [{"type": "text", "text": marked}]},
    ]
    first, _, last = without_reminders(messages)
    assert [block.get("content") or block["text"] for block in first["content"]] == [
        "a",
        [{"type": "text", "text": "b"}],
        note,
        note,
        "prompt",
    ]
    assert last["content"] == [{"type": "text", "text": note}]


def test_only_the_ids_of_repeated_calls_may_be_numbered() -> None:
    ours = ["assistant calls read call_1: {}", "result of call_1: text"]
    numbered = ["assistant calls read call_1_2: {}", "result of call_1_2: text"]
    assert with_repeated_ids(numbered, ours) == ours
    assert with_repeated_ids(["assistant calls read call_3_2: {}"], ours) == ["assistant calls read call_3_2: {}"]
    assert with_repeated_ids([*ours, *numbered], [*ours, *numbered]) == [*ours, *numbered]


def test_an_image_of_a_result_is_equal_to_one_of_the_prompt_after_it() -> None:
    image = "[image/png 10a7227ade22]"
    inside, after = [f"result of a: text {image}"], ["result of a: text", f"user: {image}"]
    assert with_images_after_results(inside) == after == with_images_after_results(after)
    assert with_images_after_results([f"result of a: {image}"]) == ["result of a: (no output)", f"user: {image}"]


def test_an_image_after_a_result_that_was_not_recorded_is_compared() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
    parts = [{"type": "text", "text": MISSING_RESULT_TEXTS[0]}]
    image = {"type": "image", "source": {"media_type": "image/png", "data": PICTURE}}

    def history(inside: list[Any], after: list[Any]) -> list[dict[str, Any]]:
        result = {"type": "tool_result", "tool_use_id": "c1", "content": [*parts, *inside]}
        return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result, *after]}]

    ours, theirs = both_lines(history([], [image]), history([image], []), [])
    assert with_images_after_results(ours) == with_images_after_results(theirs)
    assert ours != theirs
    ours, theirs = both_lines(history([], [image]), history([], []), [])
    assert with_images_after_results(ours) != with_images_after_results(theirs)


def test_only_images_of_results_that_follow_each_other_may_be_after_the_last_of_them() -> None:
    image = "[image/png 10a7227ade22]"
    recorded = [f"result of c1: one {image}", "result of c2: two", "user: U"]
    sent = ["result of c1: one", f"result of c2: two {image}", "user: U"]
    assert with_images_after_last_result(recorded) == with_images_after_last_result(sent)
    for other in (
        ["result of c1: one", "result of c2: two", "user: U"],  # lost
        ["result of c1: one", "result of c2: two", f"user: U {image}"],  # of the prompt
        ["result of c1: one", f"result of c2: two {image.replace('10', '20')}", "user: U"],  # another one
    ):
        assert with_images_after_last_result(recorded) != with_images_after_last_result(other)
    apart = ["result of c1: one", "assistant: A", f"result of c2: two {image}"]
    assert with_images_after_last_result([recorded[0], "assistant: A", recorded[1]]) != with_images_after_last_result(
        apart
    )


def test_only_texts_of_the_same_answer_may_be_before_its_calls() -> None:
    recorded = ["assistant: A", "assistant calls read c1: {}", "assistant: B", "result of c1: one", "assistant: C"]
    sent = ["assistant: A", "assistant: B", "assistant calls read c1: {}", "result of c1: one", "assistant: C"]
    assert with_texts_before_calls(recorded) == with_texts_before_calls(sent) == sent
    for other in (
        ["assistant: A", "assistant calls read c1: {}", "result of c1: one", "assistant: B", "assistant: C"],
        ["assistant: B", "assistant: A", *sent[2:]],
        [*sent[:1], *sent[2:]],
    ):
        assert with_texts_before_calls(other) != sent


def test_every_note_about_a_background_task_that_did_not_end_is_known() -> None:
    note = "user: <task-notification> {} didn't finish before the previous session ended. </task-notification>"
    history = ["user: go", "assistant: done"]
    added = [note.format("An agent"), note.format("2 commands")]
    assert purposes(history, [*history, *added]) == ["Claude Code adds that a background task did not end"]
    assert purposes(history, [*history[:1], *added]) == []
    assert purposes([*history, "user: lost"], [*history, *added]) == []


def test_thinking_at_the_end_of_an_answer_is_known_and_any_other_is_not() -> None:
    block, text = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "text", "text": "a"}
    ours = ["user: go", "assistant: a", "assistant: b"]
    theirs = [*ours[:2], "assistant thinks: hm c2ln", *ours[2:]]
    at_end = [{"role": "assistant", "content": [text, block, {**block, "thinking": "more"}]}]
    assert purposes(ours, theirs, at_end) == ["Claude Code sends thinking at the end of an answer"]
    assert purposes(theirs, ours, at_end) == []
    assert purposes(ours, theirs, [{"role": "assistant", "content": [block, text]}]) == []


def test_a_prompt_typed_in_between_may_be_before_the_others_of_its_turn() -> None:
    ours = ["user: go", "user: typed it", "assistant: a", "user: b"]
    moved = ["user: typed it", "user: go", *ours[2:]]
    assert purposes(ours, moved, [], ["typed  it"]) == ["Claude Code sends a prompt typed in between before the others"]
    assert purposes(ours, moved) == []
    assert purposes(ours, ["user: go", *ours[2:], "user: typed it"], [], ["typed it"]) == []


def test_branches_are_expected_as_they_are_listed_and_a_note_after_a_summary_is_not_one(tmp_path: Path) -> None:
    """Only what `branches` lists is one: the conversation goes on after the lines that the compaction kept."""
    kept = {"anchorUuid": "B1", "uuids": ["U1", "A1"], "allUuids": ["U1", "A1"]}
    path = tmp_path / "notes.jsonl"
    records = [
        {"type": "user", "uuid": "U1", "parentUuid": None, "message": {"role": "user", "content": "U1"}},
        _answer("A1", "U1"),
        {"type": "system", "subtype": "compact_boundary", "uuid": "B1", "parentUuid": None, "logicalParentUuid": "A1"}
        | {"compactMetadata": {"trigger": "auto", "preTokens": 1000, "preservedMessages": kept}},
        {"type": "user", "uuid": "S1", "parentUuid": "B1", "isCompactSummary": True}
        | {"message": {"role": "user", "content": "S1"}},
        {"type": "system", "subtype": "informational", "uuid": "T1", "parentUuid": "S1", "content": "note"},
        {"type": "user", "uuid": "U2", "parentUuid": "A1", "message": {"role": "user", "content": "U2"}},
        _answer("A2", "U2"),
        {"type": "user", "uuid": "U3", "parentUuid": "S1", "message": {"role": "user", "content": "U3"}},
        _call("A3", "U3", "a"),
        _call("A4", "A3", "b"),
        _result("R3", "A3", "a"),
        _result("R4", "A4", "b"),
        {"type": "last-prompt", "lastPrompt": "x", "leafUuid": "A2"},
    ]
    times = (f"2026-10-01T00:00:{second:02}.000Z" for second in range(len(records)))
    stamped = ({**record, "isSidechain": False, "sessionId": "s", "timestamp": next(times)} for record in records)
    path.write_text("".join(json.dumps(record) + "\n" for record in stamped))
    case = Case(Source("claude", path), "omp", branch="all")
    (tmp_path / "copy").mkdir()
    copy = convert(case.source, "omp", tmp_path / "copy", "all")
    assert list(branch_ends(case, copy)) == ["A2", "R3", "R4"]


def _answer(uuid: str, parent: str, response: str = "", **block: Any) -> dict[str, Any]:
    message = {"id": response or f"msg_{uuid}", "role": "assistant", "model": "claude-sonnet-4-5"}
    content = [block or {"type": "text", "text": uuid}]
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": {**message, "content": content}}


def _call(id: str, parent: str, call: str) -> dict[str, Any]:
    return _answer(id, parent, "msg_calls", type="tool_use", id=call, name="Bash", input={"command": call})


def _result(id: str, parent: str, call: str) -> dict[str, Any]:
    content = [{"type": "tool_result", "tool_use_id": call, "content": call}]
    return {"type": "user", "uuid": id, "parentUuid": parent, "message": {"role": "user", "content": content}}
