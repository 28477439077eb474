"""Claude Code: the lines an encoder writes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence

import pytest

from sessiontree.core.entries import Config, ForkOrigin
from sessiontree.core.messages import Message, ToolResult, message_text, tool_calls
from sessiontree.dialects.canonical import CanonicalEntry, SessionMeta
from sessiontree.dialects.claude import CLAUDE
from sessiontree.dialects.claude.locations import session_uuid
from sessiontree.dialects.claude.texts import TEXTS
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.dialects.texts import decode_line
from sessiontree.session.open import open_store
from sessiontree.stores.memory import MemoryStore
from tests.dialects.claude_transcripts import (
    MS,
    NIL,
    SESSION,
    SIGNATURE,
    TIME,
    USAGE,
    Transcript,
    assistant,
    call,
    check_round_trip,
    comparable,
    decode,
    entry,
    journal_of,
    message_entry,
    result,
    text,
    thinking,
    transcript_of,
    user,
)

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


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("last", ["a1", "r1", "r2"])
def test_a_message_of_an_extension_in_a_response_with_calls_is_only_on_its_own_branch(
    last: str, is_first: bool
) -> None:
    before = [user("u1"), assistant("a1", call("c1"), call("c2")), result("r1", "c1"), result("r2", "c2")]
    before = before[: 2 + ["a1", "r1", "r2"].index(last)]
    note = entry("custom_message", "m1", customType="note", content="by the way", display=True)
    answer = assistant("a2", text("done"))
    transcript = Transcript().add(*before)
    fork = transcript.ids[last]
    for each in (note, answer) if is_first else (answer, note):
        transcript.add_at(each, fork)
    transcript.end()
    (line,) = [line for line in transcript.chain if line.get("message", {}).get("content") == "by the way"]
    assert "isMeta" not in line
    for each in (note, answer):
        assert comparable(transcript.decode(transcript.ids[each.id])) == comparable([*before, each])


def test_search_does_not_take_messages_of_extensions_for_prompts() -> None:
    transcript = check_round_trip(
        user("u1"),
        assistant("a1", call("c1")),
        entry("custom_message", "m1", customType="note", content="one", display=True),
        assistant("a2", call("c2")),
        message_entry("custom", "m2", customType="note", content=[text("two")], display=False),
        assistant("a3", call("c3")),
        entry("branch_summary", "s1", fromId="u0", summary="three"),
        user("u2", "last"),
    )
    assert not any("isMeta" in line for line in transcript.chain)
    found = [each for raw in transcript.raw for each in TEXTS.read(decode_line(raw)).texts]
    assert [each.text for each in found if each.kind == "prompt"] == ["hello", "last"]


def test_a_meta_line_of_the_client_in_a_response_with_calls_stays_one() -> None:
    client = {"sessiontree": {"claude": [{"version": "2.1.325"}]}}
    transcript = check_round_trip(
        user("u1"),
        assistant("a1", call("c1")),
        result("r1", "c1"),
        entry("custom_message", "m1", customType="claude.meta", content="a skill", display=False, **client),
        user("u2"),
    )
    assert transcript.chain[3]["isMeta"] is True


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
