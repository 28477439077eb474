"""The main API objects: `Session` and `Branch`."""

from __future__ import annotations

import base64
import gc
import json
import os
import re
import threading
import weakref
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import sessiontree
from sessiontree.agent.tool_calls import pending_calls
from sessiontree.core.entries import Compaction, MessageEntry, Unknown
from sessiontree.core.jsonio import native_fields
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
    message_text,
)
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.errors import ExistsError, InvalidEntryError, NotFoundError, ReadOnlyError, UsageError
from sessiontree.session.open import open_reader
from sessiontree.stores.file import FileStore
from sessiontree.stores.memory import MemoryStore
from sessiontree.views.session_facts import describe_session
from tests.builders import chain, grow, header, message_line, opened


@pytest.fixture
def session(tmp_path: Path) -> sessiontree.Session:
    return sessiontree.create(cwd="/", path=tmp_path / "s.jsonl", home=tmp_path)


def lines(session: sessiontree.Session) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(session.location).read_bytes().splitlines()]


def texts(context: sessiontree.Context) -> list[str]:
    return [message_text(message) for message in context.messages]


def test_a_session_file_appears_with_the_first_user_message(session: sessiontree.Session) -> None:
    session.append({"type": "model_change", "provider": "p", "modelId": "m"})
    session.append({"type": "thinking_level_change", "thinkingLevel": "high"})
    assert not os.path.exists(session.location)
    assert session.is_pending
    session.append("user", "hello")
    assert not session.is_pending
    assert [line["type"] for line in lines(session)] == ["session", "model_change", "thinking_level_change", "message"]
    assert session.context().state.thinking_level == "high"


def test_until_assistant_keeps_a_session_in_memory_until_it_is_answered(tmp_path: Path) -> None:
    session = sessiontree.create(cwd="/", path=tmp_path / "s.jsonl", until_assistant=True)
    session.append("user", "hello")
    assert not os.path.exists(session.location)
    assert texts(session.context()) == ["hello"]
    session.append("assistant", [{"type": "text", "text": "hi"}])
    assert len(sessiontree.open(session.location)) == 2


def test_a_session_in_memory_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "home"))
    session = sessiontree.create(cwd="/", in_memory=True)
    session.append("user", "x" * 600_000)
    session.append("assistant", [{"type": "image", "data": base64.b64encode(os.urandom(3000)).decode()}])
    assert len(session.fork()) == 2
    assert len(session.context().messages) == 2
    assert not (tmp_path / "home").exists()


def test_the_header_has_id_time_and_folder(session: sessiontree.Session) -> None:
    session.append("user", "hello")
    header = lines(session)[0]
    assert list(header)[:5] == ["type", "version", "id", "timestamp", "cwd"]
    assert header["version"] == 3
    assert header["cwd"] == "/"
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", header["id"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", header["timestamp"])


def test_append_accepts_an_entry_in_several_forms(session: sessiontree.Session) -> None:
    session.append("user", "one")
    session.append(role="user", content="two")
    session.append({"role": "user", "content": "three"})
    session.append({"type": "message", "message": {"role": "user", "content": "four"}})
    assert texts(session.context()) == ["one", "two", "three", "four"]


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"type": ""},
        {"type": "session", "id": "x"},
        {"type": 3},
        {"role": ""},
        {"type": "message"},
        {"content": "x"},
    ],
)
def test_an_invalid_entry_is_refused_and_nothing_is_written(
    session: sessiontree.Session, entry: dict[str, Any]
) -> None:
    session.append("user", "first")
    before = Path(session.location).read_bytes()
    with pytest.raises(InvalidEntryError):
        session.append(entry)
    assert Path(session.location).read_bytes() == before


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"type": "label", "label": "x"}, "a label needs a `targetId`: the id of the entry to label"),
        ({"type": "label", "targetId": 5}, "a label needs a `targetId`: the id of the entry to label, found 5"),
        ({"type": "leaf", "targetId": ["a"]}, "a leaf needs a `targetId`: the id of an entry, or null"),
        ({"type": "leaf", "target": "a"}, "a leaf needs a `targetId`"),
        ({"type": "compaction", "firstKeptEntryId": "a"}, "a compaction needs a `summary`"),
        ({"type": "context_edit", "replacement": None}, "a context_edit needs a `targetId`"),
        ({"role": "toolResult", "content": "x"}, "a toolResult needs a `toolCallId`: the id of the call"),
        ({"role": "toolResult", "toolCallId": None, "content": "x"}, "needs a `toolCallId`"),
        ({"type": "message", "message": {"role": "toolResult", "content": []}}, "needs a `toolCallId`"),
        ({"role": "assistant", "content": [{"type": "toolCall", "name": "ls"}]}, "a toolCall needs an `id`"),
        ({"role": "assistant", "content": [{"type": "toolCall", "id": "c"}]}, "a toolCall needs a `name`"),
        (
            {"type": "message", "message": {"role": "assistant", "content": [{"type": "toolCall", "id": 1}]}},
            "a toolCall needs an `id`: the id that its result refers to, found 1",
        ),
    ],
)
def test_an_entry_without_what_its_readers_rely_on_is_refused(
    session: sessiontree.Session, entry: dict[str, Any], message: str
) -> None:
    session.append("user", "first")
    before = Path(session.location).read_bytes()
    with pytest.raises(InvalidEntryError, match=re.escape(message)):
        session.append(entry)
    with pytest.raises(InvalidEntryError, match=re.escape(message)):
        session.append_entry(entry, id="given")
    assert Path(session.location).read_bytes() == before


def test_a_result_in_python_needs_the_id_of_its_call(session: sessiontree.Session) -> None:
    session.append("user", "first")
    with pytest.raises(InvalidEntryError, match="a toolResult needs a `toolCallId`"):
        session.append("toolResult", "done")
    with pytest.raises(InvalidEntryError, match="a toolResult needs a `toolCallId`"):
        session.append(ToolResult(content="done"))
    session.append("toolResult", "done", toolCallId="c")


def test_messages_and_blocks_are_written_with_every_field_that_other_programs_read(
    session: sessiontree.Session,
) -> None:
    session.append(User(content=(Text(), Image(data="aGk="))))
    session.append(Assistant(content=(Thinking(), ToolCall(id="c", name="list"))))
    session.append(ToolResult(tool_call_id="c"))
    session.append(BashExecution(command="true"))
    user, answer, result, command = (line["message"] for line in lines(session)[1:])
    assert user["content"] == [
        {"type": "text", "text": ""},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    ]
    assert answer["content"] == [
        {"type": "thinking", "thinking": ""},
        {"type": "toolCall", "id": "c", "name": "list", "arguments": {}},
    ]
    assert (result["toolName"], result["content"], result["isError"]) == ("", [], False)
    assert (command["output"], command["cancelled"], command["truncated"]) == ("", False, False)


def test_blocks_from_json_get_the_fields_that_other_programs_send_without_checking(
    session: sessiontree.Session,
) -> None:
    image, call = {"type": "image", "data": "aGk="}, {"type": "toolCall", "id": "c", "name": "list"}
    session.append("user", [image])
    session.append("assistant", [call])
    user, answer = (line["message"] for line in lines(session)[1:])
    assert user["content"] == [{**image, "mimeType": "image/png"}]
    assert answer["content"] == [{**call, "arguments": {}}]
    with sessiontree.open(session.location) as opened_again:
        assert opened_again.context().messages == session.context().messages


@pytest.mark.parametrize("dialect", ["native", "claude"])
def test_values_and_tuples_anywhere_in_an_entry_are_written_like_json(tmp_path: Path, dialect: str) -> None:
    message = Assistant(
        content=(Text("yes"), ToolCall("c", "ls")),
        usage=Usage(1, 2, total_tokens=3),
        stop_reason="toolUse",
        timestamp=5,
    )
    block, json = Text("note"), {"type": "text", "text": "note"}
    fields = native_fields(message)
    entries: list[tuple[Any, Any]] = [
        ({**fields, "usage": message.usage}, fields),
        ({"type": "message", "message": message}, fields),
        ({"type": "message", "message": {**fields, "content": message.content}}, fields),
        ({"type": "message", "message": {**fields, "content": list(message.content)}}, fields),
        ({"type": "message", "message": {**fields, "content": tuple(fields["content"])}}, fields),
        ({"type": "message", "message": {**fields, "usage": message.usage}}, fields),
        ({"type": "message", "message": MappingProxyType(fields)}, fields),
        ({"type": "custom_message", "content": (block,)}, {"type": "custom_message", "content": [json]}),
        ({"role": "user", "content": [MappingProxyType(json)]}, {"role": "user", "content": [json]}),
    ]
    for typed, plain in entries:
        written = []
        for number, entry in enumerate((typed, plain)):
            path = tmp_path / f"{number}.jsonl"
            if dialect == "native":
                session = sessiontree.create(tmp_path, path=path, home=tmp_path, appear="now")
            else:
                path.write_bytes((Path(__file__).parent / "corpus/claude/01_plain.jsonl").read_bytes())
                session = sessiontree.open(path)
            with session:
                size = path.stat().st_size
                session.append(entry)
                text = path.read_text()[size:]
            path.unlink()
            written.append(re.sub(r'"(id|uuid|parentUuid|requestId|promptId|timestamp)":("[^"]*"|[0-9]+)', "", text))
        assert written[0] == written[1], typed


def test_lines_of_a_client_are_appended_as_they_are(session: sessiontree.Session) -> None:
    session.append("user", "first")
    result = b'{"type":"message","id":"a0000001","parentId":null,"timestamp":"","message":{"role":"toolResult"}}'
    assert session.append_lines([result]) == ["a0000001"]
    assert session.append_all([CanonicalEntry("label", {"label": "x"}, "a0000002")])


def test_unknown_types_and_fields_are_preserved(session: sessiontree.Session) -> None:
    entry = session.append({"type": "from_the_future", "deep": {"a": [1, None, "ü"]}, "n": 12345678901234567890})
    session.append({"role": "user", "content": "hi", "extra": {"kept": True}})
    again = sessiontree.open(session.location)
    found = again.entry(entry.id)
    assert isinstance(found, Unknown)
    assert found.fields["deep"] == {"a": [1, None, "ü"]}
    assert lines(again.fork(store=FileStore(session.location + ".fork.jsonl")))[1] == lines(session)[1]
    assert lines(session)[2]["message"]["extra"] == {"kept": True}


def test_a_branch_is_a_position_that_moves_as_it_is_written(session: sessiontree.Session) -> None:
    root = session.append("user", "root")
    session.append("user", "main")
    side = session.branch(at=root.id)
    side.append("user", "side 1")
    side.append("user", "side 2")
    assert texts(side.context()) == ["root", "side 1", "side 2"]
    assert texts(session.context()) == ["root", "main"]
    assert session.children(root.id) == [session.path_ids()[1], side.path()[1].id]
    from_nothing = session.branch(at=None)
    from_nothing.append("user", "another beginning")
    assert len(session.roots()) == 2
    assert texts(from_nothing.context()) == ["another beginning"]


def test_an_append_follows_the_files_current_entry_also_after_lines_of_others(session: sessiontree.Session) -> None:
    def message(text: str) -> CanonicalEntry:
        return CanonicalEntry("message", {"message": {"role": "user", "content": text, "timestamp": 0}})

    first = session.append("user", "one").id
    other = sessiontree.open(session.location)
    second = other.append("user", "two").id
    session.append_following([message("three")])
    third = session.leaf
    assert third is not None
    assert session.parent(third) == second
    other.move(second)
    session.append_following([message("four"), message("five")])
    assert texts(session.context()) == ["one", "two", "four", "five"]
    chosen: list[int] = []

    def choose() -> str:
        chosen.append(len(session.ids))
        return first

    other.refresh()
    other.append("assistant", "meanwhile")
    session.append_following([message("six")], choose)
    assert texts(session.context()) == ["one", "six"]
    assert len(chosen) == 2, "not asked again after another writer was faster"
    assert [entry.id for entry in sessiontree.open(session.location)] == session.ids


def test_a_branch_that_has_written_nothing_writes_nothing(session: sessiontree.Session) -> None:
    session.append("user", "root")
    before = Path(session.location).read_bytes()
    session.branch()
    assert Path(session.location).read_bytes() == before
    with pytest.raises(NotFoundError):
        session.branch(at="nowhere0")


def test_the_current_entry_is_in_the_file(session: sessiontree.Session) -> None:
    first = session.append("user", "first")
    session.append("user", "second")
    session.move(first.id)
    assert sessiontree.open(session.location).leaf == first.id
    moved = lines(session)[-1]
    assert (moved["type"], moved["parentId"], moved["targetId"]) == ("leaf", first.id, first.id)
    third = session.append("user", "third")
    assert session.parent(third.id) == first.id
    session.reset()
    again = sessiontree.open(session.location)
    assert again.leaf is None
    assert again.context().messages == ()
    assert again.append("user", "from nothing").parent_id is None


def test_a_reader_that_uses_the_last_line_as_the_leaf_finds_the_current_entry(session: sessiontree.Session) -> None:
    first = session.append("user", "first")
    session.append("user", "second")
    session.move(first.id)
    session.label(first.id, "here")
    session.rename("a name")
    as_pi = sessiontree.open(session.location, dialect="pi")
    assert texts(as_pi.context()) == ["first"]
    assert as_pi.name == "a name"


def test_bookkeeping_never_moves_the_leaf(session: sessiontree.Session) -> None:
    entry = session.append("user", "hello")
    session.label(entry.id, "x")
    session.rename("name")
    session.set_config(approval_mode="yolo")
    session.append({"type": "usage", "kind": "cache_warm", "usage": {"input": 1}})
    session.append({"type": "custom", "customType": "session_exit", "data": {}})
    assert session.leaf == entry.id
    assert sessiontree.open(session.location).leaf == entry.id


def test_labels_are_set_changed_and_cleared(session: sessiontree.Session) -> None:
    one = session.append("user", "one")
    two = session.append("user", "two")
    session.label(one.id, "a")
    session.label(two.id, "b")
    session.label(one.id, "标签")
    assert session.labels == {two.id: "b", one.id: "标签"}
    session.label(two.id, None)
    assert sessiontree.open(session.location).labels == {one.id: "标签"}
    with pytest.raises(NotFoundError):
        session.label("nowhere0", "x")


def test_a_name_is_one_line_and_can_be_removed(session: sessiontree.Session) -> None:
    session.append("user", "x")
    session.rename("two\r\n lines ")
    assert sessiontree.open(session.location).name == "two lines"
    session.rename(None)
    assert sessiontree.open(session.location).name is None


def test_a_name_that_listings_would_not_find_is_refused(session: sessiontree.Session) -> None:
    session.append("user", "hello")
    session.rename("x" * 1_000)
    with pytest.raises(UsageError, match="1,001 characters; at most 1,000"):
        session.rename("x" * 1_001)
    assert session.name == "x" * 1_000


def test_settings_have_defaults_and_are_checked(session: sessiontree.Session) -> None:
    session.append("user", "x")
    assert session.config.approval_mode == "default"
    session.set_config(approval_mode="autoEdit", approval_tools=("bash",))
    session.set_config(pasted_text_map={"#1": "text"})
    config = sessiontree.open(session.location).config
    assert (config.approval_mode, config.approval_tools, config.pasted_text_map) == (
        "autoEdit",
        ("bash",),
        {"#1": "text"},
    )
    with pytest.raises(InvalidEntryError):
        session.set_config(approval_mode="always")
    with pytest.raises(InvalidEntryError):
        session.set_config(no_such_setting=1)


def test_usage_is_added_up_over_all_branches(session: sessiontree.Session) -> None:
    usage = {"input": 10, "output": 5, "cacheRead": 3, "cacheWrite": 2, "cost": {"total": 0.25}}
    root = session.append("user", "x")
    session.append(role="assistant", content=[], usage=usage)
    session.branch(at=root.id).append(role="assistant", content=[], usage=usage)
    session.append({"type": "compaction", "summary": "s", "usage": usage})
    session.append({"type": "usage", "kind": "cache_warm", "usage": usage})
    totals = sessiontree.open(session.location).usage()
    assert (totals.requests, totals.input, totals.output, totals.cached) == (4, 40, 20, 12)
    assert (totals.cache_written, totals.cost) == (8, 1.0)


def test_messages_to_an_entry_are_as_recorded(session: sessiontree.Session) -> None:
    one = session.append("user", "one")
    two = session.append("user", "two")
    session.append({"type": "compaction", "summary": "S", "firstKeptEntryId": two.id, "tokensBefore": 9})
    last = session.append("user", "three")
    session.append({"type": "context_edit", "targetId": one.id, "replacement": None})
    assert [message_text(message) for message in session.messages_to(last.id)] == ["one", "two", "S", "three"]
    assert texts(session.context()) == ["S", "two", "three"]


def test_info_and_chat_agree_on_the_calls_that_wait_for_a_result(session: sessiontree.Session) -> None:
    def pending() -> list[str]:
        with sessiontree.open(session.location) as reopened:
            shown = [call["id"] for call in describe_session(reopened)["pendingToolCalls"]]
            assert shown == [waiting.call.id for waiting in pending_calls(reopened)]
        return shown

    session.append("user", "count both")
    calls = [{"type": "toolCall", "id": id, "name": "count", "arguments": {}} for id in ("one", "two")]
    answer = session.append("assistant", calls).id
    assert pending() == ["one", "two"]
    session.append("toolResult", [{"type": "text", "text": "1"}], toolCallId="one", toolName="count")
    session.move(answer)
    assert pending() == ["two"]  # the result on the other branch is copied
    session.append("user", "never mind")
    assert pending() == []


def test_a_fork_copies_the_path_byte_for_byte_and_records_its_origin(session: sessiontree.Session) -> None:
    ids = [session.append("user", f"message {number} ü").id for number in range(4)]
    bound = session.append({"type": "compaction", "summary": "S", "firstKeptEntryId": ids[2], "tokensBefore": 1}).id
    last = session.append("user", "after").id
    session.branch(at=ids[1]).append("user", "not on the path")
    session.label(ids[0], "first")
    session.label(ids[3], "gone")
    session.label(ids[3], None)
    session.label(session.branch(at=ids[1]).append("user", "elsewhere").id, "elsewhere")
    forked = session.fork()
    assert forked.id != session.id
    assert forked.header.forked_from is not None
    assert (forked.header.forked_from.session, forked.header.forked_from.entry) == (session.id, last)
    assert forked.path_ids() == [*ids, bound, last]
    for id in forked.path_ids():
        assert forked.raw(id) == session.raw(id)
    assert forked.labels == {ids[0]: "first"}
    assert texts(forked.context()) == texts(session.context()) == ["S", "message 2 ü", "message 3 ü", "after"]
    assert forked.problems == []
    assert texts(sessiontree.open(forked.location, dialect="pi").context()) == texts(session.context())


def test_a_label_set_from_another_branch_is_copied_too(session: sessiontree.Session) -> None:
    root = session.append("user", "root")
    kept = session.append("user", "kept")
    session.move(root.id)
    session.append("user", "side")
    session.label(kept.id, "set from the side")
    forked = session.fork(kept.id)
    assert forked.labels == {kept.id: "set from the side"}
    assert forked.leaf == kept.id
    assert forked.problems == []


def test_a_fork_may_have_an_id_of_the_callers_choice(session: sessiontree.Session) -> None:
    session.append("user", "hello")
    fork = session.fork(id="chosen.id")
    assert fork.id == "chosen.id"
    assert sessiontree.open(fork.ref).path_ids() == session.path_ids()
    with pytest.raises(sessiontree.UsageError, match="not a valid session id"):
        session.fork(id="../outside")


def test_a_fork_never_overwrites(session: sessiontree.Session, tmp_path: Path) -> None:
    session.append("user", "x")
    taken = tmp_path / "taken.jsonl"
    taken.write_text("mine")
    with pytest.raises(ExistsError):
        session.fork(store=FileStore(taken))
    assert taken.read_text() == "mine"


def test_large_content_goes_to_blobs_and_comes_back(session: sessiontree.Session, tmp_path: Path) -> None:
    picture = base64.b64encode(os.urandom(5000)).decode()
    text = "长" * 500_001
    entry = session.append(
        "user", [{"type": "image", "data": picture, "mimeType": "image/png"}, {"type": "text", "text": text}]
    )
    assert isinstance(entry, MessageEntry)
    assert message_text(entry.message) == text
    assert os.path.getsize(session.location) < 2000
    assert len(list((tmp_path / "blobs").glob("??/*"))) == 2
    (message,) = sessiontree.open(session.location, home=tmp_path).context().messages
    assert message_text(message) == text
    assert not isinstance(message.content, str)  # type: ignore[union-attr]
    assert message.content[0] == Image(data=picture, mime_type="image/png")  # type: ignore[union-attr]


def test_a_missing_blob_is_a_listed_problem_and_never_an_exception(
    session: sessiontree.Session, tmp_path: Path
) -> None:
    session.append("user", "y" * 600_000)
    for blob in (tmp_path / "blobs").glob("??/*"):
        blob.unlink()
    again = sessiontree.open(session.location, home=tmp_path)
    (message,) = again.context().messages
    assert message_text(message).startswith("blob:sha256:")
    assert [problem.kind for problem in again.problems] == ["missing-blob"]
    assert again.problems[0].line == 2


def test_a_damaged_blob_is_a_listed_problem_and_storing_it_again_repairs_it(
    session: sessiontree.Session, tmp_path: Path
) -> None:
    session.append("user", "z" * 600_000)
    (blob,) = (tmp_path / "blobs").glob("??/*")
    blob.write_bytes(b"something else")
    again = sessiontree.open(session.location, home=tmp_path)
    again.context()
    assert [problem.kind for problem in again.problems] == ["damaged-blob"]
    again.append("user", "z" * 600_000)
    mended = sessiontree.open(session.location, home=tmp_path)
    assert texts(mended.context()) == ["z" * 600_000] * 2
    assert mended.problems == []


def test_large_content_can_be_truncated_with_a_notice_instead(tmp_path: Path) -> None:
    session = sessiontree.create(cwd="/", path=tmp_path / "s.jsonl", home=tmp_path, large_content="truncate")
    session.append("user", "a" * 700_000)
    (text,) = texts(sessiontree.open(session.location).context())
    assert len(text) == 500_000
    assert "left out" in text[-100:]
    assert not (tmp_path / "blobs").exists()


def test_a_reader_reads_like_a_session_and_has_no_method_that_writes(session: sessiontree.Session) -> None:
    session.append("user", "one")
    session.append("assistant", [{"type": "text", "text": "two"}])
    reader = open_reader(session.location)
    assert (reader.id, reader.ref, reader.leaf) == (session.id, session.ref, session.leaf)
    assert texts(reader.context()) == texts(session.context())
    assert not {"append", "append_lines", "move", "label", "rename", "fork", "migrate"} & set(dir(reader))


def test_a_newer_version_opens_for_reading_only(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"type":"session","version":4,"id":"x","timestamp":"t","cwd":"/","sessiontree":1}\n')
    session = sessiontree.open(path)
    assert [problem.kind for problem in session.problems] == ["newer-version"]
    with pytest.raises(ReadOnlyError, match="version 4"):
        session.append("user", "x")
    with pytest.raises(ReadOnlyError):
        session.migrate()


V1 = (
    '{"type":"session","id":"old","timestamp":"2025-01-01T00:00:00.000Z","cwd":"/","provider":"p"}\n'
    '{"type":"message","timestamp":"2025-01-01T00:00:01.000Z","message":{"role":"user","content":"q1"},"extra":1}\n'
    "this is no JSON\n"
    '{"type":"message","timestamp":"2025-01-01T00:00:02.000Z","message":{"role":"hookMessage","customType":"h","content":"hook"}}\n'
    '{"type":"compaction","timestamp":"2025-01-01T00:00:03.000Z","summary":"S","firstKeptEntryIndex":2,"tokensBefore":9}\n'
    '{"type":"message","timestamp":"2025-01-01T00:00:04.000Z","message":{"role":"user","content":"q2"}}\n'
)


def test_the_first_write_to_an_old_file_migrates_it_with_a_backup_and_one_notice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(V1)
    session = sessiontree.open(path)
    ids, leaf, before = session.ids, session.leaf, texts(session.context())
    branch = session.branch(ids[0])
    with pytest.raises(NotFoundError):
        session.append_entry({"type": "custom", "customType": "x"}, parent="nothing")
    session.refresh()
    assert path.read_text() == V1  # neither reading nor a write that fails migrates it
    written = session.append("user", "more")
    assert written.parent_id == leaf
    assert branch.append("user", "another way").parent_id == ids[0]
    session.label(ids[0], "first")
    (backup,) = tmp_path.glob("*.bak")
    assert backup.read_text() == V1
    again = sessiontree.open(path)
    assert (again.header.version, again.ids[: len(ids)]) == (3, ids)
    assert texts(again.branch(written.id).context()) == [*before, "more"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: upgraded from version 1 to 3; the old file is {backup}"
    ]


def test_an_old_file_is_read_without_changes_and_migrated_on_request(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(V1)
    session = sessiontree.open(path)
    expected = texts(session.context())
    assert expected == ["S", "hook", "q2"]
    assert path.read_text() == V1
    ids = session.ids
    backup = session.migrate()
    assert backup is not None
    assert Path(backup).read_text() == V1
    assert "this is no JSON\n" in path.read_text()
    again = sessiontree.open(path)
    assert (again.ids, again.header.version, texts(again.context())) == (ids, 3, expected)
    assert again.header.id == "old"
    assert lines_of_readable(path)[0]["provider"] == "p"
    assert lines_of_readable(path)[1]["extra"] == 1
    compaction = again.entry(ids[2])
    assert isinstance(compaction, Compaction)
    assert compaction.first_kept_entry_id == ids[1]
    assert session.append("user", "now it works").parent_id == ids[-1]
    assert again.migrate() is None


def lines_of_readable(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def test_the_fork_of_an_old_file_is_of_the_current_version(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(V1)
    session = sessiontree.open(path, home=tmp_path)
    forked = session.fork()
    assert forked.header.version == 3
    assert forked.ids == session.ids
    assert texts(forked.context()) == texts(session.context())
    forked.append("user", "goes on")
    assert path.read_text() == V1


def test_lone_surrogates_and_unusual_characters_survive_a_round_trip(session: sessiontree.Session) -> None:
    text = "half \ud83d emoji, \x00 \x1b[31m \u2028 \u202e 한국어 \U0001f600"
    session.append("user", text)
    again = sessiontree.open(session.location)
    assert texts(again.context()) == [text]
    assert {problem.kind for problem in again.problems} == {"lone-surrogate"}
    assert len(Path(session.location).read_bytes().splitlines()) == 2


def test_context_and_writing_work_together_from_many_threads(session: sessiontree.Session) -> None:
    session.append("user", "start")
    finished: list[int] = []

    def read() -> None:
        for _ in range(50):
            session.context()
            list(session)
        finished.append(1)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(200):
        session.append("user", str(number))
    for thread in threads:
        thread.join()
    assert len(finished) == 3
    assert len(session.context().messages) == 201


def test_an_unused_session_is_freed_at_once(tmp_path: Path) -> None:
    """A reference cycle would keep sessions in memory until the garbage collector runs, and a scan opens thousands."""
    with sessiontree.create(tmp_path, path=tmp_path / "s.jsonl") as session:
        session.append("user", "hello")
    gc.disable()
    try:
        opened = sessiontree.open(tmp_path / "s.jsonl")
        assert opened.leaf is not None
        assert len(opened.entries(opened.ids)) == 1
        gone = weakref.ref(opened), weakref.ref(opened.journal)
        del opened
        assert [reference() for reference in gone] == [None, None]
    finally:
        gc.enable()


class _CountedStore(MemoryStore):
    """A store that counts reads: in a database, each is a round trip."""

    reads = 0

    def readinto(self, offset: int, buffer: memoryview) -> int:
        self.reads += 1
        return super().readinto(offset, buffer)


def test_lines_that_were_just_written_are_not_read_back() -> None:
    store = _CountedStore(header() + b"".join(chain(2)))
    session = opened(store)
    assert len(session) == 2
    before = store.reads
    entries = [CanonicalEntry("message", {"message": {"role": "user", "content": f"{at}"}}) for at in range(3)]
    session.append_all(entries)
    session.append_lines([message_line("x1", session.leaf), message_line("x2", "x1")])
    assert store.reads == before
    again = opened(store)
    assert (session.ids, session.problems) == (again.ids, again.problems)
    assert [session.raw(id) for id in session.ids] == [again.raw(id) for id in again.ids]


def test_new_lines_of_others_are_read_without_looking_for_the_end_of_the_file() -> None:
    store = _CountedStore(header() + b"".join(chain(2)))
    session = opened(store)
    assert len(session) == 2
    grow(store, b"".join(chain(3, first=2)))
    before = store.reads
    assert session.refresh() == ["m2", "m3", "m4"]
    assert store.reads == before + 1
