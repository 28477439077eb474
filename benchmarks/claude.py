"""Benchmarks of open and context for Claude Code transcripts.

Messages of a context are decoded on access. The bounds are for resuming a session: open it, build the context, count
its messages and read the last one. Decoding all of them is a separate row without a bound.
"""

from __future__ import annotations

from pathlib import Path

import sessiontree
from benchmarks import peers
from benchmarks.results import Result, megabytes, milliseconds
from benchmarks.timing import best_of, peak_memory
from benchmarks.transcripts import WITH_BOUNDARY, TranscriptShape, transcript
from sessiontree.core.context import Context

_OPEN = "import sys, sessiontree; context = sessiontree.open(sys.argv[1]).context(); context.messages[-1]"


def open_and_peek(path: Path) -> Context:
    context = sessiontree.open(path).context()
    assert len(context.messages)
    assert context.messages[-1]
    return context


def open_and_decode(path: Path) -> Context:
    context = sessiontree.open(path).context()
    assert len(list(context.messages))
    return context


def against_loader(rounds: int) -> list[Result]:
    """Open + context of a transcript without a boundary costs at most a third of decoding every line."""
    path = transcript(TranscriptShape())
    messages = peers.check_same_transcript(path)
    best = best_of(
        rounds,
        {
            "ours": lambda: open_and_peek(path),
            "all": lambda: open_and_decode(path),
            "theirs": lambda: peers.load_transcript(path),
            "walker": lambda: peers.walk_transcript(path),
        },
    )
    compared = f"{milliseconds(best['theirs'])} for the same {messages:,} messages"
    name = "Claude Code, 100 MB, against a json.loads loader"
    return [
        Result(name, milliseconds(best["ours"]), compared, best["ours"] / best["theirs"], bound=1 / 3),
        Result(
            "Claude Code, 100 MB, against a json.loads loader that only walks the chain",
            milliseconds(best["ours"]),
            f"{milliseconds(best['walker'])}, parallel results lost",
            best["ours"] / best["walker"],
            bound=1 / 3,
        ),
        Result(f"{name}, every message decoded", milliseconds(best["all"]), compared, best["all"] / best["theirs"]),
    ]


def after_boundary(rounds: int) -> list[Result]:
    """Open + context of 300 MB with a boundary near the end: at most twice the time to read it, and 150 MB."""
    path = transcript(WITH_BOUNDARY)
    best = best_of(
        rounds,
        {
            "ours": lambda: open_and_peek(path),
            "all": lambda: open_and_decode(path),
            "whole": lambda: peers.read_whole(path),
            "chunks": lambda: peers.read_in_chunks(path),
        },
    )
    ours = milliseconds(best["ours"])
    name = "Claude Code, 300 MB with a boundary"
    peak = peak_memory(_OPEN, path)
    return [
        Result(
            f"{name}, against reading at once", ours, milliseconds(best["whole"]), best["ours"] / best["whole"], 2.0
        ),
        Result(f"{name}, against reading in chunks", ours, milliseconds(best["chunks"]), best["ours"] / best["chunks"]),
        Result(
            f"{name}, every message decoded, against reading at once",
            milliseconds(best["all"]),
            milliseconds(best["whole"]),
            best["all"] / best["whole"],
        ),
        Result(f"{name}, peak memory", megabytes(peak), "nothing", peak / 1e6, bound=150, unit="MB"),
    ]
