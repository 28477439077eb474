"""Contexts that a target would send differently are restated after a reset, and only those."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from acceptance import transcripts, trees
from acceptance.comparison import both_lines, without_failed_turns, without_open_calls

import sessiontree
from sessiontree import Session, plugins
from sessiontree.branches.tips import count_tips, find_tips
from sessiontree.conversion.convert import BranchChoice, Converted
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.conversion.verify import first_difference
from sessiontree.conversion.walk import iter_entries
from sessiontree.core.messages import Message, message_text
from sessiontree.dialects.contract import ReadOptions
from sessiontree.dialects.neovate.client import NeovateClient
from sessiontree.providers import render
from sessiontree.session.reader import Reader
from tests import builders
from tests.builders import THOROUGH, json_line, opened
from tests.conversion.conversations import assistant, call, everything, result, text

GENERATORS = {"claude": transcripts.generate, **trees.GENERATORS}
TARGETS = ("claude", "pi", "omp", "native", "neovate", "qwen")
"""Dialects with resets, after which a context can be restated."""
SESSIONS = 100 if THOROUGH else 3
_RENAMED = re.compile(r"\b(toolu_\d+)_\d+\b")


def converted(session: Session, to: str, branch: BranchChoice = "all") -> tuple[Session, Converted]:
    done = sessiontree.convert(session, to, branch=branch)
    return opened(b"".join(done.lines), to), done


def is_restated(done: Converted) -> bool:
    return any(note.what == "contexts" for note in done.report.notes)


def texts(session: Session, leaf: str | None = None) -> list[str]:
    """The texts that a provider receives, call ids for calls, and results with their call's id."""
    found: list[str] = []
    for message in render(session.context(leaf).messages, "anthropic").messages:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match block["type"]:
                case "text":
                    found.append(block["text"])
                case "tool_use":
                    found.append(block["id"])
                case "tool_result":
                    found.append(f"{block['tool_use_id']}: {block['content']}")
    return found


def pi_session(*messages: dict[str, Any]) -> Session:
    session = sessiontree.create(cwd="/src", in_memory=True)
    for message in messages:
        session.append(message)
    return converted(session, "pi")[0]


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_after_another_prompt_is_sent_after_its_call(target: str) -> None:
    session = pi_session(
        {"role": "user", "content": "Read it."},
        assistant(text("Reading."), call("call_1", "read", {"path": "a"})),
        assistant(text("Meanwhile.")),
        {"role": "user", "content": "And?"},
        result("call_1", "read", "the file"),
        assistant(text("Done.")),
    )
    there, _ = converted(session, target)
    expected = texts(session)
    assert expected.index("call_1: [{'type': 'text', 'text': 'the file'}]") == expected.index("call_1") + 1
    sent = texts(there)
    assert [each.partition(":")[0] for each in sent] == [each.partition(":")[0] for each in expected]
    assert "the file" in sent[sent.index("call_1") + 1]


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_after_an_empty_answer_is_sent_after_its_call(target: str) -> None:
    session = pi_session(
        {"role": "user", "content": "Read it."},
        assistant(call("call_1", "read", {"path": "a"})),
        assistant(),
        result("call_1", "read", "the file"),
        assistant(text("Done.")),
    )
    sent = texts(converted(session, target)[0])
    assert "the file" in sent[sent.index("call_1") + 1]


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_without_a_call_is_sent_as_text(target: str) -> None:
    session = pi_session(
        {"role": "user", "content": "Hello"}, result("call_gone", "read", "lost and found"), assistant(text("I see."))
    )
    there, _ = converted(session, target)
    assert any("lost and found" in each for each in texts(there))
    assert texts(there)[0] == "Hello"
    assert texts(there)[-1] == "I see."


@pytest.mark.parametrize("target", TARGETS)
def test_a_branch_with_nothing_but_results_without_calls_is_sent(target: str) -> None:
    session = sessiontree.create(cwd="/src", in_memory=True)
    left = session.append(result("call_gone", "read", "lost and found"))
    session.move(None)
    session.append("user", "Hello")
    there, _ = converted(converted(session, "pi")[0], target)
    assert "lost and found" in " ".join(texts(session, left.id))
    assert [words for id in there.leaves() if "lost and found" in (words := " ".join(texts(there, id)))]
    assert texts(there) == ["Hello"]


def test_claude_code_finds_no_results_of_another_branch_for_a_call_at_the_end_of_a_branch() -> None:
    session = sessiontree.create(cwd="/src", in_memory=True)
    session.append("user", "Read it.")
    answer = session.append(assistant(text("Reading."), call("call_1", "read", {"path": "a"})))
    session.append(result("call_1", "read", "the file"))
    session.append("user", "And now?")
    end = session.leaf
    session.move(answer.id)
    session.append({"type": "label", "targetId": answer.id, "label": "here"})
    session.move(end)
    there, _ = converted(converted(session, "pi")[0], "claude")
    without = [" ".join(words) for id in there.leaves() if "And now?" not in (words := texts(there, id))]
    assert [words for words in without if "Reading." in words and "the file" not in words]
    assert texts(there)[-1] == "And now?"


def test_claude_code_finds_no_restated_results_for_a_call_on_another_branch() -> None:
    lines = [
        builders.header(),
        builders.entry("message", "call", message=assistant(call("call_1", "read", {"path": "a"}))),
        builders.entry("label", "label", "call", targetId="call", label="here"),
        builders.entry("message", "result", "label", message=result("call_1", "read", "the file")),
        builders.entry("branch_summary", "left", "label", fromId="end", summary="Reading did not help."),
        builders.entry("ttsr_injection", "end", "result", injectedRules=["brief"]),
    ]
    session = opened(b"".join(lines), "native")
    assert "the file" not in " ".join(texts(session, "left"))
    there, _ = converted(session, "claude")
    newest = [words for id in there.leaves() if "did not help" in (words := " ".join(texts(there, id)))][-1]
    assert "the file" not in newest
    assert "the file" in texts(there)[-1]


def claude_line(kind: str, id: str, parent: str | None, **fields: Any) -> bytes:
    time = f"2026-02-16T10:00:{int(id[1:]):02}.000Z"
    return json_line({"parentUuid": parent, "type": kind, "uuid": id, "timestamp": time, **fields})


def user_line(id: str, parent: str | None, words: str, **fields: Any) -> bytes:
    return claude_line("user", id, parent, message={"role": "user", "content": words}, **fields)


def answer_line(id: str, parent: str, words: str) -> bytes:
    content = [{"type": "text", "text": words}]
    message = {"id": f"msg_{id}", "role": "assistant", "model": "m", "content": content}
    return claude_line("assistant", id, parent, message=message)


def summarized_from_here(*more: bytes) -> Session:
    """A transcript whose summary follows the messages it keeps, of which one was left out."""
    preserved = {"anchorUuid": "B5", "uuids": ["U1", "A2"], "allUuids": ["U1", "A2"]}
    lines = [
        user_line("U1", None, "first"),
        answer_line("A2", "U1", "one"),
        user_line("U3", "A2", "second"),
        answer_line("A4", "U3", "two"),
        claude_line(
            "system",
            "B5",
            None,
            subtype="compact_boundary",
            logicalParentUuid="A4",
            compactMetadata={"trigger": "manual", "preservedMessages": preserved},
        ),
        user_line("S6", "B5", "This session is being continued: two.", isCompactSummary=True),
        user_line("U7", "S6", "third"),
        *more,
    ]
    return opened(b"".join(lines), "claude")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("branch", ["active", "all"])
def test_a_summary_after_the_messages_it_keeps_stays_there(target: str, branch: BranchChoice) -> None:
    session = summarized_from_here()
    expected = ["first", "one", "This session is being continued: two.", "third"]
    assert texts(session) == expected
    there, _ = converted(session, target, branch)
    sent = texts(there)
    assert len(sent) == len(expected)
    assert all(part in words for part, words in zip(expected, sent, strict=True))


def compacted_in_neovate() -> tuple[Session, list[str]]:
    """A Neovate session with a compaction; returns also its lines: the summary, and copies of the kept messages."""
    session = converted(sessiontree.create(cwd="/src", in_memory=True), "neovate")[0]
    session.append("user", "old")
    session.append(assistant(text("older")))
    kept = session.append("user", "kept")
    session.append(assistant(text("kept answer")))
    session.append({"type": "compaction", "summary": "so far", "firstKeptEntryId": kept.id, "tokensBefore": 9})
    lines = session.path_ids()
    session.append("user", "next")
    return session, lines


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("branch", ["active", "all"])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("prompts", [(), ("new",)])
def test_a_branch_that_starts_among_the_messages_a_compaction_keeps_has_no_later_ones(
    target: str, branch: BranchChoice, at: int, prompts: tuple[str, ...]
) -> None:
    session, lines = compacted_in_neovate()
    session.move(lines[at])
    for prompt in prompts:
        session.append("user", prompt)
    expected = [*("so far", "kept", "kept answer")[: at + 1], *prompts]
    assert texts(session) == expected
    there, done = converted(session, target, branch)
    sent = texts(there)
    assert len(sent) == len(expected)
    assert all(part in words for part, words in zip(expected, sent, strict=True))
    others = [texts(there, leaf)[1:] for leaf in there.leaves()]
    assert (["kept", "kept answer", "next"] in others) == (branch == "all")
    assert is_restated(done) == (at < 2)


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_compaction_of_neovate_keeps_is_not_restated(target: str) -> None:
    session, _ = compacted_in_neovate()
    assert not is_restated(converted(session, target)[1])


@pytest.mark.parametrize("target", TARGETS)
def test_lines_beside_the_conversation_do_not_become_branches_that_repeat_it(target: str) -> None:
    session = summarized_from_here(
        claude_line("progress", "P8", "U7", data={"type": "hook_progress"}),
        answer_line("A9", "U7", "three"),
        claude_line("progress", "P10", "A9", data={"type": "hook_progress"}),
        claude_line("progress", "P11", "A9", data={"type": "hook_progress"}),
        user_line("U12", "A9", "fourth"),
        user_line("U13", "A9", "fifth"),
        claude_line("progress", "P14", "U13", data={"type": "hook_progress"}),
    )
    assert texts(session)[-1] == "fifth"
    there, done = converted(session, target)
    assert count_tips(there) == count_tips(session) == 2
    restated = [note.count for note in done.report.notes if note.what == "contexts"]
    assert restated == ([2] if is_restated(done) else [])
    sent = [texts(there, there.journal.tree.ids[tip]) for tip in find_tips(there)]
    assert [(words[0], words[-1]) for words in sent] == [("first", "fifth"), ("first", "fourth")]


@pytest.mark.parametrize("target", TARGETS)
def test_branches_with_the_same_last_message_keep_their_contexts(target: str) -> None:
    # The client keeps only the last message of the active branch: the summary before it was not written.
    preserved = {"headUuid": "U3", "anchorUuid": "S9", "tailUuid": "U3"}
    metadata = {"trigger": "manual", "preTokens": 1, "preservedSegment": preserved}
    boundary = {"subtype": "compact_boundary", "logicalParentUuid": "U3", "compactMetadata": metadata}
    lines = [
        user_line("U1", None, "first"),
        answer_line("A2", "U1", "one"),
        user_line("U3", "A2", "second"),
        claude_line("system", "B4", None, **boundary),
    ]
    session = opened(b"".join(lines), "claude")
    assert (texts(session), texts(session, "B4")) == (["second"], ["first", "one", "second"])
    there, _ = converted(session, target)
    assert texts(there) == ["second"]
    assert ["first", "one", "second"] in [texts(there, id) for id in there.leaves()]


def entry_ids(session: Session) -> list[str]:
    entries = iter_entries(session, session.leaf, all_branches=True)
    return [entry.id for entry, _ in entries if entry.kind != "leaf"]


@pytest.mark.parametrize("between", TARGETS)
def test_restated_messages_are_not_converted_again(between: str) -> None:
    session = summarized_from_here()
    there, done = converted(session, between)
    assert first_difference(session, session.leaf, there, all_branches=True) is None
    back, _ = converted(there, "claude")
    assert texts(back) == texts(session)
    assert entry_ids(back) == entry_ids(there)
    if is_restated(done):
        marked: list[object] = []
        list(iter_entries(there, there.leaf, all_branches=False, on_restated=marked.append))
        assert marked


@pytest.mark.parametrize("target", TARGETS)
def test_ordinary_sessions_are_not_restated(target: str) -> None:
    session = everything()
    for source in TARGETS:
        there, _ = converted(session, source)
        assert not is_restated(converted(there, target)[1]), source


@pytest.mark.parametrize("target", plugins.names("dialects"))
@pytest.mark.parametrize("kind", ["branch_summary", "compaction"])
def test_a_summary_between_a_call_and_its_result_loses_neither(kind: str, target: str) -> None:
    session = omp_session(
        message_line({"role": "user", "content": "Read both."}),
        message_line(assistant(call("call_1", "read", {"path": "a"}), call("call_2", "read", {"path": "b"}))),
        message_line(result("call_1", "read", "the first file")),
        {"type": kind, "summary": "Much was done.", "fromId": "00000000", "firstKeptEntryId": "00000000"},
        message_line(result("call_2", "read", "the second file")),
        message_line(assistant(text("Done."))),
    )
    sent = "\n".join(texts(converted(session, target, "active")[0]))
    for expected in ("Read both.", "the first file", "the second file", "Much was done.", "Done."):
        assert sent.count(expected) == 1, expected


def omp_session(*lines: dict[str, Any]) -> Session:
    head = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-02-16T10:00:00.000Z", "cwd": "/src"}
    parents = [None, *(f"{number:08}" for number in range(len(lines)))]
    numbered = [
        {"id": f"{number:08}", "parentId": parents[number], "timestamp": "2026-02-16T10:00:01.000Z", **line}
        for number, line in enumerate(lines)
    ]
    return opened(b"".join(map(json_line, [head, *numbered])), "omp")


def message_line(message: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "message": message}


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "omp"])
def test_messages_that_a_provider_replays_are_sent_to_other_agents(target: str) -> None:
    remote = {"openaiRemoteCompaction": {"provider": "openai", "replacementHistory": [{"type": "message"}]}}
    session = omp_session(
        message_line({"role": "user", "content": "old"}),
        message_line({"role": "user", "content": "kept"}),
        {"type": "compaction", "summary": "SUM", "firstKeptEntryId": "00000001", "preserveData": remote},
        message_line({"role": "user", "content": "new"}),
    )
    assert [message_text(message) for message in session.context().messages] == ["SUM", "new"]
    there, done = converted(session, target)
    sent = texts(there)
    assert len(sent) == 3
    assert "SUM" in sent[0]
    assert sent[1:] == ["kept", "new"]
    assert not is_restated(done)


@pytest.mark.parametrize("target", ["claude", "native", "pi"])
def test_failed_answers_that_were_not_sent_are_kept_as_data(target: str) -> None:
    failed = {**assistant(text("half an ans")), "stopReason": "aborted"}
    session = omp_session(
        message_line({"role": "user", "content": "go"}),
        message_line(failed),
        message_line(assistant(text("all of it"))),
    )
    there, done = converted(session, target)
    assert texts(there) == ["go", "all of it"]
    assert ("aside", "failed answers that were not sent") in [(note.kind, note.what) for note in done.report.notes]
    assert not is_restated(done)
    back, _ = converted(there, "omp")
    recorded = [
        entry.fields.get("message", {}).get("stopReason")
        for entry, _ in iter_entries(back, back.leaf, all_branches=True)
    ]
    assert "aborted" in recorded
    assert texts(back) == texts(session)


def test_a_session_with_edits_is_written_to_a_file(tmp_path: Any) -> None:
    session = pi_session({"role": "user", "content": "secret"}, assistant(text("Hello.")))
    first = next(id for id in session.path_ids(session.leaf) if session.type_of(id) == "message")
    session.append({"type": "context_edit", "targetId": first, "replacement": None})
    for target in ("claude", "omp"):
        plan = make_plan(session, Request(target, out=str(tmp_path / f"{target}.jsonl")), {})
        sent = carry_out(session, plan).context().messages
        assert [message_text(message) for message in sent] == ["Hello."]


def test_an_edit_of_another_branch_does_not_reach_this_one() -> None:
    session = pi_session({"role": "user", "content": "shared"})
    shared = next(id for id in session.path_ids(session.leaf) if session.type_of(id) == "message")
    session.append({"type": "context_edit", "targetId": shared, "replacement": {"content": "redacted"}})
    session.append("user", "edited branch")
    session.move(shared)
    session.append("user", "this branch")
    there, done = converted(session, "claude")
    assert texts(there) == texts(session) == ["shared", "this branch"]
    assert is_restated(done)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("has_progress", [False, True])
def test_a_result_before_the_last_shard_of_a_response_stays_in_the_context(target: str, has_progress: bool) -> None:
    def shard(id: str, parent: str, made: str) -> bytes:
        block = {"type": "tool_use", "id": made, "name": "Bash", "input": {}}
        message = {"id": "msg_1", "role": "assistant", "model": "m", "content": [block]}
        return claude_line("assistant", id, parent, message=message)

    answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}]}
    lines = [
        user_line("U1", None, "go"),
        shard("A2", "U1", "toolu_1"),
        claude_line("progress", "P3", "A2", data={"type": "bash_progress"}) if has_progress else b"",
        claude_line("user", "R4", "A2", message=answer),
        shard("A5", "R4", "toolu_2"),
        user_line("U6", "A5", "go on"),
    ]
    there, _ = converted(opened(b"".join(lines), "claude"), target)
    assert "done" in json.dumps(texts(there))
    assert texts(there)[-1] == "go on"


def lines_of(messages: list[Message], others: list[Message]) -> tuple[list[str], list[str]]:
    both = both_lines(
        render(messages, "anthropic").messages, render(others, "anthropic").messages, [*messages, *others]
    )
    here, there = (
        [_RENAMED.sub(r"\1", re.sub(r" calls \S+ (\S+): .*", r" calls \1", line)) for line in without_open_calls(lines)]
        for lines in both
    )
    return here, there


# Qwen Code joins texts of answers that follow each other; `test_contexts_of_every_agent` compares them so.
@pytest.mark.parametrize("target", [target for target in TARGETS if target != "qwen"])
@pytest.mark.parametrize("source", GENERATORS)
def test_generated_sessions_give_their_context_in_every_dialect_and_back(source: str, target: str) -> None:
    if source == target:
        pytest.skip("not a conversion")
    tried, seed = 0, 0
    while tried < SESSIONS:
        seed += 1
        session = opened(GENERATORS[source](seed), source)
        if session.problems or not session.context().messages:
            continue
        tried += 1
        options = ReadOptions(provider_history=False)
        ours = list(Reader(session.journal, options).context(session.leaf).messages)
        for branch in ("active", "all"):
            there, _ = converted(session, target, branch)
            back, _ = converted(there, source, branch)
            for copy in (there, back):
                theirs = list(copy.context().messages)
                if target == "omp":  # its contexts have no failed answers
                    here, copied = lines_of(without_failed_turns(ours), without_failed_turns(theirs))
                else:
                    here, copied = lines_of(ours, theirs)
                assert copied == here, f"seed {seed}, {branch}, {copy.dialect.name}"


@pytest.mark.parametrize("seed", [1144, *range(1000, 1200 if THOROUGH else 1010)])
def test_a_history_in_claude_code_has_each_line_once(seed: int) -> None:
    there, _ = converted(opened(trees.generate(seed), "pi"), "claude", "active")
    history = there.dialect.find_history(there.journal, there.node_of(there.leaf), there.read_options)
    assert len(history) == len(set(history))


def test_a_target_without_resets_keeps_the_conversation_and_the_report_says_what_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NeovateClient, "encodes_resets", False)
    rollout = Path(__file__).parents[1] / "goldens" / "codex" / "05-compaction"
    session = sessiontree.open(next(rollout.glob("*.jsonl")))
    copy, done = converted(session, "neovate", "active")
    assert first_difference(session, session.leaf, copy, all_branches=False) is None
    assert ("changed", "contexts", "the client sends them differently") in [
        (note.kind, note.what, note.why) for note in done.report.notes
    ]


@pytest.mark.parametrize("summary", ["The gist.", ""])
@pytest.mark.parametrize("target", TARGETS)
def test_answers_that_a_compaction_of_codex_kept_are_sent(target: str, summary: str) -> None:
    session = pi_session(
        {"role": "user", "content": "First."},
        assistant(text("One."), call("call_1", "read", {"path": "a"})),
        result("call_1", "read", "the file"),
        {"role": "user", "content": "Second."},
        assistant(text("Two.")),
    )
    lines = [json.loads(line) for line in sessiontree.convert(session, "codex", branch="active").lines]
    # Without passthrough data, as Codex itself writes it.
    own = [{name: value for name, value in line.items() if name != "sessiontree"} for line in lines]
    items = [line["payload"] for line in own if line["type"] == "response_item"]
    first = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": summary}]}
    compacted = {"message": summary, "replacement_history": [*([first] if summary else []), *items[1:]]}
    own.append({"timestamp": "2026-01-01T00:00:00Z", "type": "compacted", "payload": compacted})
    source = opened(b"".join(map(json_line, own)), "codex")
    kept = ["One.", "call_1", "call_1: [{'type': 'text', 'text': 'the file'}]", "Second.", "Two."]
    assert texts(source)[-5:] == kept
    assert texts(converted(source, target, "active")[0])[-5:] == kept


@pytest.mark.parametrize("target", TARGETS)
def test_lines_with_one_id_in_a_cycle_do_not_get_into_the_context(target: str) -> None:
    lines = [
        builders.header(),
        builders.message_line("m0", "m0", "the first"),
        builders.message_line("m0", "m0", "the second"),
        builders.message_line("m0", "m0", "the third"),
        builders.message_line("m1", "m0", "and then?"),
    ]
    session = opened(b"".join(lines), "pi")
    there, _ = converted(session, target)
    assert texts(session) == ["the third", "and then?"]
    assert texts(there) == ["the third", "and then?"]
