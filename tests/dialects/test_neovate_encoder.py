"""Neovate's encoder: lines, results, commands, metadata lines, and the current entry."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from sessiontree.conversion.walk import iter_entries
from sessiontree.core.entries import Config, ForkOrigin
from sessiontree.core.messages import message_text
from sessiontree.dialects.canonical import CanonicalEntry, LossNote, SessionMeta
from sessiontree.dialects.contract import AS_CLIENT
from sessiontree.dialects.neovate import INTERRUPTION, NEOVATE
from sessiontree.repair import examine
from tests.dialects.neovate_sessions import (
    META,
    PIXEL,
    SESSION,
    TIME,
    Writer,
    answer,
    call,
    entry,
    journal,
    loaded,
    message_entry,
    plain,
    result,
    text,
    user,
    written,
)

# Lines


def test_a_line_has_the_keys_of_neovate_in_its_order() -> None:
    (line,) = written(user("a")).messages
    assert list(line) == ["parentUuid", "uuid", "role", "content", "type", "timestamp", "sessionId", "sessiontree"]
    assert (line["parentUuid"], line["content"], line["timestamp"], line["sessionId"]) == (None, "hello", TIME, SESSION)
    assert line["sessiontree"] == {"id": "a"}


def test_an_id_that_is_a_uuid_is_kept_and_any_other_follows_from_it() -> None:
    own = "11111111-2222-4333-8444-555555555555"
    writer = written(user("a"), user(own))
    first, second = writer.messages
    assert str(uuid.UUID(first["uuid"])) == first["uuid"]
    assert (second["uuid"], second["parentUuid"]) == (own, first["uuid"])
    assert "sessiontree" not in second
    assert written(user("a"), user(own)).data == writer.data


def test_two_entries_with_one_id_get_lines_of_their_own() -> None:
    writer = written(user("a", "one"), user("a", "two"))
    assert len({line["uuid"] for line in writer.messages}) == 2
    assert [item.id for item in writer.decoded()] == ["a", "a"]


def test_the_first_line_has_the_settings_and_the_title() -> None:
    writer = Writer(SessionMeta(META.id, TIME, title="T", config=Config("yolo", ("bash",))))
    (line,) = writer.lines
    assert line["type"] == "config"
    assert line["config"] == {
        "approvalMode": "yolo",
        "approvalTools": ["bash"],
        "pastedTextMap": {},
        "pastedImageMap": {},
        "summary": "T",
        "additionalDirectories": [],
    }


def test_a_title_that_differs_from_the_summary_is_written_too() -> None:
    writer = Writer(SessionMeta(META.id, TIME, title="T", config=Config(summary="S"))).chain(user("a"))
    assert writer.session.name == "T"
    assert writer.session.config.summary == "S"


def test_an_answer_has_its_parts_text_model_and_usage() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"}
    writer = written(answer("a", thinking, text("one"), text("two"), call("1", path="x")), result("r", "1"))
    line = writer.messages[0]
    assert line["content"] == [
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "one"},
        {"type": "text", "text": "two"},
        {"type": "tool_use", "id": "1", "name": "read", "input": {"path": "x"}},
    ]
    assert (line["text"], line["model"]) == ("onetwo", "anthropic/opus")
    assert line["usage"] == {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 3}
    assert LossNote("aside", "signatures of thinking", "Neovate cannot store them") in writer.notes


def test_blocks_are_put_in_the_clients_order_and_decoded_in_their_own() -> None:
    item = answer("a", call("1"), text("late"), {"type": "thinking", "thinking": "hm"})
    writer = written(item, result("r", "1"))
    assert [part["type"] for part in writer.messages[0]["content"]] == ["reasoning", "text", "tool_use"]
    assert writer.decoded()[0].fields == item.fields
    assert "orders of blocks" in {note.what for note in writer.notes}


def test_blocks_the_client_would_fail_on_are_passthrough_data() -> None:
    odd = [{"type": "redactedThinking", "data": "x"}, {"type": "image", "data": PIXEL}, 5, {"type": "new"}]
    item = answer("a", odd[0], text("said"), *odd[1:])
    writer = written(item, user("b", [text("see"), {"type": "new"}, {"type": "text"}]))
    assert [part["type"] for part in writer.messages[0]["content"]] == ["text"]
    assert [found.fields for found in writer.decoded()] == [item.fields, writer.decoded()[1].fields]
    assert {note.kind for note in writer.notes} == {"aside"}


def test_an_image_is_a_data_url_with_its_type() -> None:
    (line,) = written(user("a", [{"type": "image", "data": PIXEL, "mimeType": "image/webp"}])).messages
    assert line["content"] == [
        {"type": "image", "data": f"data:image/webp;base64,{PIXEL}", "mimeType": "image/webp"},
    ]


# Results


def test_results_of_parallel_calls_are_in_one_line_with_name_and_input_of_their_calls() -> None:
    writer = Writer()
    writer.add(answer("a", call("1", path="x"), call("2", path="y")), None)
    first = writer.add(result("r1", "1", toolName=""), "a")
    second = writer.add(result("r2", "2", [text("no")], isError=True), "r1")
    assert list(first.lines) == []
    assert len(second.lines) == 1
    assert first.id == second.id
    _, line = writer.messages
    assert line["role"] == "tool"
    assert [part["toolName"] for part in line["content"]] == ["read", "read"]
    assert [part["input"] for part in line["content"]] == [{"path": "x"}, {"path": "y"}]
    assert [part["result"] for part in line["content"]] == [
        {"llmContent": "done"},
        {"llmContent": "no", "isError": True},
    ]


def test_an_answer_whose_calls_are_not_all_answered_is_kept_by_the_client_and_decoded_as_it_was() -> None:
    items = [
        user("u"),
        answer("a", call("1"), call("2")),
        result("r", "2"),
        user("b", "go on"),
        answer("c", text("ok")),
    ]
    writer = written(*items)
    assert [line["role"] for line in loaded(writer.data)] == ["user", "assistant", "tool", "user", "assistant"]
    made_up = writer.messages[2]["content"][1]
    assert (made_up["toolCallId"], made_up["result"]["llmContent"]) == ("1", INTERRUPTION)
    assert plain(writer.decoded()) == plain(items)
    assert "calls without a result" in {note.what for note in writer.notes}


def test_calls_that_are_open_at_the_end_are_answered_too() -> None:
    items = [user("u"), answer("a", call("1"))]
    writer = written(*items)
    assert len(loaded(writer.data)) == 3
    assert plain(writer.decoded()) == plain(items)
    assert writer.decoded()[-1].aliases[-1] == writer.messages[-1]["uuid"]


def test_entries_between_results_wait_for_them_and_are_decoded_in_order() -> None:
    items = [
        answer("a", call("1"), call("2")),
        entry("custom", "s0", customType="x"),
        result("r1", "1"),
        entry("custom", "s1", customType="y"),
        user("u", "steering"),
        result("r2", "2"),
        answer("z", text("ok")),
    ]
    writer = written(*items)
    assert [line["role"] for line in writer.messages] == ["assistant", "tool", "user", "assistant"]
    assert plain(writer.decoded()) == plain(items)


def test_a_second_branch_after_the_same_response_has_results_of_its_own() -> None:
    writer = Writer().chain(
        user("u"), answer("a", call("1"), call("2")), result("r1", "1"), result("r2", "2"), user("b")
    )
    writer.chain(result("s1", "2"), user("c"), parent="a").end("c")
    assert [line["role"] for line in loaded(writer.data)] == ["user", "assistant", "tool", "user"]
    assert [item.id for item in writer.decoded()] == ["u", "a", "s1", "c"]
    assert [item.id for item in writer.decoded("b")] == ["u", "a", "r1", "r2", "b"]


@pytest.mark.parametrize("between", ["branch_summary", "custom_message"])
def test_what_is_between_a_call_and_its_result_is_decoded_there(between: str) -> None:
    injected = entry(between, "b", summary="went astray", fromId="u", customType="x", content="said")
    items = [user("u"), answer("a", call("1")), injected, result("r", "1"), answer("z", text("ok"))]
    writer = written(*items)
    assert [line["role"] for line in loaded(writer.data)] == ["user", "assistant", "tool", "user", "assistant"]
    assert plain(writer.decoded()) == plain(items)


def test_a_branch_may_begin_among_the_results_of_an_answer() -> None:
    writer = Writer().chain(user("u"), answer("a", call("1"), call("2")), result("r1", "1"), user("s", "steering"))
    writer.chain(result("r2", "2"), user("b"), parent="s").chain(
        result("q2", "2", [text("other")]), user("c"), parent="s"
    )
    writer.chain(user("d"), parent="r1").end("d")
    assert [item.id for item in writer.decoded("b")] == ["u", "a", "r1", "s", "r2", "b"]
    assert [item.id for item in writer.decoded("c")] == ["u", "a", "r1", "s", "q2", "c"]
    assert [item.id for item in writer.decoded()] == ["u", "a", "r1", "d"]
    shown = [line["content"] for line in loaded(writer.data)]
    assert [part["result"]["llmContent"] for part in shown[2]] == ["done", INTERRUPTION]
    decoded = {item.id: parent for item, parent in iter_entries(writer.session, writer.session.leaf, all_branches=True)}
    assert (decoded["r2"], decoded["q2"], decoded["d"]) == ("s", "s", "r1")
    assert examine(writer.session) == []


def test_a_result_that_answers_nothing_becomes_a_user_message_and_is_read_back_as_it_was() -> None:
    items = [user("u"), result("r", "nowhere"), answer("a", text("ok"))]
    writer = written(*items)
    assert [line["role"] for line in writer.messages] == ["user", "user", "assistant"]
    assert plain(writer.decoded()) == plain(items)
    assert examine(writer.session) == []


# Commands, messages of extensions


def test_a_command_and_its_output_are_lines_of_the_user_and_one_entry() -> None:
    fields = {"role": "bashExecution", "command": "ls", "output": "a\n", "exitCode": 0, "cancelled": False}
    items = [message_entry("c", {**fields, "truncated": False}), user("u")]
    writer = written(*items)
    assert [line["content"] for line in writer.messages] == [
        "<bash-input>ls</bash-input>",
        "<bash-stdout>a\n</bash-stdout>",
        "hello",
    ]
    assert plain(writer.decoded()) == plain(items)


def test_a_command_that_failed_or_printed_nothing() -> None:
    failed = message_entry("c", {"role": "bashExecution", "command": "x", "output": "no", "exitCode": 1})
    silent = message_entry("d", {"role": "bashExecution", "command": "y", "output": ""})
    writer = written(
        failed, silent, user("e", "<bash-stdout>mine</bash-stdout>"), user("f", "<bash-input>mine</bash-input>")
    )
    assert [line["content"] for line in writer.messages][1:3] == [
        "<bash-stderr>no</bash-stderr>",
        "<bash-input>y</bash-input>",
    ]
    assert [item.id for item in writer.decoded()] == ["c", "d", "e", "f"]
    assert [item.fields["message"]["role"] for item in writer.decoded()] == [
        "bashExecution",
        "bashExecution",
        "user",
        "user",
    ]


def test_a_command_that_the_model_must_not_see_is_a_metadata_line() -> None:
    hidden = message_entry(
        "c", {"role": "bashExecution", "command": "secret", "output": "", "excludeFromContext": True}
    )
    writer = written(user("a"), hidden, user("b"))
    assert "secret" not in "".join(message_text(message) for message in writer.session.context().messages)
    assert plain(writer.decoded()) == plain([user("a"), hidden, user("b")])


def test_messages_of_extensions_and_branch_summaries_are_user_messages() -> None:
    items = [
        entry("custom_message", "a", customType="x", content="shown", display=True),
        entry("custom_message", "b", customType="x", content="unseen", display=False),
        entry("branch_summary", "c", summary="went astray", fromId="a"),
        message_entry("d", {"role": "custom", "customType": "x", "content": [text("t")], "display": True}),
    ]
    writer = written(*items)
    shown, unseen, branch, _ = writer.messages
    assert shown["content"] == "shown"
    assert unseen["content"] == [{"type": "text", "text": "unseen", "hidden": True}]
    assert "went astray" in branch["content"][0]["text"]
    assert plain(writer.decoded()) == plain(items)


# Metadata lines


ASIDES = [
    entry("model_change", "m", provider="p", modelId="x"),
    entry("thinking_level_change", "t", thinkingLevel="high"),
    entry("mode_change", "o", mode="plan"),
    entry("usage", "g", kind="title"),
    entry("custom", "x", customType="c", data={"n": 1}),
    entry("unheard_of", "y", some="thing"),
    entry("file_snapshot", "f", files={}),
    message_entry("s", {"role": "system", "content": "be brief", "sections": {"a": "b"}}),
    message_entry("q", {"role": "narrator", "content": "so it began"}),
]


@pytest.mark.parametrize("item", ASIDES, ids=lambda item: item.id)
def test_entries_the_client_cannot_store_are_never_a_parent_and_are_restored(item: CanonicalEntry) -> None:
    items = [user("a"), item, answer("b", text("ok"))]
    writer = written(*items)
    first, last = writer.messages
    assert last["parentUuid"] == first["uuid"]
    (aside,) = [line for line in writer.lines if line["type"] == "sessiontree"]
    assert (aside["id"], aside["parent"], aside["uuid"]) == (item.id, first["uuid"], first["uuid"])
    assert plain(writer.decoded()) == plain(items)
    assert [note.kind for note in writer.notes] == ["aside"]
    assert examine(writer.session) == []


def test_a_metadata_line_on_one_branch_is_not_part_of_another() -> None:
    writer = Writer().chain(user("a"), entry("model_change", "m", model="p/x"), user("b"))
    writer.chain(user("c"), parent="a").chain(user("d"), parent="m").end("d")
    assert [item.id for item in writer.decoded("b")] == ["a", "m", "b"]
    assert [item.id for item in writer.decoded("c")] == ["a", "c"]
    assert [item.id for item in writer.decoded()] == ["a", "m", "d"]


def test_metadata_lines_before_the_first_message_and_after_the_last_belong_to_the_history() -> None:
    items = [entry("model_change", "m", model="p/x"), user("a"), entry("mode_change", "n", mode="plan")]
    assert plain(written(*items).decoded()) == plain(items)


def test_metadata_lines_after_a_call_without_a_result_belong_to_the_history() -> None:
    items = [user("a"), answer("b", call("c1")), entry("mode_change", "m", mode="plan"), entry("custom", "n", data=1)]
    assert plain(written(*items).decoded()) == plain(items)
    assert plain(written(*items, answer("d", text("ok"))).decoded()) == plain([*items, answer("d", text("ok"))])


def test_a_label_names_the_line_and_is_decoded_with_the_id_it_had() -> None:
    label = entry("label", "l", targetId="a", label="start")
    writer = written(user("a"), label, user("b"))
    assert writer.session.labels == {writer.messages[0]["uuid"]: "start"}
    assert plain(writer.decoded())[1] == ("label", "l", label.fields)


def test_a_name_is_also_a_title_of_the_client() -> None:
    writer = written(user("a"), entry("session_info", "n", name="Named"))
    assert writer.lines[-1] == {
        "type": "custom-title",
        "customTitle": "Named",
        "sessionId": SESSION,
        "uuid": writer.messages[-1]["uuid"],
    }
    assert writer.session.name == "Named"


def test_the_clients_next_line_finds_a_parent_whatever_the_last_line_is() -> None:
    """Neovate uses the uuid of the last line as the parent of what `!cmd`, /compact and canceling write."""
    for item in (*ASIDES, entry("session_info", "n", name="N"), entry("label", "l", targetId="a", label="x")):
        writer = written(user("a"), answer("b", text("ok")), item)
        assert writer.lines[-1]["uuid"] == writer.messages[-1]["uuid"]


@pytest.mark.parametrize("entry", [None, 5, {}, {"type": 5}, {"type": ""}])
def test_a_line_of_ours_without_content_is_kept_as_it_is(entry: Any) -> None:
    line = json.dumps({"type": "sessiontree", "entry": entry}).encode() + b"\n"
    found = journal(written(user("a")).data + line)
    assert found.types[-1] == "sessiontree"
    assert NEOVATE.find_history(found, len(found) - 1, AS_CLIENT) == []


# The current entry, and the origin


def test_another_leaf_than_the_last_message_is_a_metadata_line() -> None:
    writer = Writer().chain(user("a"), user("b")).chain(user("c"), parent="a")
    assert list(writer.encoder.epilogue(writer.ids["c"])) == []
    writer.end("b")
    assert writer.session.leaf == writer.ids["b"]
    assert writer.lines[-1]["entry"] == {"targetId": writer.ids["b"], "type": "leaf"}
    assert examine(writer.session) == []


def test_a_second_root_after_a_metadata_line_is_not_a_false_root() -> None:
    writer = Writer().chain(user("a"), entry("label", "l", targetId="a", label="x")).chain(user("b")).end("b")
    assert [line["parentUuid"] for line in writer.messages] == [None, None]
    assert examine(writer.session) == []


def test_messages_from_the_origin_of_a_fork_carry_its_mark() -> None:
    writer = Writer(SessionMeta(META.id, TIME, forked_from=ForkOrigin("deadbeef", "b")))
    writer.chain(user("a"), answer("b", text("ok")), user("c")).end("c")
    marks = [line.get("forkedFrom") for line in writer.messages]
    assert marks == [
        {"sessionId": "deadbeef", "messageUuid": "a"},
        {"sessionId": "deadbeef", "messageUuid": "b"},
        None,
    ]
    assert writer.session.header.forked_from == ForkOrigin("deadbeef", "b")
    assert plain(writer.decoded()) == plain([user("a"), answer("b", text("ok")), user("c")])


@pytest.mark.parametrize(
    ("id", "cwd", "path"),
    [
        ("abcd1234", "/work/My.App", "/home/me/.neovate/projects/work-my-app/abcd1234.jsonl"),
        (META.id, "/", f"/home/me/.neovate/projects/{SESSION}.jsonl"),
    ],
)
def test_a_session_is_written_where_the_client_looks_for_it(id: str, cwd: str, path: str) -> None:
    found = NEOVATE.destination(SessionMeta(id, TIME, cwd), {"HOME": "/home/me"})
    assert found.path == path
    assert found.resume == ("neovate", "--resume", path[-14:-6])
