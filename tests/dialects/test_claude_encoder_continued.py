"""Claude Code: what an encoder adds to an existing transcript."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sessiontree.core.entries import ForkOrigin
from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.core.messages import ToolResult, message_text, tool_calls
from sessiontree.dialects.canonical import CanonicalEntry, SessionMeta
from sessiontree.dialects.claude import CLAUDE
from sessiontree.dialects.claude.locations import session_uuid
from sessiontree.dialects.contract import AS_CLIENT, is_metadata_id
from sessiontree.repair.findings import examine
from sessiontree.session.open import open_store
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.memory import MemoryStore
from tests.dialects.claude_transcripts import (
    CORPUS,
    NIL,
    SESSION,
    START,
    TIME,
    Transcript,
    assistant,
    call,
    compaction,
    entry,
    journal_of,
    result,
    text,
    transcript_of,
    user,
)


def continued(transcript: Transcript) -> Transcript:
    journal = transcript.journal
    again = Transcript(SessionMeta("other", TIME, "/other"), journal)
    again.raw = list(transcript.raw)
    again.at = transcript.at
    return again


def new(entry: CanonicalEntry) -> CanonicalEntry:
    return CanonicalEntry(entry.kind, entry.fields, "", entry.timestamp)


def test_a_continued_file_keeps_its_common_fields() -> None:
    start = SessionMeta(SESSION, TIME, "/x", git_branch="topic")
    first = transcript_of(user("u1"), start=start)
    again = continued(first).add(new(assistant("", text("more"))))
    line = again.chain[-1]
    assert line["parentUuid"] == first.at
    assert (line["sessionId"], line["cwd"], line["gitBranch"]) == (SESSION, "/x", "topic")
    assert uuid.UUID(line["uuid"]).version == 4
    assert again.texts() == ["hello", "more"]


def test_a_result_in_a_continued_file_finds_its_call_and_loses_no_other() -> None:
    transcript = transcript_of(user("u1"), assistant("a1", text("two"), call("c1"), call("c2")))
    calls = transcript.chain[2:]
    again = continued(transcript)
    for at, id in enumerate(("c1", "c2")):
        again = continued(again).add(new(result("", id)))
        line = again.chain[-1]
        assert line["sourceToolAssistantUUID"] == calls[at]["uuid"]
        found = [block.id for message in again.messages() for block in tool_calls(message)]
        assert found == ["c1", "c2"]
    again = continued(again).add(new(user("", "next")))
    assert [message.role for message in again.messages()] == ["user", "assistant", "toolResult", "toolResult", "user"]


@pytest.mark.parametrize("calls", [("c1",), ()])
def test_a_message_of_an_extension_in_a_continued_file_is_only_on_its_own_branch(calls: tuple[str, ...]) -> None:
    results = [result(f"r{id}", id) for id in calls]
    first = transcript_of(user("u1"), assistant("a1", text("two"), *map(call, calls)), *results)
    note = continued(first).add(new(entry("custom_message", "", customType="note", content="by the way")))
    assert note.chain[-1].get("isMeta") is (None if calls else True)
    assert note.texts()[-1] == "by the way"
    answer = continued(note)
    answer.at = first.at
    answer.add(new(user("", "next")))
    assert "by the way" not in answer.texts()


def test_moving_naming_and_labelling_in_a_continued_file() -> None:
    transcript = transcript_of(user("u1"), assistant("a1", text("x")), user("u2"))
    target = transcript.ids["a1"]
    moved = continued(transcript).add(new(entry("leaf", "", targetId=target)))
    assert moved.lines[-1] == {"type": "last-prompt", "leafUuid": target, "explicit": True, "sessionId": SESSION}
    assert CLAUDE.find_leaf(moved.journal, AS_CLIENT) == moved.journal.tree.node_of[str(target)]
    reset = continued(transcript).add(new(entry("leaf", "", targetId=None)))
    rewind, root, pin = reset.lines[-3:]
    assert (rewind["leafUuid"], root["parentUuid"], pin["leafUuid"]) == (NIL, None, root["uuid"])
    named = continued(transcript).add(new(entry("session_info", "", name="New")))
    assert [line["type"] for line in named.lines[-2:]] == ["custom-title", "agent-name"]
    labelled = continued(transcript).add(new(entry("label", "", targetId=target, label="L")))
    assert open_store(MemoryStore(labelled.data), dialect="claude").labels == {target: "L"}


def test_parallel_results_in_a_continued_file_are_kept_for_readers_that_only_know_preserved_segments() -> None:
    session = open_store(MemoryStore((CORPUS / "03_parallel.jsonl").read_bytes()), dialect="claude")
    prompt = session.append("user", "and now").id
    session.append({"role": "assistant", "content": [call("t1"), call("t2"), call("t3")]})
    for id in ("t2", "t1", "t3"):
        session.append({"role": "toolResult", "toolCallId": id, "content": [text(id)]})
    session.append({"role": "assistant", "content": [text("done")]})
    session.append({"type": "compaction", "summary": "S", "firstKeptEntryId": prompt, "tokensBefore": 1})
    lines = [parse_object(line) for line in read_bytes(session.journal.store, 0, session.journal.size).splitlines()]
    (boundary,) = [line for line in lines if line.get("subtype") == "compact_boundary"]
    del boundary["compactMetadata"]["preservedMessages"]
    found = open_store(MemoryStore(b"".join(render_json(line) + b"\n" for line in lines))).context().messages
    assert [message.tool_call_id for message in found if isinstance(message, ToolResult)] == ["t2", "t1", "t3"]


def test_appending_moves_the_leaf_only_with_conversation_entries() -> None:
    session = open_store(MemoryStore((CORPUS / "03_parallel.jsonl").read_bytes()), dialect="claude")
    prompt = session.append("user", "and now").id
    session.label(prompt, "here")
    session.rename("Another name")
    session.append({"type": "model_change", "provider": "anthropic", "modelId": "m"})
    session.append("system", "You are")
    assert session.leaf == prompt
    assert (session.labels, session.name) == ({prompt: "here"}, "Another name")
    session.append({"role": "assistant", "content": [call("t1"), call("t2")]})
    session.append({"role": "toolResult", "toolCallId": "t1", "content": [text("one")]})
    assert [call.id for call in session.pending_calls()] == ["t2"]
    assistant_contents = session.append({"role": "toolResult", "toolCallId": "t2", "content": [text("two")]}).id
    session.append({"type": "compaction", "summary": "S", "firstKeptEntryId": prompt, "tokensBefore": 1})
    assert [message.role for message in session.context().messages] == [
        "user",
        "user",
        "assistant",
        *["toolResult"] * 2,
    ]
    session.move(assistant_contents)
    again = open_store(MemoryStore(read_bytes(session.journal.store, 0, session.journal.size)), dialect="claude")
    assert again.leaf == assistant_contents
    assert [finding.rule.id for finding in examine(again)] == []


def test_a_fork_is_a_copy_that_names_its_origin() -> None:
    transcript = transcript_of(
        user("u1"), assistant("a1", text("x")), entry("label", "l1", targetId="a1", label="L"), user("u2")
    )
    leaf = str(transcript.ids["a1"])
    journal = transcript.journal
    start = SessionMeta("new", TIME, "/x", title="Fork", forked_from=ForkOrigin(SESSION, leaf))
    data = b"".join(line + b"\n" for line in CLAUDE.encode_fork(journal, journal.tree.node_of[leaf], start))
    fork = open_store(MemoryStore(data), dialect="claude")
    assert (fork.id, fork.name, fork.leaf, fork.labels) == (session_uuid("new"), "Fork", leaf, {leaf: "L"})
    assert fork.header.forked_from == ForkOrigin(SESSION, leaf)
    assert [message_text(message) for message in fork.context().messages] == ["hello", "x"]
    assert examine(fork) == []


def test_a_fork_at_a_metadata_line_is_at_the_message_before_it() -> None:
    note = entry("custom", "n1", customType="x", data=1)
    for entries, expected in (((note, user("u1")), []), ((user("u1"), note, user("u2", "later")), ["hello"])):
        transcript = transcript_of(*entries)
        journal = transcript.journal
        (leaf,) = (id for id, kind in zip(journal.tree.ids, journal.types, strict=True) if kind == "custom")
        assert is_metadata_id(leaf)
        start = SessionMeta("new", TIME, "/x", forked_from=ForkOrigin(SESSION, leaf))
        data = b"".join(line + b"\n" for line in CLAUDE.encode_fork(journal, journal.tree.node_of[leaf], start))
        fork = open_store(MemoryStore(data), dialect="claude")
        assert [message_text(message) for message in fork.context().messages] == expected
        assert not any(is_metadata_id(line.get("leafUuid", "")) for line in map(parse_object, data.splitlines()))


def test_a_continued_file_can_be_compacted() -> None:
    transcript = transcript_of(
        user("u1", "old"), user("u2", "q"), assistant("a2", text("x"), call("c1")), result("r2", "c1")
    )
    kept = transcript.ids["a2"]
    again = continued(transcript).add(new(compaction("", kept)))
    assert again.texts()[1:] == ["x", "result of c1"]
    again = continued(again).add(new(user("", "new")))
    assert again.texts()[1:] == ["x", "result of c1", "new"]


@pytest.mark.parametrize("golden", sorted(CORPUS.glob("*.jsonl")), ids=lambda golden: golden.stem)
def test_a_transcript_of_the_client_can_be_continued(golden: Path) -> None:
    journal = journal_of(golden.read_bytes())
    leaf = CLAUDE.find_leaf(journal, AS_CLIENT)
    assert leaf is not None
    before = CLAUDE.build_context(journal, leaf, AS_CLIENT).messages
    again = Transcript(START, journal)
    again.at = journal.tree.ids[leaf]
    again.add(new(user("", "and now")), new(assistant("", text("this"))))
    data = golden.read_bytes() + again.data
    session = open_store(MemoryStore(data), dialect="claude")
    assert session.context().messages[:-2] == before
    assert [message_text(message) for message in session.context().messages[-2:]] == ["and now", "this"]
    assert len(CLAUDE.facts(session.journal).session_ids) == len(CLAUDE.facts(journal).session_ids)
