"""Benchmarks of HTML export."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.corpus import Corpus, generated
from benchmarks.results import Result, megabytes, milliseconds
from benchmarks.timing import run_python
from benchmarks.transcripts import TranscriptShape, transcript

_EXPORT = """
import gc, sys, time
import sessiontree
from sessiontree.export import export
gc.disable()
for path in sys.argv[1:]:
    session = sessiontree.open(path)
    for piece in export(session, "html", branch="all"):
        pass
    session.close()
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
print(time.process_time(), peak)
"""


def _best(rounds: int, *paths: Path) -> tuple[float, float]:
    """CPU seconds and peak bytes of a new process that exports all branches of some sessions."""
    runs = [tuple(map(float, run_python(_EXPORT, *paths)[0].split())) for _ in range(rounds)]
    return min(seconds for seconds, _ in runs), min(peak for _, peak in runs)


def export_one(rounds: int) -> list[Result]:
    """A page of a Claude Code session of 6 MB takes at most 0.45 s, including the start of Python."""
    seconds, _ = _best(2 * rounds, transcript(TranscriptShape(size=6_000_000)))
    name = "a Claude Code session of 6 MB as a page"
    return [Result(name, milliseconds(seconds), "", seconds * 1000, bound=450, unit="ms")]


def export_corpus(rounds: int) -> list[Result]:
    """Pages of 200 sessions (155 MB) take at most 12 s and 90 MB."""
    folder = generated(Corpus())
    found = (Path(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".jsonl"))
    seconds, peak = _best(max(1, rounds // 2), *sorted(found))
    name = "200 sessions, 155 MB, as pages"
    return [
        Result(name, milliseconds(seconds), "", seconds * 1000, bound=12_000, unit="ms"),
        Result(f"{name}, memory", megabytes(int(peak)), "", peak / 1e6, bound=90, unit="MB"),
    ]
