"""Which sessions come first.

A session counts more the more of its stretches fit, measured against its length, as in BM25; what tells most of it
(titles, labels, summaries, prompts) counts several times. Of those that come first by this the lines are read, and what
was found there decides: the kind of text, whether the words stand together, how many lines fit. Recency breaks ties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from sessiontree.search.file_chunks import STRETCH
from sessiontree.search.index_db import SHIFT, is_telling, stretch_of
from sessiontree.search.matcher import Found

_TELLING_WEIGHT = 3.0
_SATURATION, _LENGTH_SHARE = 1.2, 0.6
_KIND_WEIGHTS = {
    "title": 1.0,
    "label": 0.8,
    "summary": 0.6,
    "prompt": 0.6,
    "answer": 0.35,
    "thinking": 0.15,
    "input": 0.15,
    "output": 0.05,
}
_NEAR = 60


class Candidate(Struct):
    """A session that has stretches that fit."""

    file: int
    rows: list[int]
    """Of the index, the latest stretch first."""
    score: float

    def count(self, most: int) -> int:
        """How many stretches; of many it says only that there are at least as many as are asked for."""
        return len(set(map(stretch_of, self.rows[: 2 * most])))  # each has two rows at most

    def stretches(self) -> list[int]:
        """Those that tell most first, then the latest."""
        ordered = [row for row in self.rows if is_telling(row)] + [row for row in self.rows if not is_telling(row)]
        return list(dict.fromkeys(map(stretch_of, ordered)))


def candidates(rows: Iterable[int], sizes: Mapping[int, int], recency: Mapping[int, int]) -> list[Candidate]:
    """The sessions of some rows of the index, the best first. Rows of files that are not in `sizes` do not count.

    The rows come from the largest number to the smallest.
    """
    by_file: dict[int, list[int]] = {}
    for file, together in groupby(rows, SHIFT.__rrshift__):  # without a step of Python for each of many rows
        if file in sizes:
            by_file[file] = list(together)
    lengths = {file: 1 + (sizes[file] >> STRETCH) for file in by_file}
    mean = sum(lengths.values()) / max(1, len(lengths))
    found = [_candidate(file, rows, lengths[file] / mean) for file, rows in by_file.items()]
    return sorted(found, key=lambda one: (-round(one.score, 3), -recency.get(one.file, 0)))


def _candidate(file: int, rows: list[int], length: float) -> Candidate:
    telling = sum(map(is_telling, rows))
    rest = len(rows) - telling
    weight = _TELLING_WEIGHT * telling + rest
    score = weight / (weight + _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * length))
    return Candidate(file, rows, score + 0.5 * bool(telling))


def worth(found: Found, wanted: int) -> float:
    """How much a line that was read says for its session: its kind, how often and how near each other the words are."""
    if not wanted:
        return _KIND_WEIGHTS.get(found.text.kind, 0.0)
    share = sum(map(bool, found.counts)) / wanted
    often = sum(count / (count + _SATURATION) for count in found.counts) / wanted
    near = 0.4 if wanted > 1 and _nearest(found.spans, wanted) < _NEAR else 0.0
    return share * (_KIND_WEIGHTS.get(found.text.kind, 0.0) + often + near)


def _nearest(spans: Sequence[tuple[int, int]], wanted: int) -> int:
    """The shortest part of a text in which as many words stand as are looked for."""
    lengths = (last[1] - first[0] for first, last in zip(spans, spans[wanted - 1 :], strict=False))
    return min(lengths, default=_NEAR)
