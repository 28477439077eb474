"""Splitting bytes into lines: every byte is returned once, and lines end at their LF."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.core.lines import BLOCK_SIZE, ReadInto, iter_blocks, iter_lines, line_ends
from tests.builders import examples

lines_of_bytes = st.lists(
    st.sampled_from([b"", b"a", b"{}", b"\r", b"\x00", b"xyz" * 7, "é".encode()]), max_size=30
).map(b"\n".join)
some_bytes = st.binary(max_size=200) | lines_of_bytes


def reader(data: bytes, most: int | None = None) -> ReadInto:
    """Read from some bytes, at most `most` at a time."""

    def readinto(offset: int, buffer: memoryview) -> int:
        part = data[offset : offset + min(len(buffer), most or len(buffer))]
        buffer[: len(part)] = part
        return len(part)

    return readinto


def blocks(data: bytes, block_size: int, start: int = 0, most: int | None = None) -> list[tuple[int, bytes, bool]]:
    found = iter_blocks(reader(data, most), start, block_size)
    return [(block.start, bytes(block.data), block.whole) for block in found]


def test_an_empty_input_has_no_blocks_and_no_lines() -> None:
    assert blocks(b"", 16) == []
    assert line_ends(b"", 0) == []
    assert list(iter_lines(b"")) == []


def test_lines_that_fit_come_in_one_block_with_their_offset() -> None:
    assert blocks(b"ab\ncd\n", 16) == [(0, b"ab\ncd\n", True)]


def test_reading_starts_at_the_given_offset() -> None:
    assert blocks(b"ab\ncd\nef\n", 16, start=3) == [(3, b"cd\nef\n", True)]


def test_a_block_ends_with_its_last_complete_line() -> None:
    assert blocks(b"abc\ndef\nghi\n", 6) == [(0, b"abc\n", True), (4, b"def\n", True), (8, b"ghi\n", True)]


def test_a_torn_tail_is_a_block_of_its_own_and_marked() -> None:
    assert blocks(b"ab\ncd", 16) == [(0, b"ab\n", True), (3, b"cd", False)]


def test_a_torn_line_alone_is_a_block() -> None:
    assert blocks(b"abc", 16) == [(0, b"abc", False)]


def test_a_line_longer_than_a_block_is_not_split() -> None:
    long = b"x" * 1000 + b"\n"
    first, *rest = blocks(b"a\n" + long + b"b\n", 8)
    assert first == (0, b"a\n", True)
    assert rest[0][1].startswith(long)
    assert b"".join(part for _, part, _ in rest) == long + b"b\n"


def test_a_long_torn_line_is_not_split() -> None:
    assert blocks(b"a\n" + b"x" * 1000, 8) == [(0, b"a\n", True), (2, b"x" * 1000, False)]


def test_the_memory_of_a_giant_line_is_released() -> None:
    data = b"x" * 100_000 + b"\n" + b"ab\n" * 100_000
    sizes = [len(block.buffer) for block in iter_blocks(reader(data), block_size=64)]
    assert sizes[0] > 100_000
    assert sizes[-1] <= 4 * 64


def test_blocks_of_one_byte_work() -> None:
    found = blocks(b"ab\n\nc\nd", 1)
    assert b"".join(part for _, part, _ in found) == b"ab\n\nc\nd"
    assert found[-1] == (6, b"d", False)
    assert all(part.endswith(b"\n") for _, part, _ in found[:-1])


def test_short_reads_lose_nothing() -> None:
    data = b"abc\ndefgh\nij"
    assert b"".join(part for _, part, _ in blocks(data, 64, most=1)) == data


def test_the_end_of_a_block_is_the_start_of_the_next() -> None:
    found = list(iter_blocks(reader(b"a\nbb\nccc\n"), block_size=4))
    assert [block.end for block in found][:-1] == [block.start for block in found][1:]


def test_a_carriage_return_belongs_to_its_line() -> None:
    assert list(iter_lines(b"ab\r\ncd\r\n")) == [(0, b"ab\r"), (4, b"cd\r")]
    assert line_ends(b"ab\r\ncd\r\n", 8) == [4, 8]


def test_a_carriage_return_alone_ends_no_line() -> None:
    assert list(iter_lines(b"ab\rcd\n")) == [(0, b"ab\rcd")]


def test_blank_lines_are_lines() -> None:
    assert list(iter_lines(b"\n\na\n")) == [(0, b""), (1, b""), (2, b"a")]


def test_a_rest_without_newline_is_the_last_line() -> None:
    assert list(iter_lines(b"a\nbc")) == [(0, b"a"), (2, b"bc")]
    assert line_ends(b"a\nbc", 4) == [2, 4]


def test_line_ends_stop_at_the_given_size() -> None:
    assert line_ends(b"a\nb\nc\n", 3) == [2, 3]


@pytest.mark.parametrize("size", [BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 2 * BLOCK_SIZE])
def test_a_line_about_as_long_as_a_block_is_not_split(size: int) -> None:
    long = b"x" * (size - 1) + b"\n"
    assert blocks(long + b"end\n", BLOCK_SIZE)[0][1].startswith(long)
    assert b"".join(part for _, part, _ in blocks(long + b"end\n", BLOCK_SIZE)) == long + b"end\n"


@examples(150)
@given(some_bytes, st.integers(1, 40), st.integers(1, 50))
def test_blocks_put_together_are_the_input(data: bytes, block_size: int, most: int) -> None:
    found = blocks(data, block_size, most=most)
    assert b"".join(part for _, part, _ in found) == data
    assert all(part for _, part, _ in found)
    assert [start for start, _, _ in found] == [sum(len(part) for _, part, _ in found[:at]) for at in range(len(found))]


@examples(150)
@given(some_bytes, st.integers(1, 40))
def test_each_block_but_a_torn_last_one_ends_in_a_newline(data: bytes, block_size: int) -> None:
    found = blocks(data, block_size)
    assert all(part.endswith(b"\n") and whole for _, part, whole in found[:-1])
    assert [whole for _, _, whole in found[-1:]] == [data.endswith(b"\n")] * bool(data)


@examples(150)
@given(some_bytes)
def test_lines_are_those_of_split(data: bytes) -> None:
    pieces = data.split(b"\n")
    expected = pieces if pieces[-1] else pieces[:-1]
    assert [line for _, line in iter_lines(data)] == expected
    assert all(data[start : start + len(line)] == line for start, line in iter_lines(data))


@examples(150)
@given(some_bytes, st.integers(1, 40))
def test_lines_are_the_same_whatever_the_block_size(data: bytes, block_size: int) -> None:
    found: list[int] = []
    for block in iter_blocks(reader(data), block_size=block_size):
        found += [block.start + end for end in line_ends(block.buffer, block.size)]
    assert found == line_ends(data, len(data))
