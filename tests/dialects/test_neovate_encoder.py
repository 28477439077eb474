"""Encoder for Neovate: each rule on its own, and that Neovate loads everything that was written."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.conversion.walk import iter_entries
from sessiontree.core.entries import Config, ForkOrigin, ModeChange
from sessiontree.core.messages import message_text
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.contract import AS_CLIENT
from sessiontree.dialects.neovate import COMPACTION_MARK, INTERRUPTION, NEOVATE
from sessiontree.dialects.neovate.locations import session_id
from sessiontree.dialects.neovate.metadata_lines import find_metadata_lines
from sessiontree.repair import examine
from sessiontree.session.journal import Journal
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.memory import MemoryStore
from tests.builders import NOWHERE, examples

TIME = "2026-02-16T10:00:01.000Z"
META = SessionMeta(id="019c0000-0000-7000-8000-00000000000a", timestamp=TIME, cwd="/src/project")
SESSION = session_id(META.id)
PIXEL = "iVBORw0KGgo="


# Neovate's loading rules (0.28.2), reimplemented without using our own code


def loaded(data: bytes, leaf: str | None = None) -> list[dict[str, Any]]:
    """The result of `loadSessionMessages` of 0.28: any bad line throws, responses with open calls are dropped.

    It always starts at the last message; a `leaf` shows what it would load if that were the last one.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    lines = [json.loads(line, parse_constant=refuse) for line in data.decode().split("\n") if line]
    messages = [line for line in lines if line["type"] == "message"]
    by_uuid = {line["uuid"]: line for line in messages}
    on_path: set[str] = set()
    current = by_uuid[leaf] if leaf is not None else messages[-1] if messages else None
    while current is not None:
        assert current["uuid"] not in on_path, "the client hangs"
        on_path.add(current["uuid"])
        current = by_uuid.get(current["parentUuid"])
    path = [line for line in messages if line["uuid"] in on_path]
    answered = {
        part["toolCallId"]
        for line in path
        if line["role"] == "tool"
        for part in line["content"]
        if part["type"] == "tool-result"
    }
    return [line for line in path if set(calls(line)) <= answered]


def calls(line: dict[str, Any]) -> list[str]:
    if line["role"] != "assistant" or not isinstance(line["content"], list):
        return []
    return [part["id"] for part in line["content"] if part["type"] == "tool_use"]


def sent(line: dict[str, Any]) -> None:
    """Check that there is nothing that makes `toLanguageV3Messages` throw."""
    content = line["content"]
    allowed = {
        "user": {"text", "image"},
        "assistant": {"text", "reasoning", "tool_use"},
        "tool": {"tool-result"},
        "system": set(),
    }
    if not isinstance(content, str):
        assert {part["type"] for part in content} <= allowed[line["role"]]


# Building


def user(id: str, content: Any = "hello", **fields: Any) -> CanonicalEntry:
    return message_entry(id, {"role": "user", "content": content, **fields})


def message_entry(id: str, message: dict[str, Any]) -> CanonicalEntry:
    return CanonicalEntry("message", {"message": {"timestamp": 1771236001000, **message}}, id, TIME)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": id, "name": "read", "arguments": arguments}


def answer(id: str, *blocks: Any, **fields: Any) -> CanonicalEntry:
    has_calls = any(isinstance(block, dict) and block.get("type") == "toolCall" for block in blocks)
    usage = {"input": 10, "output": 5, "cacheRead": 3, "cacheWrite": 0, "totalTokens": 18}
    about = {"provider": "anthropic", "model": "opus", "usage": usage, "stopReason": "toolUse" if has_calls else "stop"}
    return message_entry(id, {"role": "assistant", "content": list(blocks), **about, **fields})


def result(id: str, call: str, content: Any = None, **fields: Any) -> CanonicalEntry:
    given = [text("done")] if content is None else content
    about = {"toolCallId": call, "toolName": "read", "content": given, "isError": False}
    return message_entry(id, {"role": "toolResult", **about, **fields})


def entry(kind: str, id: str, /, **fields: Any) -> CanonicalEntry:
    return CanonicalEntry(kind, fields, id, TIME)


class Writer:
    """Drives an encoder as a conversion does: parents by the ids of the canonical entries."""

    def __init__(self, start: SessionMeta = META, existing: bytes | None = None) -> None:
        self.data = b"" if existing is None else existing
        self.start = start
        self.is_new = existing is None
        self.encoder = NEOVATE.encoder(start)
        self.ids: dict[str, str | None] = {}
        self.notes: list[LossNote] = []
        if self.is_new:
            self._put(self.encoder.prologue())

    def _put(self, lines: Sequence[bytes]) -> None:
        assert not any(b"\n" in line for line in lines)
        self.data += b"".join(line + b"\n" for line in lines)

    def add(self, item: CanonicalEntry, parent: str | None) -> Encoded:
        if not self.is_new:
            self.encoder = NEOVATE.encoder(self.start, journal(self.data))
        written = self.encoder.encode(item, self.ids.get(parent, parent) if parent is not None else None)
        if written.rewrite is not None:
            self.data = b""
            self._put(written.rewrite)
        self._put(written.lines)
        self.ids.update(dict.fromkeys((item.id, *item.aliases), written.id))
        self.notes += written.notes
        return written

    def chain(self, *items: CanonicalEntry, parent: str | None = None) -> Writer:
        for item in items:
            self.add(item, parent)
            parent = item.id
        return self

    def end(self, leaf: str | None) -> Writer:
        self._put(self.encoder.epilogue(self.ids.get(leaf) if leaf is not None else None))
        return self

    @property
    def session(self) -> Session:
        return open_store(MemoryStore(self.data, location=f"/p/{SESSION}.jsonl"), root=NOWHERE, dialect="neovate")

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.data.decode().split("\n") if line]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == "message"]

    def decoded(self, id: str | None = None) -> list[CanonicalEntry]:
        """The decoded history of the current entry or another one."""
        found = journal(self.data)
        leaf = NEOVATE.find_leaf(found, AS_CLIENT)
        if id is not None:
            aside = find_metadata_lines(found).by_id.get(id)
            leaf = aside.node if aside is not None else found.tree.node_of[str(self.ids[id])]
        return list(NEOVATE.decode(found, NEOVATE.find_history(found, leaf, AS_CLIENT)))


def journal(data: bytes) -> Journal:
    found = Journal(MemoryStore(data, location=f"/p/{SESSION}.jsonl"), NEOVATE)
    found.refresh()
    return found


def written(*items: CanonicalEntry) -> Writer:
    writer = Writer().chain(*items)
    return writer.end(items[-1].id)


def plain(items: Sequence[CanonicalEntry]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(item.kind, item.id, item.fields) for item in items]


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


# Compactions


def test_a_compaction_is_a_new_root_and_what_it_keeps_is_repeated_after_it() -> None:
    items = [
        user("a", "old"),
        answer("b", text("older")),
        user("c", "kept"),
        answer("d", text("looking"), call("1")),
        result("r", "1"),
        entry("compaction", "k", summary="so far", tokensBefore=9, firstKeptEntryId="c", details={"x": 1}),
        user("e", "next"),
    ]
    writer = written(*items)
    assert writer.messages[5]["uiContent"] == COMPACTION_MARK
    assert writer.messages[5]["content"] == [text("so far")]
    shown = [message_text(message) for message in writer.session.context().messages]
    assert shown == ["so far", "kept", "looking", "done", "next"]
    assert len(loaded(writer.data)) == 5
    assert plain(writer.decoded()) == plain(items)
    assert "compactions that keep messages" in {note.what for note in writer.notes}
    assert examine(writer.session) == []


@pytest.mark.parametrize("bound", [None, "k", "nowhere", "other"])
def test_a_compaction_that_keeps_nothing_repeats_nothing(bound: str | None) -> None:
    writer = Writer().chain(user("a"), user("b")).chain(user("other"), parent="a")
    kept = {} if bound is None else {"firstKeptEntryId": bound}
    writer.chain(entry("compaction", "k", summary="s", **kept), user("c"), parent="b").end("c")
    assert [line["content"] for line in loaded(writer.data)] == [[text("s")], "hello"]
    assert [item.id for item in writer.decoded()] == ["a", "b", "k", "c"]


def test_a_compaction_keeps_across_an_older_one_and_never_results_without_their_call() -> None:
    items = [
        answer("a", call("1")),
        result("r", "1"),
        user("b", "kept"),
        entry("compaction", "k", summary="one", firstKeptEntryId="b"),
        user("c", "later"),
        entry("compaction", "l", summary="two", firstKeptEntryId="r"),
        user("d", "last"),
    ]
    writer = written(*items)
    assert [message_text(message) for message in writer.session.context().messages] == ["two", "kept", "later", "last"]
    assert plain(writer.decoded()) == plain(items)


def test_a_compaction_may_keep_from_a_metadata_line_on() -> None:
    items = [user("a"), entry("mode_change", "m", mode="plan"), user("b", "kept")]
    writer = written(*items, entry("compaction", "k", summary="s", firstKeptEntryId="m"), user("c", "last"))
    assert [message_text(message) for message in writer.session.context().messages] == ["s", "kept", "last"]


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


# Continuing


EXISTING = written(user("a"), answer("b", text("ok"), call("1"), call("2")), result("r1", "1"), result("r2", "2"))


def continued(writer: Writer) -> Writer:
    return Writer(META, writer.data)


def test_results_that_are_appended_are_lines_of_their_own_in_a_row() -> None:
    writer = continued(written(user("a")))
    writer.chain(
        answer("b", call("1", n=1), call("2")), result("r1", "1"), result("r2", "2"), parent=writer.messages[-1]["uuid"]
    )
    assert [line["role"] for line in loaded(writer.data)] == ["user", "assistant", "tool", "tool"]
    assert writer.messages[2]["content"][0]["input"] == {"n": 1}
    assert [item.id for item in writer.decoded()] == ["a", "b", "r1", "r2"]


def test_open_calls_are_answered_before_the_conversation_continues() -> None:
    writer = continued(written(user("a")))
    writer.chain(answer("b", call("1"), call("2")), result("r", "2"), user("c"), parent=writer.messages[-1]["uuid"])
    assert [line["role"] for line in loaded(writer.data)] == ["user", "assistant", "tool", "tool", "user"]
    assert [item.id for item in writer.decoded()] == ["a", "b", "r", "c"]


def test_the_session_id_of_the_file_is_kept() -> None:
    writer = Writer(SessionMeta("whatever", TIME), EXISTING.data)
    writer.add(user("x"), EXISTING.messages[-1]["uuid"])
    assert {line["sessionId"] for line in writer.messages} == {SESSION}


def test_new_entries_without_an_id_get_different_ones() -> None:
    writer = continued(EXISTING)
    last = EXISTING.messages[-1]["uuid"]
    first = writer.add(user("", "same"), last)
    second = writer.add(user("", "same"), last)
    assert first.id != second.id
    assert examine(writer.session) == []


def test_moving_appends_a_line_that_neovate_ignores() -> None:
    writer = continued(Writer().chain(user("a"), user("b", "中文"), user("c")).end("c"))
    before = writer.data
    target = writer.messages[1]["uuid"]
    writer.add(entry("leaf", "", targetId=target), writer.messages[-1]["uuid"])
    assert writer.data.startswith(before)
    assert writer.session.leaf == target
    assert len(loaded(writer.data)) == 3
    # Commands of Neovate that continue from the uuid of the last line continue from the target as well.
    assert writer.lines[-1]["uuid"] == target
    again = writer.add(entry("leaf", "", targetId=target), target)
    assert (again.rewrite, list(again.lines)) == (None, [])


def test_neovate_follows_a_move_with_the_next_message() -> None:
    writer = continued(Writer().chain(*(user(id, id) for id in "abcd")).end("d"))
    _, b, c, d = (line["uuid"] for line in writer.messages)
    for target in (b, d, b):
        writer.add(entry("leaf", "", targetId=target), d)
    assert [line["content"] for line in loaded(writer.data)] == ["a", "b", "c", "d"]
    writer.add(user("e", "e"), b)
    assert [line["content"] for line in loaded(writer.data)] == ["a", "b", "e"]
    assert [message_text(message) for message in writer.session.context(c).messages] == ["a", "b", "c"]
    assert examine(writer.session) == []


def test_a_metadata_line_after_a_move_belongs_to_the_new_branch() -> None:
    items = [user("a"), entry("mode_change", "m", mode="plan"), user("b")]
    writer = continued(Writer().chain(*items).end("b"))
    a = writer.messages[0]["uuid"]
    writer.add(entry("leaf", "", targetId=a), writer.messages[-1]["uuid"])
    writer.add(entry("mode_change", "n", mode="ask"), a)
    session = writer.session
    session.append("user", "c")
    assert [each.mode for each in session.path() if isinstance(each, ModeChange)] == []
    history = NEOVATE.find_history(session.journal, session.node_of(session.leaf), AS_CLIENT)
    modes = [each.fields["mode"] for each in NEOVATE.decode(session.journal, history) if each.kind == "mode_change"]
    assert modes == ["ask"]


def test_a_file_that_an_older_version_rewrote_for_a_move_reads_as_before() -> None:
    writer = Writer().chain(user("a", "a"), user("b", "b")).end("b")
    first, second = writer.messages
    moved = [*(line for line in writer.lines if line["type"] != "message"), second, first]
    session = Writer(META, b"".join(json.dumps(line).encode() + b"\n" for line in moved)).session
    assert session.leaf == first["uuid"]
    assert {finding.rule.id for finding in examine(session)} == {"forward-reference"}


def test_before_the_first_message() -> None:
    writer = continued(EXISTING)
    found = writer.add(entry("leaf", "", targetId=None), EXISTING.messages[-1]["uuid"])
    assert found.rewrite is None
    assert writer.lines[-1]["entry"] == {"targetId": None, "type": "leaf"}
    assert writer.session.leaf is None
    writer.add(user("x", "new root"), None)
    assert [line["content"] for line in loaded(writer.data)] == ["new root"]
    assert examine(writer.session) == []


@examples(60)
@given(steps=st.lists(st.tuples(st.sampled_from(["say", "move", "reset"]), st.integers(0, 30)), max_size=25))
def test_after_any_moves_every_branch_reads_from_root_to_leaf(steps: list[tuple[str, int]]) -> None:
    session = Writer().chain(user("a", "0")).end("a").session
    paths: dict[str | None, list[str]] = {None: [], session.leaf: ["0"]}
    for number, (step, choice) in enumerate(steps, 1):
        if step == "say":
            before = paths[session.leaf]
            paths[session.append("user", str(number)).id] = [*before, str(number)]
        elif step == "reset":
            session.reset()
        else:
            session.move(list(paths)[choice % len(paths)])
    data = read_bytes(session.journal.store, 0, session.journal.size)
    reopened = open_store(MemoryStore(data))
    assert reopened.leaf == session.leaf
    for leaf, texts in list(paths.items())[1:]:
        assert [message_text(message) for message in reopened.context(leaf).messages] == texts
        assert [line["content"] for line in loaded(data, leaf)] == texts
    assert examine(reopened) == []


def test_settings_are_changed_on_the_first_line_and_keep_what_we_do_not_know() -> None:
    first, *rest = EXISTING.data.split(b"\n")
    config = json.loads(first)
    config["config"]["planSlug"] = "x"
    writer = Writer(META, b"\n".join([rest[0], b"{torn", json.dumps(config).encode(), *rest[1:]]))
    writer.add(entry("config", "", config={"approvalMode": "yolo"}), None)
    changed, *others = writer.data.split(b"\n")
    assert json.loads(changed)["config"] | {"approvalMode": "yolo", "planSlug": "x"} == json.loads(changed)["config"]
    assert others == [rest[0], b"{torn", *rest[1:]]


def test_a_compaction_of_an_existing_file_repeats_its_lines() -> None:
    writer = continued(EXISTING)
    first = writer.messages[1]["uuid"]
    writer.chain(
        entry("compaction", "k", summary="s", firstKeptEntryId=first), user("z"), parent=writer.messages[-1]["uuid"]
    )
    assert [line["role"] for line in loaded(writer.data)] == ["user", "assistant", "tool", "user"]
    assert [item.id for item in writer.decoded()] == ["a", "b", "r1", "r2", "k", "z"]


def test_a_message_after_a_change_of_model_follows_it_in_the_history() -> None:
    writer = continued(EXISTING)
    last = writer.messages[-1]["uuid"]
    writer.add(entry("model_change", "m", model="p/x"), last)
    writer.add(user("z"), last)
    assert [item.id for item in writer.decoded()] == ["a", "b", "r1", "r2", "m", "z"]


# Anything


@pytest.mark.parametrize(
    "item",
    [
        CanonicalEntry("message", {}, "x"),
        CanonicalEntry("message", {"message": None}, "x"),
        CanonicalEntry("message", {"message": {}}, "x"),
        user("x", None),
        user("x", {"no": "content"}),
        user("x", [None, 5, "text", {"type": None}]),
        answer("x", text("t"), provider=5, model=None, usage="none"),
        answer("x", {"type": "toolCall", "id": 5, "name": None}),
        result("x", "1", "text", toolName=None),
        result("x", "1", None, toolCallId=5),
        entry("compaction", "x"),
        entry("compaction", "x", summary=5, firstKeptEntryId=5),
        entry("label", "x", targetId=5),
        entry("config", "x", config=5),
        entry("leaf", "x", targetId=5),
        user("x", [{"type": "text", "text": "\ud83d"}], cost=float("nan")),
        CanonicalEntry("custom", {"type": "other", "data": 10**30}, "x", "no time"),
    ],
)
@pytest.mark.parametrize("is_new", [True, False])
def test_nothing_that_an_entry_holds_makes_an_encoder_fail(item: CanonicalEntry, is_new: bool) -> None:
    writer = Writer().chain(user("a"))
    if not is_new:
        writer = continued(writer)
    writer.chain(item, user("z"), parent=writer.ids.get("a") or writer.messages[-1]["uuid"])
    if is_new:
        writer.end("z")
    assert loaded(writer.data)[-1]["uuid"] == writer.ids["z"]


def test_nesting_too_deep_for_json_is_dropped_and_noted() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    writer = Writer().chain(user("a"), entry("custom", "b", data=deep), user("c")).end("c")
    assert [note.kind for note in writer.notes] == ["dropped"]
    assert len(loaded(writer.data)) == 2


words = st.text(max_size=8) | st.sampled_from(["", "中文", "🙂", "lone \ud83d", "</bash-stdout>", "\u2028\x00"])
images = st.fixed_dictionaries({"type": st.just("image"), "data": st.just(PIXEL), "mimeType": st.just("image/png")})
texts = st.builds(text, words)
thoughts = st.builds(
    lambda message_entry, more: {"type": "thinking", "thinking": message_entry, **more},
    words,
    st.sampled_from([{}, {"thinkingSignature": "s"}, {"redacted": True}]),
)
odd_blocks = st.sampled_from(
    [
        {"type": "new", "x": 1},
        {"type": "redactedThinking", "data": "d"},
        {"type": "text", "text": "t", "textSignature": "s"},
    ]
)
contents = words | st.lists(texts | images | odd_blocks, max_size=3)


def between(id: str, asked: list[str]) -> st.SearchStrategy[CanonicalEntry]:
    """What may come after an answer: results in any order, missing or twice, and anything else among them."""
    results = st.builds(
        lambda call, content, failed: result(id, call, content, isError=failed),
        st.sampled_from([*asked, *asked, "nowhere"]),
        contents | st.just([text("x")]),
        st.booleans(),
    )
    others = st.one_of(
        st.builds(lambda words: entry("custom", id, data=words), words),
        st.builds(lambda content: user(id, content), contents),
        st.builds(lambda words: entry("branch_summary", id, summary=words, fromId="root"), words),
        st.builds(lambda content: entry("custom_message", id, customType="x", content=content), contents),
        st.builds(lambda words: message_entry(id, {"role": "bashExecution", "command": words, "output": words}), words),
        st.builds(lambda words: message_entry(id, {"role": "system", "content": words}), words),
        st.builds(lambda words: answer(id, text(words)), words),
        st.builds(lambda words: entry("compaction", id, summary=words, tokensBefore=7), words),
    )
    return st.one_of(results, results, others)


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[CanonicalEntry, str | None]]:
    """Entries with their parents: parents before children, the last entry on the active branch."""
    made: list[tuple[CanonicalEntry, str | None]] = []
    starts: list[str | None] = [None]
    number = 0

    def put(item: CanonicalEntry, parent: str | None) -> str:
        made.append((item, parent))
        return item.id

    def new_id() -> str:
        nonlocal number
        number += 1
        return draw(st.sampled_from([f"i{number}", f"00000000-0000-4000-8000-{number:012d}"]))

    at: str | None = None
    for turn in range(draw(st.integers(1, 4))):
        if draw(st.integers(0, 3)) == 0:
            at = draw(st.sampled_from(starts))
        at = put(user(new_id(), draw(contents), **draw(st.sampled_from([{}, {"extra": 1}]))), at)
        before = at
        if draw(st.booleans()):
            at = put(entry("mode_change", new_id(), mode="x"), at)
        asked = [f"c{turn}.{call}" for call in range(draw(st.integers(0, 3)))]
        blocks = draw(st.lists(texts | thoughts | odd_blocks | images, max_size=3)) + [call(id, n=turn) for id in asked]
        about = draw(st.sampled_from([{}, {"api": "x", "usage": {"input": 1}}, {"provider": None, "model": "a/b"}]))
        answered = answer(new_id(), *draw(st.permutations(blocks)), **about)
        at = put(answered, at)
        starts += [before, at]
        for _ in range(draw(st.integers(0, 6))):
            at = put(draw(between(new_id(), asked)), at)
            starts.append(at)
            if draw(st.integers(0, 5)) == 0:
                at = draw(st.sampled_from(starts))
        match draw(st.integers(0, 5)):
            case 0:
                kept = draw(st.sampled_from([None, before, answered.id]))
                bound = {} if kept is None else {"firstKeptEntryId": kept}
                at = put(entry("compaction", new_id(), summary=draw(words), tokensBefore=7, **bound), at)
                starts.append(at)
            case 1:
                fields = {"role": "bashExecution", "command": draw(words), "output": draw(words)}
                at = put(
                    message_entry(
                        new_id(), {**fields, **draw(st.sampled_from([{}, {"exitCode": 2, "cancelled": True}]))}
                    ),
                    at,
                )
                starts.append(at)
            case 2:
                at = put(entry("custom_message", new_id(), customType="x", content=draw(contents)), at)
            case 3:
                put(entry("label", new_id(), targetId=before, label=draw(words)), at)
            case _:
                pass
    put(user(new_id(), "the last one"), at)
    return made


def path_to(made: list[tuple[CanonicalEntry, str | None]], id: str | None) -> list[CanonicalEntry]:
    known = {item.id: (item, parent) for item, parent in made}
    path: list[CanonicalEntry] = []
    while id is not None:
        item, id = known[id]
        path.append(item)
    return path[::-1]


def ends(made: list[tuple[CanonicalEntry, str | None]]) -> list[str]:
    inner = {parent for _, parent in made}
    return [item.id for item, _ in made if item.id not in inner]


def parents(session: Session) -> dict[str, str | None]:
    """The parent of each entry, as in a conversion: an id refers to the last entry that has it."""
    found: dict[str, str | None] = {}
    meant: dict[str, str] = {}
    for item, parent in iter_entries(session, session.leaf, all_branches=True):
        found[item.id] = None if parent is None else meant[parent]
        meant.update(dict.fromkeys((item.id, *item.aliases), item.id))
    return found


@examples(150)
@given(made=conversations())
def test_any_conversation_is_decoded_as_it_was_encoded_and_the_client_loads_all_of_it(
    made: list[tuple[CanonicalEntry, str | None]],
) -> None:
    writer = Writer()
    for item, parent in made:
        writer.add(item, parent)
    writer.end(made[-1][0].id)
    assert plain(writer.decoded()) == plain(path_to(made, made[-1][0].id))
    for end in ends(made):
        if end not in ("", made[-1][0].id):
            assert plain(writer.decoded(end)) == plain(path_to(made, end))
    assert parents(writer.session) == {item.id: parent for item, parent in made}
    path = writer.session.path_ids()
    owned = loaded(writer.data)
    assert [line["uuid"] for line in owned] == path
    for line in writer.messages:
        sent(line)
    assert {finding.rule.id for finding in examine(writer.session)} <= {"lone-surrogate"}


@examples(60)
@given(made=conversations())
def test_any_conversation_can_be_appended_to_an_existing_file(
    made: list[tuple[CanonicalEntry, str | None]],
) -> None:
    writer = Writer(META, written(user("first")).data)
    root = writer.messages[0]["uuid"]
    for item, parent in made:
        writer.add(item, root if parent is None else parent)
    decoded = [item for item in plain(writer.decoded()) if item[0] != "custom_message"]
    wanted = [item for item in plain(path_to(made, made[-1][0].id)) if item[0] != "custom_message"]
    assert [item[1] for item in decoded[1:] if item[0] == "message"] == [
        item[1] for item in wanted if item[0] == "message"
    ]
    assert loaded(writer.data)[-1]["uuid"] == writer.ids[made[-1][0].id]
    assert [line["uuid"] for line in loaded(writer.data)] == writer.session.path_ids()
    assert {finding.rule.id for finding in examine(writer.session)} <= {"lone-surrogate", "unanswered-tool-call"}
