"""The journal: damage of any kind is skipped, and reported with line, byte range and kind."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.core.entries import Compaction, Entry, MessageEntry, Unknown
from sessiontree.core.lines import BLOCK_SIZE
from sessiontree.core.messages import CustomText, message_text
from sessiontree.errors import NotASessionError, ReadOnlyError, ReplacedError
from sessiontree.session.session import Session
from tests.builders import HEADER, TIME, chain, entry, examples, grow, header, json_line, message_line, opened, places
from tests.stores import new_store

pytestmark = pytest.mark.usefixtures("store_kind")

BOM = b"\xef\xbb\xbf"
FIRST, SECOND, THIRD = chain(3)
Damage = tuple[int, int, int, str]


def damaged(*before: bytes, line: bytes, after: bytes = b"") -> tuple[Session, int, int]:
    """A session with a damaged line between others: the session, and the start and end of that line."""
    start = sum(map(len, before))
    return opened(b"".join(before) + line + after), start, start + len(line.removesuffix(b"\n"))


def texts(session: Session) -> list[str]:
    return [message_text(message) for message in session.context().messages]


def test_a_valid_session_has_no_problems() -> None:
    session = opened(header() + FIRST + SECOND + THIRD)
    assert session.ids == ["m0", "m1", "m2"]
    assert session.problems == []
    assert session.id == HEADER["id"]


# Lines that hold no entry


@pytest.mark.parametrize("blank", [b"\n", b"  \t\n", b"\r\n"])
def test_a_blank_line_is_skipped(blank: bytes) -> None:
    session, start, end = damaged(header(), FIRST, line=blank, after=SECOND)
    assert session.ids == ["m0", "m1"]
    assert places(session.problems) == [(3, start, end, "blank-line")]
    assert session.fragments == []


@pytest.mark.parametrize("scalar", [b"null", b"0", b"123", b'"text"', b"true", b"[]", b"[1,2]"])
def test_a_line_that_is_not_an_object_is_kept_as_a_fragment(scalar: bytes) -> None:
    session, start, end = damaged(header(), FIRST, line=scalar + b"\n", after=SECOND)
    assert session.ids == ["m0", "m1"]
    assert session.leaf == "m1"
    assert places(session.problems) == [(3, start, end, "not-an-object")]
    assert [fragment.raw for fragment in session.fragments] == [scalar]


@pytest.mark.parametrize(
    "fields", [{}, {"a": 1}, {"type": 5, "id": "x"}, {"type": ""}, {"id": "x"}, {"type": "text", "text": "t"}]
)
def test_an_object_that_is_not_an_entry_is_kept(fields: dict[str, Any]) -> None:
    session, start, end = damaged(header(), FIRST, line=json_line(fields), after=SECOND)
    assert session.ids == ["m0", "m1"]
    assert places(session.problems) == [(3, start, end, "not-an-entry")]
    assert [fragment.raw for fragment in session.fragments] == [json_line(fields)[:-1]]


@pytest.mark.parametrize("garbage", [b"garbage", b'{"type":"message"', b"}{", b"\xff\xfe\xfd"])
def test_a_line_that_cannot_be_decoded_is_kept(garbage: bytes) -> None:
    session, start, end = damaged(header(), FIRST, line=garbage + b"\n", after=SECOND)
    assert session.ids == ["m0", "m1"]
    assert places(session.problems) == [(3, start, end, "undecodable")]
    assert [fragment.raw for fragment in session.fragments] == [garbage]


def test_a_line_of_nul_bytes_is_skipped() -> None:
    session, start, end = damaged(header(), FIRST, line=b"\x00" * 512 + b"\n", after=SECOND)
    assert session.ids == ["m0", "m1"]
    assert places(session.problems) == [(3, start, end, "nul-run")]


@pytest.mark.parametrize(("before", "after"), [(7, 0), (0, 7), (3, 4)])
def test_nul_bytes_around_an_entry_are_reported_and_the_entry_is_read(before: int, after: int) -> None:
    body = SECOND[:-1]
    session, start, end = damaged(header(), FIRST, line=b"\x00" * before + body + b"\x00" * after + b"\n", after=THIRD)
    runs = [(3, start, start + before, "nul-run")] * bool(before) + [(3, end - after, end, "nul-run")] * bool(after)
    assert session.ids == ["m0", "m1", "m2"]
    assert places(session.problems) == runs
    assert session.raw("m1") == body


# Several records on one line


@pytest.mark.parametrize("between", [b"", b" "])
def test_two_records_on_one_line_are_both_read(between: bytes) -> None:
    session, start, end = damaged(header(), FIRST, line=SECOND[:-1] + between + THIRD)
    assert session.ids == ["m0", "m1", "m2"]
    assert places(session.problems) == [(3, start, end, "fused-records")]
    assert (session.raw("m1"), session.raw("m2")) == (SECOND[:-1], THIRD[:-1])
    assert texts(session) == ["hello"] * 3


def test_header_and_entry_on_one_line_are_both_read() -> None:
    data = header()[:-1] + FIRST + SECOND
    session = opened(data)
    assert session.id == HEADER["id"]
    assert session.ids == ["m0", "m1"]
    assert places(session.problems) == [(1, 0, len(header()) + len(FIRST) - 2, "fused-records")]


def test_a_stub_glued_to_a_record_is_kept_and_the_record_is_read() -> None:
    stub = FIRST[:40]
    session, start, end = damaged(header(), FIRST, line=stub + SECOND, after=THIRD)
    assert session.ids == ["m0", "m1", "m2"]
    assert places(session.problems) == [(3, start, start + 40, "glued-stub")]
    assert [(fragment.raw, fragment.kind) for fragment in session.fragments] == [(stub, "glued-stub")]
    assert session.raw("m1") == SECOND[:-1]
    assert end == start + 40 + len(SECOND) - 1


def test_garbage_after_a_record_is_kept_and_the_record_is_read() -> None:
    session, _, end = damaged(header(), FIRST, line=SECOND[:-1] + b"garbage\n", after=THIRD)
    assert session.ids == ["m0", "m1", "m2"]
    assert places(session.problems) == [(3, end - 7, end, "undecodable")]


def test_a_fused_line_and_a_blank_line_in_one_block_are_both_reported() -> None:
    """There are as many objects as lines, but not one on each."""
    fused = SECOND[:-1] + THIRD
    data = header() + FIRST + fused + b"\n" + message_line("m3", "m2")
    at = len(header()) + len(FIRST)
    session = opened(data)
    assert session.ids == ["m0", "m1", "m2", "m3"]
    assert places(session.problems) == [
        (3, at, at + len(fused) - 1, "fused-records"),
        (4, at + len(fused), at + len(fused), "blank-line"),
    ]


def test_objects_inside_a_torn_record_do_not_become_entries() -> None:
    torn = (
        b'{"type":"custom","id":"m2","parentId":"m1","timestamp":"t","data":{"copies":['
        + FIRST[:-1]
        + b","
        + SECOND[:30]
    )
    session, start, end = damaged(header(), FIRST, SECOND, line=torn)
    assert session.ids == ["m0", "m1"]
    assert places(session.problems) == [(4, start, end, "torn-tail")]


# Encodings


def test_a_byte_order_mark_is_skipped() -> None:
    session = opened(BOM + header() + FIRST)
    assert session.id == HEADER["id"]
    assert session.ids == ["m0"]
    assert places(session.problems) == [(1, 0, 3, "bom")]


def test_windows_line_ends_are_reported_once() -> None:
    data = (header() + FIRST + SECOND).replace(b"\n", b"\r\n")
    session = opened(data)
    assert session.ids == ["m0", "m1"]
    assert places(session.problems) == [(1, 0, len(header()), "crlf")]
    assert texts(session) == ["hello", "hello"]


def test_windows_line_ends_at_the_start_of_a_block_are_reported_with_the_same_range() -> None:
    """The LF is not part of the range, even where a block is decoded in one call."""
    before = header() + b"".join(chain(25, "x" * 4000))
    odd = message_line("odd", "m24", "y" * 60_000).replace(b"\n", b"\r\n")
    assert len(before) < BLOCK_SIZE < len(before) + len(odd)  # so that the odd line starts the second block
    session = opened(before + odd)
    assert session.ids[-1] == "odd"
    assert places(session.problems) == [(27, len(before), len(before) + len(odd) - 1, "crlf")]


def test_bad_utf8_inside_an_entry_is_reported_and_the_entry_is_read() -> None:
    bad = SECOND.replace(b"hello", b"he\xff\xc3llo")
    session, start, end = damaged(header(), FIRST, line=bad, after=THIRD)
    assert session.ids == ["m0", "m1", "m2"]
    assert places(session.problems) == [(3, start, end, "bad-utf8")]
    assert texts(session)[1].encode("utf-8", "surrogateescape") == b"he\xff\xc3llo"
    assert session.raw("m1") == bad[:-1]


def test_a_lone_surrogate_is_reported_and_kept() -> None:
    odd = SECOND.replace(b"hello", b"\\ud83d!")
    session, start, end = damaged(header(), FIRST, line=odd, after=THIRD)
    assert places(session.problems) == [(3, start, end, "lone-surrogate")]
    assert texts(session) == ["hello", "\ud83d!", "hello"]


@pytest.mark.parametrize("value", [b"NaN", b"1e400", b'"a\tb"', b"-Infinity"])
def test_json_that_is_not_strict_is_reported_and_read(value: bytes) -> None:
    odd = entry("custom", "x", "m0", customType="c", data="HERE").replace(b'"HERE"', value)
    session, start, end = damaged(header(), FIRST, line=odd, after=message_line("m1", "x"))
    assert session.ids == ["m0", "x", "m1"]
    assert places(session.problems) == [(3, start, end, "odd-json")]


@pytest.mark.parametrize("in_first_block", [True, False])
def test_a_number_of_thousands_of_digits_raises_no_error(in_first_block: bool) -> None:
    lines = chain(4 if in_first_block else 60, "x" * 4000)
    odd = entry("custom", "x", "m0", data="HERE").replace(b'"HERE"', b"9" * 5000)
    session = opened(header() + b"".join(lines) + odd + message_line("last", "m0"))
    assert session.ids[-2:] == ["x", "last"]
    assert session.entry("last").parent_id == "m0"
    assert session.entry("x").id == "x"


def test_nesting_of_any_depth_raises_no_error() -> None:
    for depth in [*range(880, 1005, 5), *range(980, 992), 100_000]:
        for text in (b"", b"\\ud800"):
            deep = entry("custom", "x", "m0", text="TEXT", data="HERE")
            deep = deep.replace(b'"HERE"', b"[" * depth + b"]" * depth).replace(b"TEXT", text)
            session = opened(header() + FIRST + deep + message_line("m1", "m0"))
            assert [id for id in session.ids if id != "x"] == ["m0", "m1"], depth
            assert len(list(session)) == len(session.ids)
            assert len(session.ids) + len(session.fragments) == 3, depth


# Headers


def test_a_second_header_is_kept_and_the_first_counts() -> None:
    second = header(id="other")
    session, start, end = damaged(header(), FIRST, line=second, after=SECOND)
    assert session.id == HEADER["id"]
    assert session.ids == ["m0", "m1"]
    assert places(session.problems) == [(3, start, end, "second-header")]
    assert [fragment.raw for fragment in session.fragments] == [second[:-1]]


def test_a_session_without_header_is_read_but_not_written() -> None:
    session = opened(FIRST + SECOND)
    assert session.ids == ["m0", "m1"]
    assert texts(session) == ["hello", "hello"]
    assert places(session.problems) == [(1, 0, 0, "no-header")]
    assert "header" in str(session.read_only)
    with pytest.raises(ReadOnlyError):
        session.append("user", "more")


@pytest.mark.parametrize("data", [b"", header()[:40], FIRST])
def test_nothing_is_written_to_a_session_without_header(data: bytes) -> None:
    """A client that requires a header would never open the file again."""
    store = new_store(data)
    session = opened(store)
    with pytest.raises(ReadOnlyError, match="header"):
        session.append("user", "more")
    assert store.size() == len(data)


def test_a_header_that_comes_later_counts() -> None:
    session, start, end = damaged(FIRST, line=header(), after=SECOND)
    assert session.id == HEADER["id"]
    assert session.ids == ["m0", "m1"]
    assert places(session.problems) == [(2, start, end, "late-header")]


def test_garbage_before_the_header_hides_nothing() -> None:
    session = opened(b"garbage\n\n" + header() + FIRST)
    assert session.id == HEADER["id"]
    assert session.ids == ["m0"]
    assert places(session.problems) == [(1, 0, 7, "undecodable"), (2, 8, 8, "blank-line")]


@pytest.mark.parametrize(
    "data", [b"hello world\n", b"# title\n\ntext\n", b'{"a":1}\n', b"\x7fELF\x00\x00\n", b"[]\n", b"\x00" * 100]
)
def test_a_file_that_is_not_a_session_is_refused(data: bytes) -> None:
    with pytest.raises(NotASessionError, match="line 1 byte 0"):
        opened(data)


def test_an_empty_file_is_read_as_a_session_whose_creation_was_interrupted() -> None:
    session = opened(b"")
    assert (session.ids, session.leaf, texts(session)) == ([], None, [])
    assert places(session.problems) == [(1, 0, 0, "no-header")]


def test_a_newer_version_is_read_but_not_written() -> None:
    session = opened(header(version=4) + FIRST)
    assert texts(session) == ["hello"]
    assert places(session.problems) == [(1, 0, len(header()) - 1, "newer-version")]
    assert "version 4" in str(session.read_only)
    with pytest.raises(ReadOnlyError, match="version 4"):
        session.append("user", "more")


def test_unknown_fields_of_a_header_are_kept() -> None:
    session = opened(header(shiny={"new": 1}, parentSession="/old.jsonl") + FIRST)
    assert session.problems == []
    assert session.header.parent_session == "/old.jsonl"
    assert session.header.cwd == "/tmp"


# Old versions

V1: list[dict[str, Any]] = [
    {"type": "session", "id": "old", "timestamp": TIME, "cwd": "/tmp", "provider": "p"},
    {"type": "message", "timestamp": TIME, "message": {"role": "user", "content": "q1"}},
    {"type": "message", "timestamp": TIME, "message": {"role": "hookMessage", "customType": "h", "content": "hook"}},
    {"type": "message", "timestamp": TIME, "message": {"role": "user", "content": "q1"}},
    {"type": "compaction", "timestamp": TIME, "summary": "S", "firstKeptEntryIndex": 2, "tokensBefore": 9},
    {"type": "message", "timestamp": TIME, "message": {"role": "user", "content": "q2"}},
]


def v1(index: object = 2) -> bytes:
    return b"".join(
        json_line({**fields, "firstKeptEntryIndex": index} if fields["type"] == "compaction" else fields)
        for fields in V1
    )


def test_version_1_is_read_as_one_path_with_generated_ids() -> None:
    session = opened(v1())
    assert len(session.ids) == len(set(session.ids)) == 5
    assert all(len(id) == 8 and int(id, 16) >= 0 for id in session.ids)
    assert session.path_ids() == session.ids
    assert [entry.id for entry in session] == session.ids
    assert [entry.parent_id for entry in session] == [None, *session.ids[:-1]]
    assert places(session.problems) == [(1, 0, len(json_line(V1[0])) - 1, "old-version")]


def test_version_1_gives_the_same_ids_each_time_and_for_each_prefix() -> None:
    ids = opened(v1()).ids
    assert opened(v1()).ids == ids
    assert opened(v1()[: -len(json_line(V1[-1]))]).ids == ids[:-1]


def test_equal_lines_of_version_1_get_different_ids() -> None:
    session = opened(v1())
    assert session.raw(session.ids[0]) == session.raw(session.ids[2])


def test_two_sessions_of_version_1_with_the_same_lines_get_different_ids() -> None:
    other = json_line({**V1[0], "id": "other"}) + v1().split(b"\n", 1)[1]
    assert not set(opened(other).ids) & set(opened(v1()).ids)


def test_the_old_role_name_is_read_as_custom() -> None:
    session = opened(v1())
    assert session.context().messages[1] == CustomText(None, "h", "hook")
    second = opened(header(version=2) + entry("message", "1", None, message=V1[2]["message"]))
    assert second.context().messages == (CustomText(None, "h", "hook"),)
    assert places(second.problems) == [(1, 0, len(header()) - 1, "old-version")]


def test_the_kept_range_of_version_1_is_named_by_number() -> None:
    session = opened(v1(2))
    assert texts(session) == ["S", "hook", "q1", "q2"]
    compaction = session.entry(session.ids[3])
    assert isinstance(compaction, Compaction)
    assert compaction.first_kept_entry_id == session.ids[1]


@pytest.mark.parametrize("index", [0, 4, 5, 6, 99, -1, None, "2", 1.5])
def test_a_number_that_is_not_before_the_compaction_keeps_nothing(index: object) -> None:
    assert texts(opened(v1(index))) == ["S", "q2"]


def test_version_1_is_migrated_by_the_first_write() -> None:
    session = opened(v1())
    assert (session.read_only, session.header.version) == (None, 1)
    before = texts(session)
    session.append("user", "more")
    assert (session.header.version, texts(session)) == (3, [*before, "more"])


# Entries


def test_an_entry_without_id_gets_one_and_follows_the_entry_before() -> None:
    line = json_line({"type": "message", "timestamp": TIME, "message": {"role": "user", "content": "lost"}})
    session, start, end = damaged(header(), FIRST, line=line, after=message_line("m1", "m0"))
    made = session.ids[1]
    assert session.parent(made) == "m0"
    assert session.entry(made).id == made
    assert session.entry(made).parent_id == "m0"
    assert places(session.problems) == [(3, start, end, "no-id")]
    assert opened(header() + FIRST + line).ids[1] == made


def test_an_entry_without_id_keeps_the_parent_it_names() -> None:
    line = json_line({"type": "message", "timestamp": TIME, "parentId": "m0", "message": {"role": "user"}})
    session = opened(header() + FIRST + SECOND + line)
    assert session.parent(session.ids[2]) == "m0"
    assert session.entry(session.ids[2]).parent_id == "m0"


@pytest.mark.parametrize("id", [5, None, "", ["x"]])
def test_an_id_that_is_not_a_string_is_ignored(id: object) -> None:
    line = json_line({"type": "message", "id": id, "parentId": "m0", "timestamp": TIME, "message": {"role": "user"}})
    session, start, end = damaged(header(), FIRST, line=line)
    assert len(session.ids) == 2
    assert places(session.problems) == [(3, start, end, "no-id")]


def test_an_empty_parent_is_a_root_and_reported() -> None:
    line = message_line("x", "")
    session, start, end = damaged(header(), FIRST, line=line)
    assert session.roots() == ["m0", "x"]
    assert places(session.problems) == [(3, start, end, "empty-parent")]


@pytest.mark.parametrize("parent", [5, ["m0"], {"id": "m0"}, True])
def test_a_parent_that_is_not_a_string_is_a_root_and_reported(parent: Any) -> None:
    session, start, end = damaged(header(), FIRST, line=message_line("x", parent))
    assert session.roots() == ["m0", "x"]
    assert [place[:3] for place in places(session.problems)] == [(3, start, end)]


@pytest.mark.parametrize(
    ("parent", "kind"),
    [("lost", "missing-parent"), ("x", "self-parent"), ("later", "forward-reference"), ("y", "cycle")],
)
def test_problems_of_the_tree_are_reported_at_their_line(parent: str, kind: str) -> None:
    after = message_line("y", "x") + message_line("later")
    session, start, end = damaged(header(), FIRST, line=message_line("x", parent), after=after)
    assert session.ids == ["m0", "x", "y", "later"]
    assert places(session.problems) == [(3, start, end, kind)]
    assert f"({parent!r})" in session.problems[0].action


def test_a_duplicate_id_is_reported_at_the_earlier_line() -> None:
    session, start, end = damaged(
        header(), line=message_line("m0", None, "first"), after=message_line("m0", None, "second") + SECOND
    )
    assert places(session.problems) == [(2, start, end, "duplicate-id")]
    assert texts(session) == ["second", "hello"]
    assert [message_text(each.message) for each in session if isinstance(each, MessageEntry)] == [
        "first",
        "second",
        "hello",
    ]


def test_problems_are_in_file_order_and_each_names_its_action() -> None:
    session = opened(
        BOM
        + header()
        + message_line("a", "lost")
        + b"\n"
        + b"junk\n"
        + message_line("b", "b")
        + b"5\n"
        + message_line("c")[:30]
    )
    assert [problem.kind for problem in session.problems] == [
        "bom",
        "missing-parent",
        "blank-line",
        "undecodable",
        "self-parent",
        "not-an-object",
        "torn-tail",
    ]
    assert [problem.line for problem in session.problems] == [1, 2, 3, 4, 5, 6, 7]
    assert all(problem.action for problem in session.problems)


def test_an_unknown_type_is_a_link_in_the_path() -> None:
    session = opened(header() + FIRST + entry("hologram", "h", "m0", data=1) + message_line("m1", "h"))
    assert session.problems == []
    assert session.path_ids() == ["m0", "h", "m1"]
    assert texts(session) == ["hello", "hello"]
    assert isinstance(session.entry("h"), Unknown)


# The end of the file


def test_a_torn_last_line_is_reported_not_dropped() -> None:
    torn = THIRD[:50]
    session, start, end = damaged(header(), FIRST, SECOND, line=torn)
    assert session.ids == ["m0", "m1"]
    assert places(session.problems) == [(4, start, end, "torn-tail")]
    assert [fragment.raw for fragment in session.fragments] == [torn]


def test_a_last_line_without_newline_is_read_and_reported() -> None:
    session, start, end = damaged(header(), FIRST, line=SECOND[:-1])
    assert session.ids == ["m0", "m1"]
    assert places(session.problems) == [(3, start, end, "no-final-newline")]


@pytest.mark.parametrize("tail", [SECOND[:-1] + THIRD[:-1], b"\x00\x00" + SECOND[:-1]], ids=["fused", "after-nuls"])
def test_a_missing_newline_is_reported_even_if_the_last_line_was_salvaged(tail: bytes) -> None:
    session, start, end = damaged(header(), FIRST, line=tail)
    assert (3, start, end, "no-final-newline") in places(session.problems)


# Far into a file

LONG = chain(200, "x" * 2000)
AT = 150
BEFORE = header() + b"".join(LONG[:AT])
BEHIND = b"".join(LONG[AT:])
FUSED = message_line("p", "m149")[:-1] + message_line("q", "p")


@pytest.mark.parametrize(
    ("line", "kind", "ids"),
    [
        (b"\n", "blank-line", []),
        (b"null\n", "not-an-object", []),
        (b"garbage\n", "undecodable", []),
        (b"\x00" * 100 + b"\n", "nul-run", []),
        (FUSED, "fused-records", ["p", "q"]),
        (header(id="other"), "second-header", []),
        (message_line("p").replace(b"hello", b"\xff"), "bad-utf8", ["p"]),
        (message_line("p").replace(b"hello", b"\\ud800"), "lone-surrogate", ["p"]),
        (message_line("p", ""), "empty-parent", ["p"]),
        (message_line("p", "lost"), "missing-parent", ["p"]),
        (message_line("p", "p"), "self-parent", ["p"]),
        (message_line("p").replace(b"\n", b"\r\n"), "crlf", ["p"]),
    ],
)
def test_damage_far_after_the_first_block_is_reported_with_its_position(line: bytes, kind: str, ids: list[str]) -> None:
    assert len(BEFORE) > 2 * BLOCK_SIZE
    session = opened(BEFORE + line + BEHIND)
    assert places(session.problems) == [(AT + 2, len(BEFORE), len(BEFORE) + len(line) - 1, kind)]
    assert session.ids == [*(f"m{at}" for at in range(AT)), *ids, *(f"m{at}" for at in range(AT, 200))]
    assert session.raw("m199") == LONG[199][:-1]
    assert session.path_ids() == [f"m{at}" for at in range(200)]


def test_a_fused_line_and_a_blank_line_in_one_block_far_into_the_file() -> None:
    session = opened(BEFORE + FUSED + b"\n" + BEHIND)
    assert places(session.problems) == [
        (AT + 2, len(BEFORE), len(BEFORE) + len(FUSED) - 1, "fused-records"),
        (AT + 3, len(BEFORE) + len(FUSED), len(BEFORE) + len(FUSED), "blank-line"),
    ]
    assert session.raw("q") == message_line("q", "p")[:-1]
    assert len(session.ids) == 202


def test_a_line_longer_than_a_block_is_an_entry_like_any_other() -> None:
    giant = message_line("g", "m0", "x" * (3 * BLOCK_SIZE))
    session = opened(header() + FIRST + giant + message_line("m1", "g"))
    assert session.problems == []
    assert session.path_ids() == ["m0", "g", "m1"]
    assert session.raw("g") == giant[:-1]


def test_raw_bytes_come_in_the_requested_order() -> None:
    session = opened(BEFORE + BEHIND)
    wanted = ["m199", "m0", "m100", "m101", "m3"]
    assert [each.id for each in session.entries(wanted)] == wanted


ODD_LINES = [
    b"\n",
    b"null\n",
    b"junk\n",
    b"\x00\x00\n",
    b'{"a":1}\n',
    message_line("x", "m1")[:-1] + message_line("y", "x"),
    message_line("x", "m1")[:20] + message_line("z", "m2"),
    header(id="again"),
    message_line("m1", "m0", "again"),
    message_line("w", "later"),
    message_line("later", "w"),
    message_line("v").replace(b"\n", b"\r\n"),
    message_line("u").replace(b"hello", b"\xff"),
    json_line({"type": "message", "timestamp": TIME}),
    message_line("m2", "m1"),
    message_line("m3", "m2"),
]


@examples(150)
@given(st.lists(st.sampled_from(ODD_LINES), max_size=8), st.integers(1, 700), st.integers(0, 3))
def test_entries_do_not_depend_on_where_the_blocks_end(lines: list[bytes], padding: int, torn: int) -> None:
    """The same lines at the start of a file and after the first block give the same entries and problems."""
    data = b"".join(lines)
    data = data[: len(data) - torn]
    near = opened(header() + FIRST + SECOND + data)
    fillers = b"".join(entry("custom", f"f{at}", None, data="x" * 2000) for at in range(70))
    filler = fillers + entry("custom", "filler", None, data="x" * padding)
    far = opened(header() + filler + FIRST + SECOND + data)
    assert far.ids[71:] == near.ids or any(b'"id"' not in line for line in lines)
    assert len(far.ids) == 71 + len(near.ids)
    assert [
        (line - 71, start - len(filler), end - len(filler), kind) for line, start, end, kind in places(far.problems)
    ] == places(near.problems)
    assert [fragment.raw for fragment in far.fragments] == [fragment.raw for fragment in near.fragments]


@examples(150)
@given(st.lists(st.sampled_from(ODD_LINES), max_size=8), st.lists(st.integers(0, 2000), max_size=4))
def test_a_file_read_while_it_grows_equals_the_file_read_at_once(lines: list[bytes], cuts: list[int]) -> None:
    data = header() + FIRST + SECOND + b"".join(lines)
    ends = [*sorted({max(len(header()), min(cut, len(data))) for cut in cuts}), len(data)]
    store = new_store(data[: ends[0]])
    session = opened(store)
    for start, end in itertools.pairwise(ends):
        grow(store, data[start:end])
        session.refresh()
    whole = opened(data)
    assert session.ids == whole.ids
    assert [session.parent(id) for id in session.ids] == [whole.parent(id) for id in whole.ids]
    assert session.fragments == whole.fragments
    assert session.problems == whole.problems


@examples(100)
@given(st.lists(st.sampled_from(ODD_LINES), max_size=8), st.data())
def test_every_byte_of_a_file_is_accounted_for(lines: list[bytes], data: st.DataObject) -> None:
    """Every byte is part of the header, an entry, or a problem; the rest is line ends."""
    content = header() + FIRST + b"".join(lines)
    content = content[: data.draw(st.integers(len(header()), len(content)))]
    session = opened(content)
    left = bytearray(content)
    spans = [(0, len(header()) - 1), *((problem.start, problem.end) for problem in session.problems)]
    for start, end in spans:
        left[start:end] = b" " * (end - start)
    for id in session.ids:
        raw = session.raw(id)
        at = left.find(raw)
        if at >= 0:
            left[at : at + len(raw)] = b" " * len(raw)
    assert not left.strip(b" \r\n")


# Other writers


def record_entries(session: Session) -> list[Entry]:
    found: list[Entry] = []
    session.on_entry(found.append)
    return found


def test_refresh_returns_entries_of_another_writer() -> None:
    store = new_store(header() + FIRST)
    session = opened(store)
    entries = record_entries(session)
    assert session.refresh() == []
    grow(store, SECOND + THIRD)
    assert session.ids == ["m0"]
    assert session.refresh() == ["m1", "m2"]
    assert session.ids == ["m0", "m1", "m2"]
    assert [each.id for each in entries] == ["m1", "m2"]
    assert session.refresh() == []
    assert session.raw("m2") == THIRD[:-1]


def test_refresh_does_not_move_our_current_entry() -> None:
    store = new_store(header() + FIRST)
    session = opened(store)
    grow(store, SECOND)
    session.refresh()
    assert session.leaf == "m0"


def test_refresh_continues_counting_lines_and_bytes() -> None:
    store = new_store(header() + FIRST)
    session = opened(store)
    grow(store, SECOND + b"junk\n")
    session.refresh()
    at = len(header() + FIRST + SECOND)
    assert places(session.problems) == [(4, at, at + 4, "undecodable")]


def test_a_torn_tail_that_is_completed_later_is_read() -> None:
    store = new_store(header() + FIRST + SECOND[:50])
    session = opened(store)
    assert [problem.kind for problem in session.problems] == ["torn-tail"]
    grow(store, SECOND[50:] + THIRD)
    session.refresh()
    assert session.ids == ["m0", "m1", "m2"]
    assert session.problems == []
    assert session.fragments == []
    assert session.raw("m1") == SECOND[:-1]


def test_of_a_completed_tail_only_the_new_entries_are_reported() -> None:
    store = new_store(header() + FIRST + SECOND[:50])
    session = opened(store)
    entries = record_entries(session)
    grow(store, SECOND[50:] + THIRD)
    assert session.refresh() == ["m1", "m2"]
    assert [each.id for each in entries] == ["m1", "m2"]


def test_a_missing_newline_that_comes_later_is_no_longer_a_problem() -> None:
    store = new_store(header() + FIRST + SECOND[:-1])
    session = opened(store)
    entries = record_entries(session)
    assert [problem.kind for problem in session.problems] == ["no-final-newline"]
    grow(store, b"\n" + THIRD)
    assert session.refresh() == ["m2"]
    assert session.problems == []
    assert [each.id for each in entries] == ["m2"]


def test_a_torn_tail_that_another_writer_terminates_stays_a_fragment() -> None:
    store = new_store(header() + FIRST + SECOND[:50])
    session = opened(store)
    grow(store, b"\n" + message_line("n", "m0"))
    assert session.refresh() == ["n"]
    at = len(header() + FIRST)
    assert places(session.problems) == [(3, at, at + 50, "undecodable")]


def test_our_own_write_after_a_torn_tail_is_not_reported_as_foreign() -> None:
    store = new_store(header() + FIRST + SECOND[:50])
    session = opened(store)
    entries = record_entries(session)
    mine = session.append("user", "mine")
    assert session.refresh() == []
    assert entries == []
    assert opened(store).ids == ["m0", mine.id]


def test_entries_of_others_before_our_own_write_are_reported_by_the_next_refresh() -> None:
    store = new_store(header() + FIRST)
    session = opened(store)
    grow(store, SECOND)
    session.append("user", "mine")
    assert session.refresh() == ["m1"]


def test_a_file_that_shrank_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(header() + FIRST + SECOND)
    session = sessiontree.open(path, home=tmp_path)
    os.truncate(path, len(header()))
    with pytest.raises(ReplacedError, match=r"truncated from \d+ to \d+ bytes"):
        session.refresh()


def test_refresh_reads_what_another_process_appended_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(header() + FIRST)
    session = sessiontree.open(path, home=tmp_path)
    with path.open("ab") as file:
        file.write(SECOND[:20])
    assert session.refresh() == []
    with path.open("ab") as file:
        file.write(SECOND[20:])
    session.refresh()
    assert session.ids == ["m0", "m1"]
    assert json.loads(session.raw("m1"))["id"] == "m1"
    session.close()
