"""Benchmarks of search: indexing, searching with the index, and without it.

The sessions are those of the listing benchmarks: several agents, sub-agents, 155 MB. Ratios are measured in one run,
alternating; processes are measured from start to end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from msgspec import Struct

from benchmarks.corpus import Corpus, environment, generated
from benchmarks.generate import scratch_folder
from benchmarks.results import Result, megabytes, milliseconds
from benchmarks.timing import best_of
from sessiontree.library import Library

_PEAK = """
import sys, time
try:
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
except FileNotFoundError:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(time.process_time(), peak, file=sys.stderr)
"""
_LOAD = """
import json, sys
for path in sys.stdin.read().split(chr(0)):
    with open(path, "rb") as file:
        for line in file:
            json.loads(line)
"""
_INDEX = """
from sessiontree.library import Library
from sessiontree.search import Index
with Library() as library, Index() as index:
    index.update(library.everything())
"""
_COMMAND = """
import sys
from sessiontree.cli import main
assert main(["search", sys.argv[1]]) == 0
"""
_SEARCH = """
import sys
from sessiontree.library import Library
with Library() as library:
    results = library.search(sys.argv[1])
    print(len(results), results.state)
"""
_QUERIES = ("parser cache", "façade migration", "失败 writers", '"stale rows"', "tool:bash lock")
_MESSAGES, _WORDS = 1_000_000, 30_000


class _Run(Struct, frozen=True):
    seconds: float
    peak: int
    printed: str


def index_all(rounds: int) -> list[Result]:
    """Indexing everything: at most 2.5x `json.loads` over the same bytes, 25% of their size, 100 MB of memory."""
    folder = generated(Corpus())
    files = sorted(folder.rglob("*.jsonl"))
    size = sum(path.stat().st_size for path in files)
    peaks: list[int] = []

    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(_loaded(folder, files))
        shutil.rmtree(_cache(folder), ignore_errors=True)
        _run("from sessiontree.library import Library\nwith Library() as library:\n    library.everything()\n", folder)
        run = _run(_INDEX, folder)
        ours.append(run.seconds)
        peaks.append(run.peak)
    index = _cache(folder) / "search.sqlite"
    held = sum(path.stat().st_size for path in index.parent.glob("search.sqlite*"))
    return [
        Result(
            "index 200 sessions, 155 MB, against json.loads",
            milliseconds(min(ours)),
            milliseconds(min(theirs)),
            min(ours) / min(theirs),
            bound=2.5,
        ),
        Result("size of the index, against the corpus", megabytes(held), megabytes(size), held / size, bound=0.25),
        Result("index 200 sessions, peak memory", megabytes(min(peaks)), "", min(peaks) / 1e6, bound=100, unit="MB"),
    ]


def _loaded(folder: Path, files: list[Path]) -> float:
    return _run(_LOAD, folder, stdin="\0".join(map(str, files))).seconds


def run_queries(rounds: int) -> list[Result]:
    """A search without changes takes under 0.15 s, including the start of Python; after one append, under 0.2 s."""
    folder = _indexed(Corpus())
    for query in _QUERIES:
        _run(_COMMAND, folder, query)
    slowest = max(min(_run(_COMMAND, folder, query).seconds for _ in range(rounds)) for query in _QUERIES)
    copy = _copy_of_largest(folder)
    _run(_INDEX, copy)
    _run(_SEARCH, copy, "parser cache")
    appended = []
    path = max((copy / ".claude").rglob("*.jsonl"), key=lambda each: each.stat().st_size)
    for number in range(rounds):
        _append(path, number)
        run = _run(_SEARCH, copy, f"appendedword{number}")
        assert run.printed.startswith("1 index"), run.printed
        appended.append(run.seconds)
    about = "whole process, slowest of five queries"
    return [
        Result("search, nothing changed", milliseconds(slowest), about, 1e3 * slowest, bound=150, unit="ms"),
        Result(
            "search after one append to a large session",
            milliseconds(min(appended)),
            f"whole process, {megabytes(path.stat().st_size)}",
            1e3 * min(appended),
            bound=200,
            unit="ms",
        ),
    ]


def without_index(rounds: int) -> list[Result]:
    """Without an index, a search takes at most twice as long as reading all files.

    No file has the words, so nothing ends the search early; the slowest word counts. Reading the files line by line is
    measured for comparison.
    """
    folder = generated(Corpus())
    files = [str(path) for path in folder.rglob("*.jsonl")]
    cache = scratch_folder() / f"{folder.name}-no-index-cache"
    shutil.rmtree(cache, ignore_errors=True)
    around = {**os.environ, **environment(folder), "SESSIONTREE_CACHE": str(cache)}

    def lines() -> None:
        for path in files:
            with open(path, "rb") as file:
                for _ in file:
                    pass

    def copy() -> None:
        for path in files:
            Path(path).read_bytes()

    def search(word: str) -> None:
        results = library.search(word, refresh="none")
        assert (len(results), results.state) == (0, "scan")

    words = ("unfindable", "recreation", "oriental", "安静", "quixotic")
    with Library(environment=around) as library:
        library.everything()
        best = best_of(2 * rounds, {"lines": lines, "copy": copy, **{word: partial(search, word) for word in words}})
    slowest = max(best[word] for word in words)
    return [
        Result(
            f"search 155 MB without an index, against reading {name}",
            milliseconds(slowest),
            milliseconds(best[theirs]),
            slowest / best[theirs],
            bound=bound,
        )
        for name, theirs, bound in (("them", "copy", 2.0), ("their lines", "lines", None))
    ]


def million(rounds: int) -> list[Result]:
    """Two words in 1,000,000 messages: under 50 ms of CPU time per query, warm.

    Each query runs in every round, and its best time counts: the rest is noise of the machine.
    """
    folder = _million()
    _run(_INDEX, folder)
    words = _vocabulary(Random(1))
    random = Random(5)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    queries = [" ".join(random.choices(words, weights, k=2)) for _ in range(200)]
    best = [float("inf")] * len(queries)
    with Library(environment={**os.environ, **_environment(folder)}) as library:
        answered = sum(len(library.search(query, refresh="none")) > 0 for query in queries)
        for _ in range(rounds):
            for number, query in enumerate(queries):
                start = time.process_time()
                library.search(query, refresh="none")
                best[number] = min(best[number], time.process_time() - start)
    taken = sorted(best)
    about = f"{len(queries)} queries, words by their frequency, {answered} with hits"
    return [
        Result(
            f"two words in 1,000,000 messages, {name}",
            milliseconds(taken[int(share * (len(taken) - 1))]),
            about,
            1e3 * taken[int(share * (len(taken) - 1))],
            bound=bound,
            unit="ms",
        )
        for name, share, bound in (("half of them", 0.5, None), ("95 of 100", 0.95, 50), ("99 of 100", 0.99, None))
    ]


def _million() -> Path:
    """Claude Code sessions with a million messages and a natural distribution of words."""
    folder = scratch_folder() / f"messages-{_MESSAGES}-1"
    if not folder.exists():
        unfinished = folder.with_suffix(".tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        random = Random(1)
        words = _vocabulary(random)
        weights = [1 / (rank + 10) for rank in range(len(words))]
        pool = random.choices(words, weights, k=400_000)
        project = unfinished / ".claude" / "projects" / "-home-ada-words"
        project.mkdir(parents=True)
        for number in range(1_000):
            id = f"{number:08x}-0000-4000-8000-000000000000"
            with open(project / f"{id}.jsonl", "w") as file:
                file.writelines(_messages(random, pool, id, _MESSAGES // 1_000))
        unfinished.rename(folder)
    return folder


def _messages(random: Random, pool: list[str], id: str, count: int) -> Iterator[str]:
    parent: str | None = None
    for number in range(count):
        start = random.randrange(len(pool) - 400)
        text = " ".join(pool[start : start + random.choice((8, 20, 40, 120))])
        role = "user" if number % 2 == 0 else "assistant"
        content: object = text if role == "user" else [{"type": "text", "text": text}]
        uuid = f"{id[:8]}-{number:08x}"
        line = {
            "parentUuid": parent,
            "isSidechain": False,
            "cwd": "/home/ada/words",
            "sessionId": id,
            "type": role,
            "message": {"role": role, "content": content},
            "uuid": uuid,
            "timestamp": f"2026-08-{1 + number % 28:02d}T10:{number % 60:02d}:00.000Z",
        }
        yield json.dumps(line) + "\n"
        parent = uuid


def _vocabulary(random: Random) -> list[str]:
    syllables = [first + second for first in "bcdfghjklmnprstvwz" for second in "aeiou"]
    words: dict[str, None] = {}
    while len(words) < _WORDS:
        words["".join(random.choices(syllables, k=random.randint(2, 5)))] = None
    return list(words)


def _append(path: Path, number: int) -> None:
    """Append a prompt as Claude Code writes it."""
    lines = path.read_bytes().splitlines()
    parent = next(json.loads(line)["uuid"] for line in reversed(lines) if b'"uuid"' in line)
    line = {
        "parentUuid": parent,
        "isSidechain": False,
        "cwd": "/home/ada/words",
        "sessionId": path.stem,
        "type": "user",
        "message": {"role": "user", "content": f"appendedword{number}"},
        "uuid": f"appended-{number}-{len(lines)}",
        "timestamp": "2026-11-01T10:00:00.000Z",
    }
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


def _copy_of_largest(folder: Path) -> Path:
    """A copy of the sessions that may be modified."""
    copy = scratch_folder() / f"{folder.name}-appended"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    shutil.rmtree(_cache(copy), ignore_errors=True)
    return copy


def _indexed(corpus: Corpus) -> Path:
    folder = generated(corpus)
    _run(_INDEX, folder)
    return folder


def _environment(folder: Path) -> dict[str, str]:
    return {**environment(folder), "SESSIONTREE_CACHE": str(_cache(folder))}


def _run(code: str, folder: Path, *arguments: str, stdin: str = "") -> _Run:
    around = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        **_environment(folder),
        "PYTHONPYCACHEPREFIX": str(scratch_folder() / "bytecode"),
    }
    command = [sys.executable, "-c", code + _PEAK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=around, input=stdin)
    seconds, peak = done.stderr.split()[-2:]
    return _Run(float(seconds), int(peak), done.stdout)


def _cache(folder: Path) -> Path:
    return scratch_folder() / f"{folder.name}-search-cache"
