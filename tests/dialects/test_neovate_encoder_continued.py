"""Neovate's encoder in an existing file: appended entries, moves, settings and compactions."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from sessiontree.core.entries import ModeChange
from sessiontree.core.messages import message_text
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.contract import AS_CLIENT
from sessiontree.dialects.neovate import NEOVATE
from sessiontree.repair import examine
from sessiontree.session.open import open_store
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.memory import MemoryStore
from tests.builders import examples
from tests.dialects.neovate_sessions import (
    META,
    SESSION,
    TIME,
    Writer,
    answer,
    call,
    continued,
    entry,
    loaded,
    result,
    text,
    user,
    written,
)

EXISTING = written(user("a"), answer("b", text("ok"), call("1"), call("2")), result("r1", "1"), result("r2", "2"))


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


def test_a_compaction_that_keeps_from_a_repeated_message_on_repeats_it_again() -> None:
    items = [
        user("a", "old"),
        user("b", "one"),
        user("c", "two"),
        entry("compaction", "k", summary="s", firstKeptEntryId="b"),
    ]
    writer = continued(written(*items, user("d", "three")))
    two = writer.messages[-2]["uuid"]
    bound = entry("compaction", "l", summary="t", firstKeptEntryId=two)
    writer.chain(bound, user("e", "four"), parent=writer.messages[-1]["uuid"])
    assert [line["content"] for line in loaded(writer.data)] == [[text("t")], "two", "three", "four"]
    assert [item.id for item in writer.decoded()] == ["a", "b", "c", "k", "d", "l", "e"]


def test_a_message_after_a_change_of_model_follows_it_in_the_history() -> None:
    writer = continued(EXISTING)
    last = writer.messages[-1]["uuid"]
    writer.add(entry("model_change", "m", model="p/x"), last)
    writer.add(user("z"), last)
    assert [item.id for item in writer.decoded()] == ["a", "b", "r1", "r2", "m", "z"]
