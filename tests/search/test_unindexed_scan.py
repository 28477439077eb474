"""A scan finds lines with a word in any case, with either implementation."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.search.unindexed_scan import Finder, scan_lines
from sessiontree.stores.file import FileStore

_LETTERS = bytes(b"abcdefgh rste"[byte % 13] for byte in range(256))


@pytest.mark.parametrize("needle", [b"quartz", b"ajar", b"parser", b"z", b"\xc3\xa9tage", b"\\u6f6e"])
@pytest.mark.parametrize("rare", [0.0, 0.0005, 0.03])
def test_a_line_is_found_if_and_only_if_it_has_the_word(needle: bytes, rare: float, tmp_path: Path) -> None:
    random = Random(f"{needle!r} {rare}")
    lines: list[bytes] = []
    for length in (0, 40, 300_000, 5, 2_000, 70_000, 600_000, 1, 90) * 2:
        filling = bytearray(random.randbytes(length).translate(_LETTERS))
        for at in random.sample(range(length), round(length * rare)):
            filling[at] = random.choice(b"jqxzJQXZ")
        line = bytes(filling)
        if random.random() < 0.5:
            at = random.randint(0, length)
            line = line[:at] + random.choice((needle, needle.upper(), needle.title())) + line[at:]
        lines.append(line)
    path = tmp_path / "lines"
    for end in (b"", b"\n"):
        raw = b"\n".join(lines) + end
        path.write_bytes(raw)
        found = [line.rstrip(b"\n") for _, line in scan_lines(FileStore(path), 0, Finder([needle]))]
        assert found == [line for line in lines if needle in line.lower()]
        assert all(raw[offset:].startswith(line) for offset, line in scan_lines(FileStore(path), 0, Finder([needle])))
        assert b"".join(line for _, line in scan_lines(FileStore(path), 0, None)) == raw


@given(
    lines=st.lists(st.text("abAB1é", max_size=12), max_size=8),
    needles=st.lists(st.text("ab1é", min_size=1, max_size=7), min_size=1, max_size=9),
)
def test_overlapping_words_hide_no_line(lines: list[str], needles: list[str]) -> None:
    words = [needle.encode() for needle in needles]
    raw = "\n".join(lines).encode()
    found = [raw[first:last].rstrip(b"\n") for first, last in Finder(words).lines(raw, 0, len(raw))]
    assert found == [line for line in raw.split(b"\n") if any(word in line.lower() for word in words)]
