"""Neovate's encoder: compactions."""

from __future__ import annotations

import pytest

from sessiontree.core.messages import message_text
from sessiontree.dialects.neovate import COMPACTION_MARK
from sessiontree.repair import examine
from tests.dialects.neovate_sessions import (
    Writer,
    answer,
    call,
    entry,
    loaded,
    plain,
    result,
    text,
    user,
    written,
)


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
