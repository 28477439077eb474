"""The table of sessions: exact widths, short ages and amounts, shortest unique ids."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcswidth, wcwidth

from sessiontree.library.summary import Summary
from sessiontree.views.listing import age, amount, iso, short_ids
from sessiontree.views.text import columns, cut, fitted, one_line, plain_width
from tests.builders import examples


def named(id: str) -> Summary:
    return Summary(f"/{id}", "pi", id, "t", False, "/x", None, None, 1, 1, True, 1, 1)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "now"), (59, "now"), (180, "3m"), (7200, "2h"), (2 * 86400, "2d"), (40 * 86400, "1mo"), (800 * 86400, "2y")],
)
def test_ages_are_shown_in_the_largest_unit(seconds: int, shown: str) -> None:
    assert age(1_000_000, 1000 + seconds) == shown


def test_a_time_in_the_future_is_shown_as_now_and_a_missing_time_as_empty() -> None:
    assert (age(5_000_000, 1000), age(None, 1000)) == ("now", "")
    assert (iso(None), iso(10**18), iso(0)) == (None, None, "1970-01-01T00:00:00.000Z")


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (950, "950"), (1500, "1.5k"), (12_300, "12k"), (3_400_000, "3.4M"), (2e9, "2.0G")]
)
def test_amounts_take_at_most_four_characters(number: float, shown: str) -> None:
    assert amount(number) == shown


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_widths_computed_without_wcwidth_agree_with_it(step: int) -> None:
    plain = [character for character in map(chr, range(0, sys.maxunicode + 1, step)) if plain_width(character)]
    assert len(plain) > 30_000 // step
    assert [one for one in plain if columns(one) != wcwidth(one)] == []
    pairs = [one + other for one, other in zip(plain, random.Random(1).sample(plain, len(plain)), strict=True)]
    assert [pair for pair in pairs if columns(pair) != wcswidth(pair)] == []


TONES = frozenset("🏻🏼🏽🏾🏿")
"""Skin tones combine with most characters before them, which only wcwidth knows."""


@examples(500)
@given(
    st.lists(st.one_of(st.characters(), st.sampled_from([*"ab 木あ한é\u3000\u0301🙂…✅", "👍🏽", "🏽"])), max_size=40),
    st.integers(1, 30),
)
def test_a_line_is_cut_or_padded_to_the_available_width(text: list[str], room: int) -> None:
    line = one_line("".join(text))
    short, filled = cut(line, room), fitted(line, room)
    assert filled.rstrip(" ") == short.rstrip(" ")
    assert columns(short) <= room
    if columns(line) <= room:
        assert short == line
    else:
        assert short.endswith("…")
        assert line.startswith(short[:-1])
    if all(columns(character) > 0 for character in line) and TONES.isdisjoint(line.replace("👍🏽", "")):
        assert columns(filled) == room
        if short != line and TONES.isdisjoint(line):
            shown = next(at for at in range(len(line), -1, -1) if columns(line[:at]) <= room - 1)
            assert short == line[:shown].rstrip() + "…"


def test_short_ids_are_the_shortest_unique_prefixes() -> None:
    ids = ["aaaaaaaa-1", "aaaaaaaa-2", "bbbbbbbbb", "bbbbbbbbbb", "short", "cccccccccccc"]
    found = short_ids([named(id) for id in ids])
    assert found == {
        "/aaaaaaaa-1": "aaaaaaaa-1",
        "/aaaaaaaa-2": "aaaaaaaa-2",
        "/bbbbbbbbb": "bbbbbbbbb",
        "/bbbbbbbbbb": "bbbbbbbbbb",
        "/short": "short",
        "/cccccccccccc": "cccccccc",
    }
