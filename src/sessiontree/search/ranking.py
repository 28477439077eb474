"""Ranking of sessions.

The index gives a first order: the share of matching chunks, weighed against the length of the file as in BM25. Chunks
that describe the session (titles, labels, summaries, prompts) count several times. The lines of the first candidates
are then read, and their matches decide: kind of text, whole words before parts of names, distance between the words,
number of matching lines. Recent sessions get a small bonus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from sessiontree.search.file_chunks import CHUNK_BITS
from sessiontree.search.index_db import SHIFT, chunk_of, is_descriptive
from sessiontree.search.matcher import Match

_DESCRIPTIVE_WEIGHT = 3.0
# As k1 and b of BM25: more matches add less and less, and matches in a long session count less.
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
_WHOLE_WORD = 0.3


class Candidate(Struct):
    """A session with matching chunks."""

    file: int
    rows: list[int]
    """Row numbers in the index, the latest chunk first."""
    score: float

    def count(self, most: int) -> int:
        """Number of chunks, exact only up to `most`."""
        return len(set(map(chunk_of, self.rows[: 2 * most])))  # a chunk has two rows at most

    def chunks(self) -> list[int]:
        """Chunk numbers: descriptive ones first, then the latest."""
        ordered = [row for row in self.rows if is_descriptive(row)] + [
            row for row in self.rows if not is_descriptive(row)
        ]
        return list(dict.fromkeys(map(chunk_of, ordered)))


def candidates(rows: Iterable[int], sizes: Mapping[int, int], recency: Mapping[int, int]) -> list[Candidate]:
    """Group rows of the index by session, best first. Rows of files that are not in `sizes` are ignored.

    Rows have to be sorted in descending order.
    """
    by_file: dict[int, list[int]] = {}
    for file, group in groupby(rows, SHIFT.__rrshift__):  # a C method as key: there may be 200,000 rows
        if file in sizes:
            by_file[file] = list(group)
    lengths = {file: 1 + (sizes[file] >> CHUNK_BITS) for file in by_file}
    mean = sum(lengths.values()) / max(1, len(lengths))
    found = [_candidate(file, rows, lengths[file] / mean) for file, rows in by_file.items()]
    # Rounded, so that recency decides between sessions that match about equally well.
    return sorted(found, key=lambda candidate: (-round(candidate.score, 3), -recency.get(candidate.file, 0)))


def _candidate(file: int, rows: list[int], length: float) -> Candidate:
    descriptive = sum(map(is_descriptive, rows))
    rest = len(rows) - descriptive
    weight = _DESCRIPTIVE_WEIGHT * descriptive + rest
    score = weight / (weight + _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * length))
    return Candidate(file, rows, score + 0.5 * bool(descriptive))


def line_score(found: Match, wanted: int) -> float:
    """Score of a matching line: its kind, and how often and how close together the words occur."""
    if not wanted:
        return _KIND_WEIGHTS.get(found.text.kind, 0.0)
    share = sum(map(bool, found.counts)) / wanted
    often = sum(count / (count + _SATURATION) for count in found.counts) / wanted
    near = 0.4 if wanted > 1 and _nearest(found.spans, wanted) < _NEAR else 0.0
    whole = _WHOLE_WORD if any(_is_whole(found.content, span) for span in found.spans) else 0.0
    return share * (_KIND_WEIGHTS.get(found.text.kind, 0.0) + often + near + whole)


def _is_whole(text: str, span: tuple[int, int]) -> bool:
    """Whether a match is a word of its own, and not a part of a compound name such as `parse_json`."""
    start, end = span
    return not (_is_in_name(text[start - 1 : start]) or _is_in_name(text[end : end + 1]))


def _is_in_name(character: str) -> bool:
    return character == "_" or character.isalnum()


def _nearest(spans: Sequence[tuple[int, int]], wanted: int) -> int:
    """Length of the shortest part of a text with as many matches as there are search terms."""
    lengths = (last[1] - first[0] for first, last in zip(spans, spans[wanted - 1 :], strict=False))
    return min(lengths, default=_NEAR)
