"""Measurements of compacting a session."""

from __future__ import annotations

import sessiontree
from benchmarks.generate import Shape, generated
from benchmarks.results import Result, milliseconds
from benchmarks.timing import best_of
from sessiontree.compacting import compact


def against_opening(rounds: int) -> list[Result]:
    """Compacting 100 MB, with opening it, costs less than twice what opening it and building its context costs."""
    path = generated(Shape())

    def open_it() -> int:
        return len(sessiontree.open(path).context().messages)

    def compact_it() -> int:
        return compact(sessiontree.open(path), dry_run=True).tokens_after

    def compact_all_of_it() -> int:
        return compact(sessiontree.open(path), strategy="replace", dry_run=True).tokens_after

    best = best_of(rounds, {"open": open_it, "compact": compact_it, "replace": compact_all_of_it})
    return [
        Result(
            f"compacting 100 MB ({what}), against open + context",
            milliseconds(best[name]),
            milliseconds(best["open"]),
            best[name] / best["open"],
            bound=2.0,
        )
        for name, what in (("compact", "the newest messages kept"), ("replace", "nothing kept"))
    ]
