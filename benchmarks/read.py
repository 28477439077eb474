"""Benchmarks of open and context."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import sessiontree
from benchmarks import peers
from benchmarks.generate import LARGE, Shape, generated, scratch_folder
from benchmarks.results import Result, megabytes, milliseconds
from benchmarks.timing import best_of, empty_cache, peak_memory, run_python
from sessiontree.core.context import Context
from sessiontree.core.layout import lay_out

_OPEN = "import sys, sessiontree; session = sessiontree.open(sys.argv[1]); context = session.context()"
_OPEN_TIMED = (
    f"import time, sessiontree.session.open; start = time.process_time(); {_OPEN}; print(time.process_time() - start)"
)


def open_and_build(path: Path) -> Context:
    return sessiontree.open(path).context()


def open_again(rounds: int) -> list[Result]:
    """Opening an unchanged session again takes at most 40 ms; one that has grown costs its tail in addition."""
    path = generated(Shape())
    with tempfile.NamedTemporaryFile(suffix=".jsonl", dir=scratch_folder()) as grown, empty_cache():
        shutil.copyfile(path, grown.name)
        for known in (path, Path(grown.name)):
            sessiontree.open(known).close()
        with sessiontree.open(grown.name) as session:
            for number in range(100):
                session.append("user", f"more {number}")
        best = best_of(
            rounds,
            {"same": lambda: sessiontree.open(path), "grown": lambda: sessiontree.open(grown.name)},
            keeps_cache=True,
        )
    return [
        Result("open 100 MB again, unchanged", milliseconds(best["same"]), "", 1e3 * best["same"], 40, "ms"),
        Result("open 100 MB again, 100 entries more", milliseconds(best["grown"]), "", 1e3 * best["grown"], 45, "ms"),
    ]


def against_loader(rounds: int) -> Result:
    """Open + context costs at most a fifth of decoding every line and building the same context."""
    path = generated(Shape())
    messages = peers.check_same_context(path)
    best = best_of(rounds, {"ours": lambda: open_and_build(path), "theirs": lambda: peers.load_context(path)})
    return Result(
        "open + context, against a json.loads loader",
        milliseconds(best["ours"]),
        f"{milliseconds(best['theirs'])} for the same {messages:,} messages",
        best["ours"] / best["theirs"],
        bound=0.20,
    )


def layout(rounds: int) -> Result:
    """The tree of 50,000 entries is laid out in at most 0.2 s, without reading a body."""
    session = sessiontree.open(generated(Shape(size=50_000_000, entries=50_000, branches=1_000)))
    best = best_of(rounds, {"ours": lambda: lay_out(session.dialect.layout_columns(session.journal))})
    lanes = len(lay_out(session.dialect.layout_columns(session.journal)).first)
    return Result(
        "the layout of a tree",
        milliseconds(best["ours"]),
        f"{len(session):,} entries, {lanes:,} lanes",
        1e3 * best["ours"],
        bound=200,
        unit="ms",
    )


def against_newlines(rounds: int) -> Result:
    """Open + context costs at most three times as much as reading the file and counting newlines."""
    return _against_counting("read at once", peers.count_newlines_whole, rounds, bound=3.0)


def against_chunked_newlines(rounds: int) -> Result:
    """The same against a counter whose chunks stay in the CPU cache, which is faster."""
    return _against_counting("read in chunks", peers.count_newlines_in_chunks, rounds, bound=3.0)


def _against_counting(how: str, count: Callable[[Path], int], rounds: int, bound: float) -> Result:
    path = generated(Shape())
    best = best_of(3 * rounds, {"ours": lambda: open_and_build(path), "theirs": lambda: count(path)})
    return Result(
        f"open + context, against counting newlines, {how}",
        milliseconds(best["ours"]),
        milliseconds(best["theirs"]),
        best["ours"] / best["theirs"],
        bound=bound,
    )


def memory(rounds: int) -> Result:  # noqa: ARG001 - memory is not noisy
    """Open + context of 100 MB needs at most 90 MB more than an idle interpreter."""
    bare = peak_memory("")
    peak = peak_memory(_OPEN, generated(Shape()))
    return Result(
        "peak memory of open + context",
        megabytes(peak),
        f"{megabytes(bare)} for a bare interpreter",
        (peak - bare) / 1e6,
        bound=90,
        unit="MB",
    )


def large_memory(rounds: int) -> Result:  # noqa: ARG001 - memory is not noisy
    """Opening a session of 1 GB takes at most 250 MB, including the interpreter."""
    path = generated(LARGE)
    peak = peak_memory(_OPEN, path)
    took = float(run_python(_OPEN_TIMED, path)[0])
    return Result(
        "peak memory of open + context, 1 GB",
        megabytes(peak),
        f"opened in {took:.2f} s",
        peak / 1e6,
        bound=250,
        unit="MB",
    )


def long_line(rounds: int) -> Result:
    """A line twice as long takes about twice as long: reading a line is linear in its length.

    Both lines are larger than the CPU caches, which would favor a shorter one.
    """
    short, long = (_session_of_one_line(millions) for millions in (50, 100))
    best = best_of(rounds, {"short": lambda: open_and_build(short), "long": lambda: open_and_build(long)})
    for path in (short, long):
        path.unlink()
    return Result(
        "one line of 100 MB, against one of 50 MB",
        milliseconds(best["long"]),
        milliseconds(best["short"]),
        best["long"] / best["short"],
        bound=3.0,
    )


def _session_of_one_line(millions: int) -> Path:
    path = scratch_folder() / f"one-line-{millions}.jsonl"
    piece = b'def f(x):\\n\\treturn \\"x\\"  # plain text with a few escapes, as in a file that a tool has read\\n'
    with open(path, "wb") as file:
        file.write(b'{"type":"session","version":3,"id":"one-line","timestamp":"","cwd":"/","sessiontree":1}\n')
        file.write(
            b'{"type":"message","id":"00000001","parentId":null,"timestamp":"","message":{"role":"user","content":"'
        )
        for _ in range(millions * 1_000_000 // len(piece)):
            file.write(piece)
        file.write(b'"}}\n')
    return path
