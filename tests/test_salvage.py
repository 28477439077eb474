"""Salvaging a damaged line: every complete record is found, and the rest is classified as damage."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessiontree.core.salvage import Piece, salvage
from tests.builders import examples

BLANK = b" \t\r\n"


def is_record(fields: dict[str, Any]) -> bool:
    return isinstance(fields.get("type"), str) and isinstance(fields.get("timestamp"), str)


def record(text: str = "hello", **fields: Any) -> bytes:
    return json.dumps({"type": "message", "timestamp": "t", "text": text, **fields}, separators=(",", ":")).encode()


def shape(raw: bytes) -> list[tuple[str, bytes]]:
    """Kinds and bytes of the pieces of a line."""
    return [(piece.kind, raw[piece.start : piece.end]) for piece in salvage(raw, is_record)]


def records(raw: bytes) -> list[Any]:
    return [piece.value for piece in salvage(raw, is_record) if piece.kind == "record"]


ONE, TWO, THREE = record("one"), record("two"), record("three")


def test_a_complete_record_is_one_piece_with_its_fields() -> None:
    assert salvage(ONE, is_record) == [Piece(0, len(ONE), "record", json.loads(ONE))]


@pytest.mark.parametrize("between", [b"", b" ", b"\t", b"  \r "])
def test_two_records_on_one_line_are_two_records(between: bytes) -> None:
    assert shape(ONE + between + TWO) == [("record", ONE), ("record", TWO)]


def test_three_records_on_one_line_are_three_records() -> None:
    assert shape(ONE + TWO + b" " + THREE) == [("record", ONE), ("record", TWO), ("record", THREE)]


def test_whitespace_around_a_record_belongs_to_no_piece() -> None:
    assert shape(b"  " + ONE + b" \r") == [("record", ONE)]


@pytest.mark.parametrize(
    "stub",
    [
        b'{"type":"message","text":"cut in a str',
        b'{"type":"message","text":',
        b'{"type":"message",',
        b'{"type":"message"',
        b'{"type":"message","number":12.',
        b'{"type":"message","number":-',
        b'{"type":"message","text":"a\\',
        b'{"type":"message","text":"a\\u00',
        b'{"type":"message","list":[1,2',
        b'{"type":"message","inner":{"deep":{"er":[{}',
        b'{"type":"message","inner":{',
        b'{"type":"message","inner":{"',
        b'{"type":"message","flag":tru',
        '{"type":"message","text":"é'.encode()[:-1],
        b"{",
        b'{"',
    ],
)
def test_a_stub_glued_to_a_record_hides_neither(stub: bytes) -> None:
    assert shape(stub + ONE) == [("damage", stub), ("record", ONE)]


def test_a_stub_between_records_hides_neither() -> None:
    stub = b'{"type":"message","text":"cut'
    assert shape(ONE + stub + TWO + THREE) == [("record", ONE), ("damage", stub), ("record", TWO), ("record", THREE)]


@pytest.mark.parametrize("garbage", [b"garbage", b"}", b'"', b"\xff\xfe", b'{"type":"mess'])
def test_garbage_after_a_record_is_damage(garbage: bytes) -> None:
    assert shape(ONE + garbage) == [("record", ONE), ("damage", garbage)]


def test_garbage_before_a_record_is_damage() -> None:
    assert shape(b"garbage " + ONE) == [("damage", b"garbage"), ("record", ONE)]


def test_a_truncated_line_is_one_piece_of_damage() -> None:
    assert shape(ONE[:-1]) == [("damage", ONE[:-1])]


def test_objects_inside_a_torn_record_are_not_records() -> None:
    """An entry may carry copies of entries. When it is torn, those are still not lines of this file."""
    torn = b'{"type":"custom","timestamp":"t","data":[' + ONE + b"," + TWO + b',{"type":"mess'
    assert shape(torn) == [("damage", torn)]


def test_objects_inside_a_glued_stub_are_not_records() -> None:
    stub = b'{"type":"custom","timestamp":"t","data":{"copy":' + ONE + b',"more":"cut'
    assert shape(stub + TWO) == [("damage", stub), ("record", TWO)]


def test_a_line_of_nul_bytes_is_one_run() -> None:
    assert shape(b"\x00" * 4096) == [("nul-run", b"\x00" * 4096)]


def test_nul_bytes_before_a_record_are_a_run() -> None:
    assert shape(b"\x00\x00" + ONE) == [("nul-run", b"\x00\x00"), ("record", ONE)]


def test_nul_bytes_after_a_record_are_a_run() -> None:
    assert shape(ONE + b"\x00\x00") == [("record", ONE), ("nul-run", b"\x00\x00")]


def test_nul_bytes_between_records_are_a_run() -> None:
    assert shape(ONE + b"\x00\x00\x00" + TWO) == [("record", ONE), ("nul-run", b"\x00\x00\x00"), ("record", TWO)]


def test_nul_bytes_after_a_stub_are_a_piece_of_their_own() -> None:
    stub = b'{"type":"message","text":"cut'
    assert shape(stub + b"\x00\x00" + ONE) == [("damage", stub), ("nul-run", b"\x00\x00"), ("record", ONE)]


def test_nul_bytes_inside_a_torn_record_stay_inside_the_damage() -> None:
    torn = b'{"type":"mes\x00\x00\x00sage","text":12'
    assert shape(torn) == [("damage", torn)]


def test_a_byte_order_mark_is_a_piece_of_its_own() -> None:
    assert shape(b"\xef\xbb\xbf" + ONE) == [("bom", b"\xef\xbb\xbf"), ("record", ONE)]


def test_a_byte_order_mark_alone_is_not_damage() -> None:
    assert shape(b"\xef\xbb\xbf") == [("bom", b"\xef\xbb\xbf")]


@pytest.mark.parametrize("value", [b"null", b"0", b"123", b"-1.5e3", b'"text"', b"true", b"false", b"[]", b"[{}]"])
def test_a_lone_value_is_neither_record_nor_damage(value: bytes) -> None:
    assert salvage(b" " + value + b" ", is_record) == [Piece(1, 1 + len(value), "value", json.loads(value))]


def test_a_value_with_a_record_after_it_is_damage() -> None:
    assert shape(b"123" + ONE) == [("damage", b"123"), ("record", ONE)]


def test_an_empty_line_has_no_pieces() -> None:
    assert salvage(b"", is_record) == []
    assert salvage(b" \t\r", is_record) == []


def test_bad_utf8_inside_a_record_loses_neither_the_record_nor_the_bytes() -> None:
    raw = b'{"type":"message","timestamp":"t","text":"a\xff\xc3b"}'
    (found,) = records(raw + b"\x00")
    assert found["text"].encode("utf-8", "surrogateescape") == b"a\xff\xc3b"


def test_a_lone_surrogate_inside_a_record_is_kept() -> None:
    assert [found["text"] for found in records(record("\ud83d") + TWO)] == ["\ud83d", "two"]


def test_a_control_character_inside_a_record_is_kept() -> None:
    raw = b'{"type":"message","timestamp":"t","text":"a\tb\x01"}'
    assert [found["text"] for found in records(raw + TWO)] == ["a\tb\x01", "two"]


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "1e400", "12345678901234567890"])
def test_a_huge_number_hides_no_record_and_raises_no_error(number: str) -> None:
    raw = b'{"type":"message","timestamp":"t","number":' + number.encode() + b"}"
    assert json.loads(TWO) in records(raw + TWO)


@pytest.mark.parametrize("raw", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 50_000 + b"}" * 50_000])
def test_deep_nesting_neither_hangs_nor_raises(raw: bytes) -> None:
    began = time.process_time()
    assert shape(raw) == [("damage", raw)]
    assert time.process_time() - began < 5


def test_a_record_after_deep_nesting_is_found() -> None:
    assert records(b"[" * 100_000 + ONE) == [json.loads(ONE)]


def test_nesting_near_the_decoder_limit_raises_no_error() -> None:
    """Two decoders with different limits decode a line; an error of only one of them must not escape."""
    for depth in range(880, 1005):
        raw = b'{"type":"m","timestamp":"\\ud800","data":' + b"[" * depth + b"]" * depth + b"}" + TWO
        assert records(raw)[-1:] == [json.loads(TWO)], depth


@pytest.mark.parametrize("unit", [b'{"a":', b'{"a":[', b'{"', b'{"a', b'{ "a" : "', b'{"a":0,"b":', b'[{"a":"\\'])
def test_a_long_hostile_line_takes_no_more_than_a_few_seconds(unit: bytes) -> None:
    raw = unit * (300_000 // len(unit))
    began = time.process_time()
    assert not records(raw)
    assert time.process_time() - began < 5


def test_a_long_line_of_small_records_is_read_quickly() -> None:
    began = time.process_time()
    assert len(records(ONE * 20_000)) == 20_000
    assert time.process_time() - began < 5


plain_text = st.text(st.characters(codec="utf-8"), max_size=8)
# Keys of inner objects leave out `type`, so that nothing inside a record can pass for a record.
keys = plain_text.filter(lambda key: key != "type")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | plain_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
record_fields = st.builds(
    lambda kind, when, rest: {"type": kind, "timestamp": when, **rest},
    plain_text,
    plain_text,
    st.dictionaries(keys.filter(lambda key: key != "timestamp"), json_values, max_size=3),
)
gaps = st.sampled_from([b"", b" ", b"\x00\x00", b"\t\r"])


@st.composite
def rendered(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    fields = draw(record_fields)
    return fields, json.dumps(fields, ensure_ascii=draw(st.booleans())).encode()


@st.composite
def stubs(draw: st.DrawFn) -> bytes:
    _, raw = draw(rendered())
    return raw[: draw(st.integers(1, len(raw) - 1))]


tokens = st.sampled_from(
    [
        ONE,
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b":",
        b",",
        b"\\",
        b"\x00",
        b" ",
        b"1",
        b"null",
        b'{"a":',
        b"\xff",
        b"\xef\xbb\xbf",
    ]
)


@examples(300)
@given(st.lists(tokens, max_size=12).map(b"".join) | st.binary(max_size=60))
@example(b'\xef\xbb\xbf\x00{"a":1}\x00')
def test_pieces_are_in_order_and_leave_out_only_whitespace(raw: bytes) -> None:
    at = 0
    for piece in salvage(raw, is_record):
        assert at <= piece.start < piece.end
        assert not raw[at : piece.start].strip(BLANK)
        at = piece.end
    assert not raw[at:].strip(BLANK)


@examples(150)
@given(st.lists(st.tuples(rendered(), gaps), min_size=1, max_size=4))
def test_records_put_on_one_line_are_all_found_as_they_were_written(parts: list[Any]) -> None:
    raw = b"".join(gap + text for (_, text), gap in parts)
    assert records(raw) == [fields for (fields, _), _ in parts]


@examples(150)
@given(st.lists(rendered(), max_size=3), stubs(), st.lists(rendered(), min_size=1, max_size=3))
def test_a_stub_at_any_cut_hides_no_record(before: list[Any], stub: bytes, after: list[Any]) -> None:
    raw = b"".join(text for _, text in before) + stub + b"".join(text for _, text in after)
    assert records(raw) == [fields for fields, _ in [*before, *after]]
