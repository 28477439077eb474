"""Benchmarks of compaction."""

from __future__ import annotations

from pathlib import Path

import sessiontree
from benchmarks.generate import Shape, generated
from benchmarks.results import Result, milliseconds
from benchmarks.timing import best_of
from benchmarks.transcripts import TranscriptShape, transcript
from sessiontree.compaction import compact


def against_opening(rounds: int) -> list[Result]:
    """Compacting 100 MB, including opening it, costs at most twice as much as opening it and building its context.

    A Claude Code context decodes its messages on demand, and a compaction needs all of them: at most four times there.
    """
    return [
        *_results(generated(Shape()), "100 MB", rounds),
        *_results(generated(Shape(compactions=0)), "100 MB never compacted", rounds),
        *_results(transcript(TranscriptShape()), "100 MB of Claude Code's, never compacted", rounds, bound=4.0),
    ]


def _results(path: Path, which: str, rounds: int, bound: float = 2.0) -> list[Result]:
    def open_session() -> int:
        return len(sessiontree.open(path).context().messages)

    def compact_session() -> int:
        return compact(sessiontree.open(path), dry_run=True).tokens_after

    def replace_all() -> int:
        return compact(sessiontree.open(path), strategy="replace", dry_run=True).tokens_after

    best = best_of(rounds, {"open": open_session, "compact": compact_session, "replace": replace_all})
    return [
        Result(
            f"compacting {which} ({what}), against open + context",
            milliseconds(best[name]),
            milliseconds(best["open"]),
            best[name] / best["open"],
            bound=bound,
        )
        for name, what in (("compact", "the newest messages kept"), ("replace", "nothing kept"))
    ]
