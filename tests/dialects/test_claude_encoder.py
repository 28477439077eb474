"""Claude Code: the lines an encoder writes, and that any conversation decodes to the same entries."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.branches.merge import MERGE_HEADING
from sessiontree.compaction.prompts import BRANCH_HEADING
from sessiontree.core.entries import Config, ForkOrigin
from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.core.messages import Assistant, Message, Text, ToolResult, User, blocks_of, message_text, tool_calls
from sessiontree.dialects.canonical import CanonicalEntry, LossNote, SessionMeta
from sessiontree.dialects.claude import CLAUDE
from sessiontree.dialects.claude.locations import generate_uuid, session_uuid
from sessiontree.dialects.claude.messages import NO_CONTENT
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.repair.findings import examine
from sessiontree.session.journal import Journal
from sessiontree.session.open import open_store
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.memory import MemoryStore
from tests.builders import examples

SESSION = "5e551011-0000-4000-8000-000000000001"
NIL = "00000000-0000-0000-0000-000000000000"
START = SessionMeta(SESSION, "2026-02-16T10:00:00.000Z", "/home/user/proj")
MS = 1771236001000
TIME = "2026-02-16T10:00:01.000Z"
CORPUS = Path(__file__).parent.parent / "corpus" / "claude"
SIGNATURE = "c2lnbmF0dXJl"
USAGE = {"input": 5, "output": 7, "cacheRead": 1, "cacheWrite": 2, "totalTokens": 15}


class Transcript:
    """The lines an encoder wrote for some entries, each a child of the one before unless a parent is given."""

    def __init__(self, start: SessionMeta = START, lines: Journal | None = None) -> None:
        self.encoder = CLAUDE.encoder(start, lines)
        self.raw: list[bytes] = list(self.encoder.prologue())
        self.ids: dict[str, str | None] = {}
        self.notes: list[LossNote] = []
        self.at: str | None = None

    def add(self, *entries: CanonicalEntry) -> Transcript:
        for entry in entries:
            self.add_at(entry, self.at)
        return self

    def add_at(self, entry: CanonicalEntry, parent: str | None) -> str | None:
        transcript_of = self.encoder.encode(entry, parent)
        self.raw += transcript_of.lines
        self.notes += transcript_of.notes
        self.at = self.ids[entry.id] = transcript_of.id
        return transcript_of.id

    def end(self, leaf: str | None = "") -> Transcript:
        self.raw += self.encoder.epilogue(self.at if leaf == "" else leaf)
        return self

    @property
    def data(self) -> bytes:
        return b"".join(line + b"\n" for line in self.raw)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.raw]

    @property
    def chain(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "uuid" in line]

    @property
    def journal(self) -> Journal:
        return journal_of(self.data)

    def decode(self, leaf: str | None = None) -> list[CanonicalEntry]:
        return decode(self.journal, leaf)

    def messages(self, leaf: str | None = None, read_options: ReadOptions = AS_CLIENT) -> tuple[Message, ...]:
        journal = self.journal
        node = CLAUDE.find_leaf(journal, read_options) if leaf is None else journal.tree.node_of[leaf]
        return CLAUDE.build_context(journal, node, read_options).messages

    def texts(self) -> list[str]:
        return [message_text(message) for message in self.messages()]


def journal_of(data: bytes) -> Journal:
    journal = Journal(MemoryStore(data), CLAUDE)
    journal.refresh()
    return journal


def decode(journal: Journal, leaf: str | None = None) -> list[CanonicalEntry]:
    node = CLAUDE.find_leaf(journal, AS_CLIENT) if leaf is None else journal.tree.node_of[leaf]
    return list(CLAUDE.decode(journal, CLAUDE.find_history(journal, node, AS_CLIENT)))


def comparable(entries: Sequence[CanonicalEntry]) -> list[tuple[str, dict[str, Any], str]]:
    return [(entry.kind, entry.fields, entry.id) for entry in entries]


def transcript_of(*entries: CanonicalEntry, start: SessionMeta = START) -> Transcript:
    return Transcript(start).add(*entries).end()


def entry(kind: str, id: str, **fields: Any) -> CanonicalEntry:
    return CanonicalEntry(kind, fields, id, TIME)


def message_entry(role: str, id: str, **fields: Any) -> CanonicalEntry:
    return entry("message", id, message={"role": role, **fields, "timestamp": MS})


def user(id: str, content: Any = "hello") -> CanonicalEntry:
    return message_entry("user", id, content=content)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, name: str = "Read", **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": id, "name": name, "arguments": arguments}


def assistant(id: str, *blocks: dict[str, Any], **fields: Any) -> CanonicalEntry:
    common = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-x", "usage": USAGE}
    reason = "toolUse" if any(block["type"] == "toolCall" for block in blocks) else "stop"
    return message_entry("assistant", id, content=list(blocks), **{**common, "stopReason": reason, **fields})


def result(id: str, call_id: str, *blocks: dict[str, Any], **fields: Any) -> CanonicalEntry:
    content = list(blocks) or [text(f"result of {call_id}")]
    shape = {"toolCallId": call_id, "toolName": "Read", "content": content, "isError": False}
    return message_entry("toolResult", id, **{**shape, **fields})


def thinking(words: str, signature: str | None = SIGNATURE) -> dict[str, Any]:
    signed = {"thinkingSignature": signature} if signature else {}
    return {"type": "thinking", "thinking": words, **signed}


def check_round_trip(*entries: CanonicalEntry) -> Transcript:
    transcript = transcript_of(*entries)
    assert comparable(transcript.decode()) == comparable(entries)
    return transcript


# Lines


def test_a_line_has_the_fields_the_client_writes_in_their_order_and_no_entrypoint() -> None:
    (line,) = transcript_of(user("u1"), start=SessionMeta(SESSION, TIME, "/x", git_branch="main")).chain
    assert list(line) == [
        "parentUuid",
        "isSidechain",
        "type",
        "message",
        "uuid",
        "timestamp",
        "userType",
        "cwd",
        "sessionId",
        "version",
        "gitBranch",
        "sessiontree",
    ]
    assert line["parentUuid"] is None
    assert (line["cwd"], line["sessionId"], line["gitBranch"], line["userType"]) == ("/x", SESSION, "main", "external")


def test_ids_that_are_uuids_stay_and_others_become_uuids_that_always_follow_from_them() -> None:
    kept = str(uuid.uuid4())
    first, second = transcript_of(user(kept), user("u2")).chain
    assert first["uuid"] == kept
    assert "sessiontree" not in first
    assert uuid.UUID(second["uuid"]).version == 5
    assert second["sessiontree"] == {"id": "u2"}
    assert transcript_of(user(kept), user("u2")).raw == transcript_of(user(kept), user("u2")).raw
    other = transcript_of(user(kept), user("u2"), start=SessionMeta(str(uuid.uuid4()), TIME, "/x"))
    assert other.chain[1]["uuid"] != second["uuid"]


def test_an_answer_is_a_line_for_each_of_its_blocks() -> None:
    transcript = check_round_trip(user("u1"), assistant("a1", thinking("hm"), text("yes"), call("c1")))
    shards = transcript.chain[1:]
    assert [shard["message"]["content"][0]["type"] for shard in shards] == ["thinking", "text", "tool_use"]
    assert [shard["apiBlockIndex"] for shard in shards] == [0, 1, 2]
    for name in ("id", "usage", "stop_reason", "model"):
        assert len({json.dumps(shard["message"][name]) for shard in shards}) == 1
    assert len({shard["requestId"] for shard in shards}) == 1
    assert shards[0]["message"]["id"].startswith("msg_")
    assert shards[0]["message"]["stop_reason"] == "tool_use"
    assert shards[0]["message"]["usage"] == {
        "input_tokens": 5,
        "output_tokens": 7,
        "cache_read_input_tokens": 1,
        "cache_creation_input_tokens": 2,
    }
    assert [shard["parentUuid"] for shard in shards] == [line["uuid"] for line in transcript.chain[:3]]
    assert transcript.at == shards[-1]["uuid"]


def test_a_response_id_is_kept_and_an_unusable_one_is_passthrough_data() -> None:
    transcript = check_round_trip(
        user("u1"), assistant("a1", text("x"), responseId="msg_01"), assistant("a2", text("y"), responseId="resp|7")
    )
    assert transcript.chain[1]["message"]["id"] == "msg_01"
    assert transcript.chain[2]["message"]["id"].startswith("msg_")


def test_two_answers_never_share_a_response() -> None:
    transcript = check_round_trip(
        user("u1"), assistant("a1", text("x"), responseId="msg_01"), assistant("a2", text("y"), responseId="msg_01")
    )
    assert [message_text(message) for message in transcript.messages()] == ["hello", "x", "y"]


def test_a_model_is_always_written() -> None:
    transcript = check_round_trip(user("u1"), message_entry("assistant", "a1", content=[text("x")]))
    assert transcript.chain[1]["message"]["model"] == "unknown"


def test_results_and_the_next_turn_follow_each_other_and_name_their_calls() -> None:
    entries = [
        user("u1"),
        assistant("a1", text("three"), call("c1"), call("c2"), call("c3")),
        result("r1", "c1"),
        result("r3", "c3"),
        result("r2", "c2"),
        assistant("a2", text("done")),
    ]
    transcript = check_round_trip(*entries)
    chain = transcript.chain
    lines = {line["uuid"]: line for line in chain}
    results = [line for line in chain if "sourceToolAssistantUUID" in line]
    for line in results:
        (block,) = line["message"]["content"]
        (called,) = lines[line["sourceToolAssistantUUID"]]["message"]["content"]
        assert called["id"] == block["tool_use_id"]
    assert [line["parentUuid"] for line in chain[1:]] == [line["uuid"] for line in chain[:-1]]
    assert chain[-1]["parentUuid"] == results[-1]["uuid"] == transcript.ids["r2"]
    assert [message.role for message in transcript.messages()] == [
        "user",
        "assistant",
        *["toolResult"] * 3,
        "assistant",
    ]


def test_a_call_without_a_result_stays_on_the_path_and_is_not_sent() -> None:
    entries = [
        user("u1"),
        assistant("a1", call("c1"), call("c2"), call("c3")),
        result("r1", "c1"),
        user("u2", "stop"),
        assistant("a2", text("ok")),
    ]
    transcript = check_round_trip(*entries)
    assert calls_in(transcript.messages()) == ["c1"]
    assert calls_in(transcript.messages(read_options=ReadOptions(recovered=True))) == ["c1", "c2", "c3"]


def calls_in(messages: Sequence[Message]) -> list[str]:
    return [call.id for message in messages for call in tool_calls(message)]


def test_a_result_after_a_user_message_does_not_hide_that_message() -> None:
    entries = [
        user("u1"),
        assistant("a1", call("c1"), call("c2")),
        result("r1", "c1"),
        user("u2", "meanwhile"),
        result("r2", "c2"),
        assistant("a2", text("ok")),
    ]
    assert transcript_of(*entries).texts() == ["hello", "", "result of c1", "meanwhile", "result of c2", "ok"]
    check_round_trip(*entries)


def test_tool_ids_that_the_provider_refuses_are_changed_alike_in_call_and_result() -> None:
    entries = [
        user("u1"),
        assistant("a1", call("call|1.x"), call("call_1_x")),
        result("r1", "call|1.x"),
        result("r2", "call_1_x"),
    ]
    transcript = check_round_trip(*entries)
    blocks = [block for line in transcript.chain[1:] for block in line["message"]["content"]]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert calls == ["call_1_x", "call_1_x_2"]
    assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == calls
    assert any(note.kind == "changed" and note.what == "ids of tool calls" for note in transcript.notes)


def test_a_call_id_that_is_used_twice_is_made_unique() -> None:
    entries = [
        user("u1"),
        assistant("a1", call("call_0")),
        result("r1", "call_0", text("one")),
        assistant("a2", call("call_0")),
        result("r2", "call_0", text("two")),
    ]
    transcript = check_round_trip(*entries)
    assistant_contents = [message.tool_call_id for message in transcript.messages() if isinstance(message, ToolResult)]
    assert assistant_contents == ["call_0", "call_0_2"]


def test_calls_of_one_response_with_the_same_id_are_answered_in_their_order() -> None:
    entries = [
        user("u1"),
        assistant("a1", call("c"), call("x"), call("c")),
        result("r1", "c", text("one")),
        result("r2", "x", text("two")),
        user("u2"),
    ]
    transcript = check_round_trip(*entries)
    assert calls_in(transcript.messages(read_options=ReadOptions(recovered=True))) == ["c", "x", "c_2"]
    transcript = check_round_trip(*entries[:4], result("r3", "c", text("three")), user("u2"))
    assistant_contents = [message.tool_call_id for message in transcript.messages() if isinstance(message, ToolResult)]
    assert assistant_contents == ["c", "x", "c_2"]


def test_a_result_without_a_call_goes_on_a_metadata_line() -> None:
    transcript = check_round_trip(user("u1"), result("r1", "nowhere"), user("u2"))
    assert transcript.texts() == ["hello", "hello"]
    assert [note.what for note in transcript.notes] == ["results without a call"]


def test_thinking_without_a_signature_of_the_provider_is_passthrough_data() -> None:
    entries = [
        user("u1"),
        assistant("a1", thinking("mine", None), text("x")),
        assistant("a2", text("y"), thinking("foreign"), provider="openai", api="openai-responses"),
        assistant("a3", {"type": "redactedThinking", "data": "zz"}, text("z"), provider="google", api="google"),
    ]
    transcript = check_round_trip(*entries)
    kinds = [block["type"] for line in transcript.chain[1:] for block in line["message"]["content"]]
    assert kinds == ["text"] * 3
    dropped = [note for note in transcript.notes if note.kind == "dropped"]
    assert {note.why for note in dropped} == {"thinking without a signature of this provider"}
    assert len(dropped) == 3


def test_signed_and_redacted_thinking_of_the_provider_stays() -> None:
    redacted = {"type": "redactedThinking", "data": "zz"}
    transcript = check_round_trip(user("u1"), assistant("a1", thinking("hm"), redacted, text("x")))
    assert [line["message"]["content"][0] for line in transcript.chain[1:]] == [
        {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
        {"type": "redacted_thinking", "data": "zz"},
        {"type": "text", "text": "x"},
    ]


def test_a_message_of_nothing_but_unsigned_thinking_is_not_sent() -> None:
    transcript = check_round_trip(user("u1"), assistant("a1", thinking("hm", None)), user("u2"))
    assert transcript.texts() == ["hello", "hello"]


def test_images_are_written_in_prompts_and_results() -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/jpeg"}
    transcript = check_round_trip(
        user("u1", [text("look"), image]), assistant("a1", call("c1")), result("r1", "c1", text("shot"), image)
    )
    source = {"type": "base64", "media_type": "image/jpeg", "data": "aGk="}
    assert transcript.chain[0]["message"]["content"][1] == {"type": "image", "source": source}
    assert transcript.chain[2]["message"]["content"][0]["content"][1] == {"type": "image", "source": source}


def test_a_failed_message_keeps_its_text_and_one_without_text_is_shown_but_not_sent() -> None:
    entries = [
        user("u1"),
        assistant("a1", text("half"), stopReason="aborted"),
        user("u2"),
        assistant("a2", stopReason="error", errorMessage="529 overloaded"),
        user("u3"),
    ]
    transcript = check_round_trip(*entries)
    assert transcript.texts() == ["hello", "half", "hello", "hello"]
    note = transcript.chain[3]
    assert note["isApiErrorMessage"] is True
    assert note["message"]["content"] == [text("529 overloaded")]


def test_empty_texts_next_to_other_blocks_are_left_out() -> None:
    transcript = check_round_trip(
        user("u1", [text(""), text("x")]), assistant("a1", text(""), call("c1")), result("r1", "c1", text(""))
    )
    assert transcript.chain[0]["message"]["content"] == [text("x")]
    assert [line["message"]["content"][0]["type"] for line in transcript.chain[1:2]] == ["tool_use"]


def test_fields_a_line_has_no_place_for_are_passthrough_data() -> None:
    cost = {"input": 0.1, "output": 0.2, "total": 0.3}
    odd = {"type": "toolCall", "id": "c1", "name": "functions.read", "arguments": {"a": 1}, "thoughtSignature": "t"}
    check_round_trip(
        entry("message", "u1", message={"role": "user", "content": "no time"}, extra={"a": 1}),
        assistant("a1", odd, usage={**USAGE, "cost": cost}, api="x", provider="y", diagnostics=[1]),
        result("r1", "c1", toolName="functions.read", details={"lines": 3}, sessiontreeBlobs=[]),
        entry("message", "u2", message={"role": "user", "content": "x", "timestamp": 1}, sessiontree={"pi": {"k": 1}}),
    )


def test_lone_surrogates_survive() -> None:
    check_round_trip(
        user("u\ud83d", "half \ud83d of"), assistant("a1", text("\ude00"), call("c\ud83d")), result("r1", "c\ud83d")
    )


def test_times_are_iso_whatever_they_were() -> None:
    odd = [
        CanonicalEntry("message", {"message": {"role": "user", "content": "x", "timestamp": MS}}, "u1", ""),
        CanonicalEntry("message", {"message": {"role": "user", "content": "x"}}, "u2", "yesterday"),
        CanonicalEntry("message", {"message": {"role": "user", "content": "x"}}, "u3", "20260216T100002"),
    ]
    transcript = transcript_of(*odd)
    assert [line["timestamp"][:19] for line in transcript.chain][:2] == ["2026-02-16T10:00:01"] * 2
    assert all("T" in line["timestamp"] and "-" in line["timestamp"] for line in transcript.chain)


# Entries that the client has no line type for


def test_a_command_of_the_user_is_written_as_the_client_does() -> None:
    command = message_entry(
        "bashExecution", "b1", command="ls", output="a\nb", exitCode=1, cancelled=False, truncated=False
    )
    transcript = check_round_trip(user("u1"), command, user("u2"))
    assert transcript.texts()[1:3] == [
        "<bash-input>ls</bash-input>",
        "<bash-stdout>a\nb</bash-stdout><bash-stderr></bash-stderr>",
    ]
    assert transcript.chain[2]["sessiontree"] == {"part": True}


def test_a_command_excluded_from_the_context_goes_on_a_metadata_line() -> None:
    command = message_entry("bashExecution", "b1", command="ls", output="", excludeFromContext=True)
    assert check_round_trip(user("u1"), command, user("u2")).texts() == ["hello", "hello"]


def test_a_prompt_that_looks_like_a_command_stays_a_prompt() -> None:
    check_round_trip(
        user("u1", "<bash-input>ls</bash-input>"),
        user("u2", "<bash-stdout>x</bash-stdout><bash-stderr></bash-stderr>"),
        user("u3", "<system-reminder>mine</system-reminder>"),
    )


def test_messages_of_extensions_are_user_lines_with_is_meta() -> None:
    transcript = check_round_trip(
        user("u1"),
        entry("custom_message", "m1", customType="note", content="by the way", display=True, details={"x": 1}),
        message_entry("custom", "m2", customType="note", content=[text("too")], display=False),
        entry("branch_summary", "s1", fromId="u0", summary="went wrong"),
    )
    assert [line.get("isMeta") for line in transcript.chain] == [None, True, True, True]
    assert transcript.texts()[1:3] == ["by the way", "too"]
    assert "went wrong" in transcript.texts()[3]


def test_entries_without_a_line_type_are_metadata_lines_at_their_position() -> None:
    entries = [
        entry("model_change", "x0", provider="anthropic", modelId="claude-x"),
        user("u1"),
        entry("thinking_level_change", "x1", thinkingLevel="high"),
        entry("custom", "x2", customType="state", data={"a": 1}),
        assistant("a1", call("c1"), call("c2")),
        result("r1", "c1"),
        entry("usage", "x3", note="title", usage={"input": 1}),
        result("r2", "c2"),
        entry("never_heard_of", "x4", field=[1]),
        message_entry("system", "x5", content="You are"),
        message_entry("developer", "x6", content="odd"),
        assistant("a2", text("done")),
    ]
    transcript = check_round_trip(*entries)
    metadata = [line for line in transcript.lines if line["type"] == "sessiontree"]
    assert [line["id"] for line in metadata] == ["x0", "x1", "x2", "x3", "x4", "x5", "x6"]
    assert all(note.kind == "aside" for note in transcript.notes)
    assert [message.role for message in transcript.messages()] == [
        "user",
        "assistant",
        "toolResult",
        "toolResult",
        "assistant",
    ]


def test_metadata_entries_belong_to_the_branches_that_continue_after_them() -> None:
    transcript = Transcript().add(user("u1"), entry("model_change", "x1", modelId="one"), user("one"))
    transcript.add_at(entry("model_change", "x2", modelId="two"), transcript.ids["x1"])
    transcript.add(user("two"))
    transcript.add_at(entry("label", "l1", targetId="u1", label="L"), transcript.ids["u1"])
    transcript.add_at(user("three"), transcript.ids["u1"])
    transcript.end()
    expected = {
        "one": ["u1", "x1", "one"],
        "two": ["u1", "x1", "x2", "two"],
        "three": ["u1", "three"],
        "u1": ["u1"],
    }
    for leaf, ids in expected.items():
        assert [decode.id for decode in transcript.decode(transcript.ids[leaf])] == ids
    journal = transcript.journal
    label = journal.types.index("label")
    assert [decode.id for decode in CLAUDE.decode(journal, CLAUDE.find_history(journal, label, AS_CLIENT))] == [
        "u1",
        "l1",
    ]


def test_a_prompt_of_the_client_follows_the_metadata_entries_before_it() -> None:
    transcript = transcript_of(user("u1"), entry("model_change", "x1", modelId="one"))
    prompt = {**transcript.chain[0], "uuid": str(uuid.uuid4()), "parentUuid": transcript.ids["u1"]}
    del prompt["sessiontree"]
    transcript.raw.append(json.dumps(prompt).encode())
    assert [decode.id for decode in transcript.decode()] == ["u1", "x1", prompt["uuid"]]


def test_labels_are_found_by_our_reader_on_the_lines_they_name() -> None:
    entries = [
        user("u1"),
        assistant("a1", text("x"), call("c1")),
        entry("label", "l1", targetId="a1", label="here"),
        result("r1", "c1"),
        entry("label", "l2", targetId="u1", label="start"),
    ]
    transcript = check_round_trip(*entries)
    session = open_store(MemoryStore(transcript.data), dialect="claude")
    assert session.labels == {transcript.ids["a1"]: "here", transcript.ids["u1"]: "start"}


def test_a_malformed_metadata_entry_is_unknown() -> None:
    lines = [
        {"type": "sessiontree", "sessionId": "s", "entry": {"type": "compaction", "summary": "x"}},
        {"type": "sessiontree", "sessionId": "s", "entry": {"type": 5}},
        {"type": "sessiontree", "sessionId": "s", "entry": "label"},
        {"type": "sessiontree", "sessionId": "s"},
        {"type": "sessiontree", "sessionId": "s", "entry": {"type": "label", "targetId": 5, "label": []}},
    ]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    journal = journal_of(data)
    assert journal.types == ["sessiontree"] * 4 + ["label"]
    assert [entry.kind for entry in decode(journal)] == ["label"]
    assert open_store(MemoryStore(data), dialect="claude").labels == {}


def test_a_name_is_also_written_where_the_client_looks_for_it() -> None:
    transcript = check_round_trip(user("u1"), entry("session_info", "n1", name="A name"), user("u2"))
    kinds = [line["type"] for line in transcript.lines]
    assert kinds == ["user", "sessiontree", "custom-title", "agent-name", "user", "custom-title", "last-prompt"]
    assert CLAUDE.facts(transcript.journal).title == "A name"


def test_settings_of_the_session_are_found_and_are_not_part_of_its_history() -> None:
    start = SessionMeta(SESSION, TIME, "/x", config=Config(approval_mode="yolo"), forked_from=ForkOrigin("other", "e1"))
    transcript = transcript_of(user("u1"), start=start)
    assert CLAUDE.facts(transcript.journal).config == Config(approval_mode="yolo")
    assert comparable(transcript.decode()) == comparable([user("u1")])
    header = transcript.journal.header
    assert header is not None
    assert header.forked_from == ForkOrigin("other", "e1")


# Compaction


def compaction(id: str, first_kept: str | None, summary: str = "what happened", **fields: Any) -> CanonicalEntry:
    kept = {"firstKeptEntryId": first_kept} if first_kept else {}
    return entry("compaction", id, summary=summary, **kept, tokensBefore=1000, **fields)


def test_a_compaction_is_a_boundary_and_a_summary_that_name_what_was_kept() -> None:
    entries = [
        user("u1", "old"),
        assistant("a1", text("old too")),
        user("u2", "kept"),
        assistant("a2", call("c1"), call("c2")),
        result("r1", "c1"),
        result("r2", "c2"),
        compaction("k1", "u2", details={"files": ["x"]}),
        user("u3", "new"),
    ]
    transcript = check_round_trip(*entries)
    boundary = next(line for line in transcript.chain if line.get("subtype") == "compact_boundary")
    summary = next(line for line in transcript.chain if line.get("isCompactSummary"))
    assert boundary["parentUuid"] is None
    assert boundary["logicalParentUuid"] == transcript.ids["r2"]
    assert summary["parentUuid"] == boundary["uuid"]
    assert summary["isVisibleInTranscriptOnly"] is True
    about = boundary["compactMetadata"]
    kept = [line["uuid"] for line in transcript.chain[2:7]]
    assert (about["trigger"], about["preTokens"]) == ("manual", 1000)
    assert about["preservedMessages"] == {"anchorUuid": summary["uuid"], "uuids": kept, "allUuids": kept}
    assert about["preservedSegment"] == {"headUuid": kept[0], "anchorUuid": summary["uuid"], "tailUuid": kept[-1]}
    texts = transcript.texts()
    assert "what happened" in texts[0]
    assert texts[1:] == ["kept", "", "result of c1", "result of c2", "new"]


def test_kept_messages_are_sent_even_if_nothing_follows_the_compaction() -> None:
    transcript = check_round_trip(user("u1", "old"), user("u2", "kept"), compaction("k1", "u2"))
    assert transcript.texts()[1:] == ["kept"]


def test_a_compaction_may_keep_nothing_or_start_to_keep_at_a_metadata_entry() -> None:
    nothing = check_round_trip(user("u1"), compaction("k1", None), user("u2", "new"))
    assert nothing.texts()[1:] == ["new"]
    entries = [
        user("u1", "old"),
        entry("model_change", "x1", modelId="m"),
        user("u2", "kept"),
        compaction("k1", "x1"),
        user("u3", "new"),
    ]
    assert check_round_trip(*entries).texts()[1:] == ["kept", "new"]


def test_an_older_summary_among_kept_messages_is_not_sent_again() -> None:
    entries = [
        user("u1", "one"),
        user("u2", "two"),
        compaction("k1", "u2", "first"),
        user("u3", "three"),
        compaction("k2", "u2", "second"),
        user("u4", "four"),
    ]
    texts = check_round_trip(*entries).texts()
    assert "second" in texts[0]
    assert texts[1:] == ["two", "three", "four"]


def test_readers_that_only_know_preserved_segments_find_all_parallel_results() -> None:
    entries = [
        user("u1"),
        assistant("a1", text("one")),
        user("u2"),
        assistant("a2", call("c1"), call("c2"), call("c3")),
        result("r2", "c2"),
        result("r1", "c1"),
        result("r3", "c3"),
        assistant("a3", text("done")),
        compaction("k", "u2"),
        user("u3"),
    ]
    transcript = check_round_trip(*entries)
    lines = transcript.chain
    (boundary,) = [line for line in lines if line.get("subtype") == "compact_boundary"]
    del boundary["compactMetadata"]["preservedMessages"]
    found = open_store(MemoryStore(b"".join(render_json(line) + b"\n" for line in lines))).context().messages
    assert [message.tool_call_id for message in found if isinstance(message, ToolResult)] == ["c2", "c1", "c3"]


def test_a_reset_at_the_end_is_a_boundary_below_the_last_message_because_the_client_ignores_others() -> None:
    transcript = check_round_trip(user("u1"), assistant("a1", text("one")), entry("reset_boundary", "b1"))
    (boundary,) = [line for line in transcript.chain if line.get("subtype") == "compact_boundary"]
    assert boundary["parentUuid"] == transcript.ids["a1"]
    assert transcript.messages() == []


@pytest.mark.parametrize(
    "summary",
    [
        f"{BRANCH_HEADING}\n\n## Done",
        f"{MERGE_HEADING}\n\n## Done",
        "The user explored a different conversation branch before returning here.\nSummary of that exploration:",
    ],
)
def test_a_branch_summary_that_introduces_itself_gets_no_second_introduction(summary: str) -> None:
    transcript = check_round_trip(user("u1"), entry("branch_summary", "s1", fromId="u0", summary=summary))
    assert transcript.texts() == ["hello", summary]


@pytest.mark.parametrize("summary", ["", None])
def test_a_branch_summary_without_a_text_is_not_sent(summary: str | None) -> None:
    transcript = check_round_trip(user("u1"), entry("branch_summary", "s1", fromId="u0", summary=summary))
    assert [message.role for message in transcript.messages()] == ["user"]
    assert len(transcript.chain) == 1


def test_a_reset_of_the_context_is_a_boundary_without_a_summary() -> None:
    entries = [user("u1", "old"), entry("reset_boundary", "z1"), user("u2", "new")]
    assert check_round_trip(*entries).texts() == ["new"]


def test_a_branch_that_leaves_before_a_compaction_does_not_see_its_summary() -> None:
    transcript = Transcript().add(user("u1", "one"), assistant("a1", text("kept")), compaction("k1", "a1"), user("u2"))
    compacted = transcript.at
    for name in ("b1", "b2"):
        transcript.add_at(user(name, name), transcript.ids["a1"])
        transcript.add(assistant(f"{name}a", text("ok")))
    transcript.end()
    assert transcript.texts() == ["one", "kept", "b2", "ok"]
    assert [decode.id for decode in transcript.decode()] == ["u1", "a1", "b2", "b2a"]
    assert [decode.id for decode in transcript.decode(transcript.ids["b1a"])] == ["u1", "a1", "b1", "b1a"]
    assert [decode.id for decode in transcript.decode(compacted)] == ["u1", "a1", "k1", "u2"]
    assert len(transcript.messages(compacted)) == 3


def test_a_compaction_that_branches_off_before_metadata_entries_does_not_follow_them() -> None:
    transcript = Transcript().add(user("u1"), assistant("a1", text("one")), user("u2"), assistant("a2", text("two")))
    before = transcript.at
    transcript.add(entry("model_change", "m1", modelId="m"), compaction("k1", None, ""), compaction("k2", "a1", ""))
    leaf = transcript.add_at(compaction("k3", None, ""), before)
    assert [entry.id for entry in transcript.end().decode(leaf)] == ["u1", "a1", "u2", "a2", "k3"]


def test_a_call_may_have_another_result_on_another_branch() -> None:
    transcript = Transcript().add(user("u1"), assistant("a1", call("c1"), call("c2")))
    tips = []
    for name in ("x", "y", "z"):
        transcript.at = transcript.ids["a1"]
        entries = [
            result(f"{name}1", "c1", text(name)),
            result(f"{name}2", "c2", text(name)),
            assistant(f"{name}3", text("ok")),
        ]
        tips.append(transcript.add(*entries).at)
    transcript.add_at(user("u2", "never mind"), transcript.ids["a1"])
    transcript.add_at(user("u3", "half"), transcript.ids["x1"])
    transcript.end()
    for name, tip in zip(("x", "y", "z"), tips, strict=True):
        assert [decode.id for decode in transcript.decode(tip)] == ["u1", "a1", f"{name}1", f"{name}2", f"{name}3"]
        assert [message_text(message) for message in transcript.messages(tip)] == ["hello", "", name, name, "ok"]
    assert [decode.id for decode in transcript.decode(transcript.ids["u2"])] == ["u1", "a1", "u2"]
    assert [decode.id for decode in transcript.decode()] == ["u1", "a1", "x1", "u3"]


# The leaf


def test_the_last_lines_are_the_title_and_a_pin() -> None:
    transcript = transcript_of(
        user("u1", "x" * 300), assistant("a1", text("y")), start=SessionMeta(SESSION, TIME, "/x", title="T")
    )
    title, pin = transcript.lines[-2:]
    assert title == {"type": "custom-title", "customTitle": "T", "sessionId": SESSION}
    assert pin == {"type": "last-prompt", "lastPrompt": "x" * 200, "leafUuid": transcript.at, "sessionId": SESSION}


def test_the_leaf_may_be_a_message_whose_results_are_on_another_branch() -> None:
    transcript = Transcript().add(user("u1"), assistant("a1", call("c1")), result("r1", "c1"), user("u2"))
    transcript.end(transcript.ids["a1"])
    assert [message.role for message in transcript.messages()] == ["user", "assistant"]
    first, last = transcript.decode()
    assert (first.id, last.id) == ("u1", "a1")
    leaf = CLAUDE.find_leaf(transcript.journal, AS_CLIENT)
    assert leaf is not None
    assert transcript.journal.tree.ids[leaf] in last.aliases


def test_a_leaf_that_is_not_the_end_of_the_newest_branch_is_pinned() -> None:
    transcript = Transcript().add(user("u1"), assistant("a1", text("x")), user("u2"))
    transcript.at = transcript.ids["a1"]
    transcript.add(user("u3"))
    for leaf in ("u2", "a1", "u1"):
        again = Transcript().add(user("u1"), assistant("a1", text("x")), user("u2"))
        again.at = again.ids["a1"]
        again.add(user("u3")).end(again.ids[leaf])
        assert again.lines[-1]["explicit"] is True
        journal = again.journal
        assert CLAUDE.find_leaf(journal, AS_CLIENT) == journal.tree.node_of[str(again.ids[leaf])]


def test_a_second_root_is_marked_as_a_rewind() -> None:
    transcript = Transcript().add(user("u1"))
    transcript.add_at(user("u2"), None)
    transcript.end()
    assert {"type": "last-prompt", "leafUuid": NIL, "explicit": True, "sessionId": SESSION} in transcript.lines
    assert CLAUDE.find_reparentings(transcript.journal) == []
    assert transcript.texts() == ["hello"]


# Continuing


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


# Destinations


def test_the_destination_is_where_the_client_looks() -> None:
    start = SessionMeta(SESSION, TIME, "/home/user/with space_under.dot")
    found = CLAUDE.destination(start, {"HOME": "/home/user"})
    assert found.path == f"/home/user/.claude/projects/-home-user-with-space-under-dot/{SESSION}.jsonl"
    assert found.resume == ("claude", "--resume", SESSION)


def test_the_client_s_variables_count_and_a_session_id_becomes_a_uuid() -> None:
    environment = {"HOME": "/h", "CLAUDE_CONFIG_DIR": "/c", "CLAUDE_CODE_PROJECT_DIR_NAME": "mine"}
    id = session_uuid("my-session")
    assert uuid.UUID(id)
    assert CLAUDE.destination(SessionMeta("my-session", TIME, "/x"), environment).path == f"/c/projects/mine/{id}.jsonl"
    assert transcript_of(user("u1"), start=SessionMeta("my-session", TIME, "/x")).chain[0]["sessionId"] == id


def test_long_folders_and_characters_beyond_the_basic_plane_are_counted_as_the_client_does() -> None:
    path = CLAUDE.destination(SessionMeta(SESSION, TIME, "/emoji😀dir"), {"HOME": "/h"}).path
    assert path.split("/")[-2] == "-emoji--dir"
    key = CLAUDE.destination(SessionMeta(SESSION, TIME, "/" + "x" * 300), {"HOME": "/h"}).path.split("/")[-2]
    assert key.startswith("-" + "x" * 199 + "-")


# Any conversation

words = st.one_of(
    st.sampled_from(
        ["", " ", "hello", "你好，世界", "😀 ok", "<b>&</b>", "half \ud83d", "line\nline\u2028", "blob:sha256:x"]
    ),
    st.text(max_size=12),
)
texts = words.map(text)
images = st.just({"type": "image", "data": "aGk=", "mimeType": "image/png"})
user_contents = st.one_of(words, st.lists(st.one_of(texts, images), max_size=3))
signed = st.builds(thinking, words, st.sampled_from([None, SIGNATURE]))
redacted = st.just({"type": "redactedThinking", "data": "zz"})
odd_ids = st.sampled_from(["c", "call|1", "call_1", "toolu_01", "x y", "é", "", "call_0"])
arguments = st.dictionaries(words, st.one_of(words, st.integers(), st.none()), max_size=2)
calls = st.builds(lambda id, name, given: {**call(id, name), "arguments": given}, odd_ids, words, arguments)
providers = st.sampled_from(
    [
        {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-x"},
        {"api": "openai-responses", "provider": "openai", "model": "gpt-x", "responseId": "resp_1"},
        {},
    ]
)
more_of_answers = st.sampled_from(
    [
        {"usage": USAGE, "stopReason": "stop"},
        {"usage": {**USAGE, "cost": {"total": 1.5}}, "stopReason": "toolUse", "responseId": "msg_1"},
        {"stopReason": "error", "errorMessage": "boom"},
        {"stopReason": "aborted"},
        {"stopReason": "length", "diagnostics": []},
        {},
    ]
)
bookkeeping = st.sampled_from(
    [
        ("model_change", {"provider": "p", "modelId": "m"}),
        ("custom", {"customType": "x", "data": [1]}),
        ("session_info", {"name": "Title"}),
        ("config", {"config": {"approvalMode": "yolo"}}),
        ("usage", {"kind": "title"}),
        ("strange", {"a": {"b": None}}),
        ("message", {"message": {"role": "system", "content": "sys"}}),
        ("message", {"message": {"role": "bashExecution", "command": "x", "output": "", "excludeFromContext": True}}),
    ]
)


def is_metadata(entry: CanonicalEntry) -> bool:
    """Whether an entry gets a metadata line: branches before and after it cannot be distinguished."""
    role = entry.fields.get("message", {}).get("role")
    excluded = entry.fields.get("message", {}).get("excludeFromContext") is True
    return (
        entry.kind not in ("message", "custom_message", "branch_summary", "compaction") or role == "system" or excluded
    )


def is_rooted(found: Sequence[tuple[CanonicalEntry, str | None]], id: str | None) -> bool:
    """Whether a position is after a chain line: before the first one, positions cannot be distinguished."""
    if id is None:
        return not any(parent is None and is_metadata(entry) for entry, parent in found)
    return any(entry.fields.get("message", {}).get("role") == "user" for entry in path_to(found, id))


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[CanonicalEntry, str | None]]:
    """Entries with the ids of their parents: turns, bookkeeping, compactions, and sometimes a branch."""
    found: list[tuple[CanonicalEntry, str | None]] = []
    ends: list[str | None] = [None]
    """Entries after which all calls are answered: where another branch may start."""
    at: str | None = None
    paths: dict[str | None, list[str]] = {None: []}

    def add(kind: str, fields: dict[str, Any]) -> str:
        nonlocal at
        id = f"e{len(found)}"
        paths[id] = [*paths[at], id]
        found.append((CanonicalEntry(kind, fields, id, TIME), at))
        at = id
        return id

    def message(role: str, **fields: Any) -> str:
        time = draw(st.sampled_from([{"timestamp": MS}, {"timestamp": 5}, {}]))
        return add("message", {"message": {"role": role, **fields, **time}})

    for _ in range(draw(st.integers(1, 8))):
        match draw(st.sampled_from(["turn", "turn", "turn", "metadata", "meta", "command", "compaction", "branch"])):
            case "turn":
                message("user", content=draw(user_contents))
                blocks = draw(st.lists(st.one_of(texts, signed, redacted, calls), max_size=4))
                message("assistant", content=blocks, **{**draw(providers), **draw(more_of_answers)})
                ids = list(dict.fromkeys(block["id"] for block in blocks if block["type"] == "toolCall"))
                for id in draw(st.permutations(ids)):
                    ends.append(at)
                    names = [block["name"] for block in blocks if block.get("id") == id]
                    content = draw(st.lists(st.one_of(texts, images), max_size=2))
                    error = draw(st.booleans())
                    message("toolResult", toolCallId=id, toolName=names[-1], content=content, isError=error)
                    if draw(st.integers(0, 4)) == 0:
                        add(*draw(bookkeeping))
            case "metadata":
                add(*draw(bookkeeping))
                if found:
                    target = draw(st.sampled_from([entry.id for entry, _ in found]))
                    add("label", {"targetId": target, "label": "L"})
            case "meta":
                add(
                    "custom_message",
                    {"customType": "x", "content": draw(user_contents), "display": draw(st.booleans())},
                )
                add("branch_summary", {"fromId": "e0", "summary": draw(words)})
            case "command":
                shown = draw(words)
                message(
                    "bashExecution", command=draw(words), output=shown, cancelled=False, truncated=False, exitCode=0
                )
            case "compaction" if paths[at]:
                kept = draw(st.sampled_from([None, *[id for id in ends if id in paths[at]]]))
                add("compaction", {"summary": draw(words), "firstKeptEntryId": kept, "tokensBefore": 10})
            case "branch":
                at = draw(st.sampled_from([end for end in ends if is_rooted(found, end)] or [at]))
            case _:
                continue
        ends.append(at)
    return found


def write_tree(found: Sequence[tuple[CanonicalEntry, str | None]]) -> Transcript:
    transcript = Transcript()
    for each, parent in found:
        transcript.add_at(each, None if parent is None else transcript.ids[parent])
    return transcript.end()


def path_to(found: Sequence[tuple[CanonicalEntry, str | None]], id: str | None) -> list[CanonicalEntry]:
    entries = {entry.id: (entry, parent) for entry, parent in found}
    path: list[CanonicalEntry] = []
    while id is not None:
        entry, id = entries[id]
        path.append(entry)
    return path[::-1]


@examples(300)
@given(conversations())
def test_any_conversation_decodes_to_the_same_entries(found: list[tuple[CanonicalEntry, str | None]]) -> None:
    transcript = write_tree(found)
    if transcript.at is None:
        return  # before the first entry: the client has no such position
    expected = path_to(found, found[-1][0].id if found else None)
    assert comparable(transcript.decode()) == comparable(expected)


@examples(150)
@given(conversations())
def test_every_branch_decodes_to_the_same_entries(found: list[tuple[CanonicalEntry, str | None]]) -> None:
    transcript = write_tree(found)
    journal = transcript.journal
    leaves = [transcript.ids[entry.id] for entry, _ in found]
    inner = {parent for _, parent in found}
    for entry, _ in found:
        leaf = transcript.ids[entry.id]
        if entry.id not in inner and leaf is not None and leaves.count(leaf) == 1:
            assert comparable(decode(journal, leaf)) == comparable(path_to(found, entry.id))


@examples(150)
@given(conversations())
def test_doctor_finds_nothing_wrong_in_what_was_written(found: list[tuple[CanonicalEntry, str | None]]) -> None:
    session = open_store(MemoryStore(write_tree(found).data), dialect="claude")
    rules = {finding.rule.id for finding in examine(session)}
    # A branch may start between a call and its result, which this rule does not consider.
    assert rules <= {"lone-surrogate", "unanswered-tool-call", "lost-parallel-results"}


def with_content(texts: list[list[str]]) -> list[str]:
    """The texts that have content. A message can also consist of the client's own placeholder."""
    return [text for each in texts for text in each if text.strip() and text != NO_CONTENT]


@examples(150)
@given(conversations())
def test_the_model_receives_the_same_texts_calls_and_results(found: list[tuple[CanonicalEntry, str | None]]) -> None:
    path = path_to(found, found[-1][0].id if found else None)
    transcript = write_tree(found)
    if transcript.at is None or any(entry.kind == "compaction" for entry in path):
        return
    context = transcript.messages()
    answers = [message for message in context if isinstance(message, Assistant)]
    expected = [
        [block["text"] for block in entry.fields["message"]["content"] if block.get("text")]
        for entry in path
        if entry.fields.get("message", {}).get("role") == "assistant"
    ]
    texts = [[block.text for block in blocks_of(message.content) if isinstance(block, Text)] for message in answers]
    assert with_content(texts) == with_content(expected)
    called = [call.id for message in context for call in tool_calls(message)]
    assistant_contents = {message.tool_call_id for message in context if isinstance(message, ToolResult)}
    assert assistant_contents <= set(called)
    assert len(called) == len(set(called))


# Ordinary messages: both ways of writing them

extras = st.dictionaries(
    st.sampled_from(["textSignature", "cache", "redacted", "details", "id", "timestamp", "errorMessage", "usage"]),
    st.one_of(st.none(), st.booleans(), st.integers(0, 2), words),
    max_size=2,
)


def with_more(blocks: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda block, more: {**more, **block}, blocks, extras)


fields_of_messages = st.fixed_dictionaries(
    {},
    optional={
        "api": st.sampled_from(["anthropic-messages", "x", None]),
        "provider": st.sampled_from(["anthropic", "x"]),
        "model": st.sampled_from(["claude-x", "", None, 1]),
        "usage": st.sampled_from(
            [USAGE, {**USAGE, "input": 5.0}, {**USAGE, "totalTokens": 1}, {"input": True}, {**USAGE, "cost": {}}, None]
        ),
        "stopReason": st.sampled_from(["stop", "toolUse", "length", "error", "aborted", "refusal", "", None]),
        "responseId": st.sampled_from(["msg_1", "msg_2", "resp_1", "msg_sessiontree_1", ""]),
        "timestamp": st.sampled_from([MS, float(MS), 1, True, None]),
        "isError": st.sampled_from([True, False, 1, None]),
        "toolName": st.sampled_from(["Read", "", None]),
        "more": words,
    },
)
passthroughs = st.sampled_from(
    [
        {},
        {"sessiontree": {"tools": {"agent": "pi"}}},
        {"sessiontree": {}},
        {"sessiontree": None},
        {"sessiontree": {"id": "x"}},
        {"sessiontree": {"claude": {"requestId": "req_1"}}},
        {"parentSession": "p", "sessiontree": {"pi": 1}},
    ]
)
contents = st.one_of(words, st.lists(st.one_of(with_more(texts), with_more(images), words), max_size=3))
prompts = st.one_of(contents, st.sampled_from(["<system-reminder>x", " <system-reminder>", "<bash-input>ls"]))
assistant_contents = st.lists(st.one_of(with_more(texts), with_more(signed), with_more(calls), redacted), max_size=4)


@st.composite
def messages_in_a_row(draw: st.DrawFn) -> list[CanonicalEntry]:
    entries: list[CanonicalEntry] = []
    for number in range(draw(st.integers(1, 6))):
        fields = draw(fields_of_messages)
        match draw(st.sampled_from(["user", "assistant", "toolResult"])):
            case "user":
                message = {"role": "user", **fields, "content": draw(prompts)}
            case "assistant":
                message = {**fields, "role": "assistant", "content": draw(assistant_contents)}
            case _:
                message = {"role": "toolResult", "toolCallId": draw(odd_ids), "content": draw(contents), **fields}
        id = draw(st.sampled_from([f"e{number}", str(uuid.UUID(int=number + 1)), ""]))
        time = draw(st.sampled_from([TIME, TIME, "2026-13-16T10:00:01.000Z", ""]))
        entries.append(CanonicalEntry("message", {"message": message, **draw(passthroughs)}, id, time))
    return entries


@examples(400)
@given(messages_in_a_row())
def test_messages_with_unusual_fields_are_decoded_as_they_were_encoded(entries: list[CanonicalEntry]) -> None:
    def without_empty_passthrough(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if (name, value) != ("sessiontree", {})}

    def without_new_client_data(fields: dict[str, Any], entry: CanonicalEntry) -> dict[str, Any]:
        carried, wanted = fields.get("sessiontree"), entry.fields.get("sessiontree")
        if entry.id or not isinstance(carried, dict) or (isinstance(wanted, dict) and "claude" in wanted):
            return fields
        # A new entry becomes one of the client's own, so what its line has beyond canonical form is kept.
        return {**fields, "sessiontree": {name: value for name, value in carried.items() if name != "claude"}}

    decoded = transcript_of(*entries).decode()
    assert [
        without_empty_passthrough(without_new_client_data(found.fields, entry))
        for entry, found in zip(entries, decoded, strict=True)
    ] == [without_empty_passthrough(entry.fields) for entry in entries]
    assert [found.id for entry, found in zip(entries, decoded, strict=True) if entry.id] == [
        entry.id for entry in entries if entry.id
    ]


@examples(50)
@given(words)
def test_a_made_uuid_is_that_of_version_5(name: str) -> None:
    known = name.encode("utf-8", "backslashreplace").decode()
    assert generate_uuid(uuid.NAMESPACE_URL.bytes, name) == str(uuid.uuid5(uuid.NAMESPACE_URL, known))


def test_a_result_is_not_written_twice() -> None:
    transcript = check_round_trip(user("u1"), assistant("a1", call("c1")), result("r1", "c1", text("once")))
    assert transcript.data.count(b"once") == 1


@examples(100)
@given(
    st.lists(
        st.builds(
            CanonicalEntry,
            st.sampled_from(
                ["message", "compaction", "custom_message", "label", "custom", "branch_summary", "leaf", ""]
            ),
            st.recursive(
                st.one_of(st.none(), st.booleans(), st.integers(), words),
                lambda inner: st.one_of(
                    st.lists(inner, max_size=3),
                    st.dictionaries(
                        st.sampled_from(
                            [
                                "message",
                                "role",
                                "content",
                                "type",
                                "text",
                                "sessiontree",
                                "claude",
                                "data",
                                "id",
                                "summary",
                            ]
                        ),
                        inner,
                        max_size=4,
                    ),
                ),
                max_leaves=12,
            ).map(lambda value: value if isinstance(value, dict) else {"message": value}),
            words,
            words,
        ),
        max_size=4,
    )
)
def test_nothing_raises_whatever_an_entry_holds(entries: list[CanonicalEntry]) -> None:
    transcript = transcript_of(*entries)
    decode(transcript.journal)
    assert all(isinstance(message, User | Assistant | ToolResult) for message in transcript.messages())
