"""Benchmarks of conversion to another dialect."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import sessiontree
from benchmarks import peers
from benchmarks.generate import Shape, generated
from benchmarks.results import Result, megabytes, milliseconds
from benchmarks.timing import best_of, peak_memory
from benchmarks.transcripts import TranscriptShape, transcript

BOUNDS = {"claude": 6.0, "neovate": 3.0, "omp": 3.0, "pi": 3.0}
"""Claude Code takes longest: every line that is written is decoded again to find out what it does not preserve."""

_CONVERT = (
    "import sys, sessiontree; session = sessiontree.open(sys.argv[1]); "
    "[None for line in sessiontree.convert(session, sys.argv[2], branch='all').lines]"
)
_COMPACTED = TranscriptShape(boundary=0.98)


def convert_to_each(rounds: int) -> list[Result]:
    """Converting 100 MB costs at most three times as much as decoding and encoding its lines once.

    To Claude Code it costs at most six times as much.
    """
    path = generated(Shape())

    def convert(target: str) -> int:
        return sum(map(len, sessiontree.convert(sessiontree.open(path), target, branch="all").lines))

    results: list[Result] = []
    for target, bound in BOUNDS.items():
        best = best_of(
            max(1, rounds // 2), {"ours": partial(convert, target), "theirs": lambda: peers.decode_and_encode(path)}
        )
        results.append(
            Result(
                f"converting 100 MB to {target}, against decoding and encoding its lines with json",
                milliseconds(best["ours"]),
                milliseconds(best["theirs"]),
                best["ours"] / best["theirs"],
                bound=bound,
            )
        )
    return [*results, _memory("peak memory of converting 100 MB to claude", path, "claude")]


def convert_compared(rounds: int) -> list[Result]:
    """A compaction of Claude Code: what Pi will send is compared with what Claude Code sends, so all is read again."""
    path = transcript(_COMPACTED)
    best = best_of(
        max(1, rounds // 2),
        {
            "ours": lambda: sum(map(len, sessiontree.convert(sessiontree.open(path), "pi", branch="all").lines)),
            "theirs": lambda: peers.decode_and_encode(path),
        },
    )
    name = "converting 100 MB of Claude Code's with a compaction to pi"
    figures = milliseconds(best["ours"]), milliseconds(best["theirs"])
    return [Result(name, *figures, best["ours"] / best["theirs"], bound=10), _memory(f"{name}, memory", path, "pi")]


def _memory(name: str, path: Path, target: str) -> Result:
    bare, peak = peak_memory(""), peak_memory(_CONVERT, path, target)
    compared = f"{megabytes(bare)} for a bare interpreter"
    return Result(name, megabytes(peak), compared, (peak - bare) / 1e6, bound=150, unit="MB")
