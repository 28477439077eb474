"""Benchmarks of `sessiontree list`, `stats` and completion on sessions of several agents, cold and warm.

Each run is a new process; its CPU time and memory are measured from start to end.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from benchmarks.corpus import LARGE, Corpus, environment, generated
from benchmarks.generate import scratch_folder
from benchmarks.results import Result, megabytes, milliseconds
from benchmarks.timing import run_python
from benchmarks.transcripts import TranscriptShape, transcript

_COMMAND = """
import atexit, sys

@atexit.register
def print_peak():
    try:
        with open("/proc/self/status") as status:
            peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except FileNotFoundError:
        import resource
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(peak, file=sys.stderr, flush=True)

import os
if "UNTIL_PRINTED" in os.environ:
    # `list` counts the branches of large sessions after its output; that has a row of its own.
    from sessiontree.cli import list as listing
    listing._SECONDS_UNSEEN = 0

from sessiontree.cli import enter
enter()
"""
"""Starts the command as its entry point does. The parent reads its resource usage after it has ended."""


class Run(Struct, frozen=True):
    """CPU time, peak memory, output and exit code of a process."""

    seconds: float
    peak: int
    output: str
    code: int

    @property
    def lines(self) -> int:
        return self.output.count("\n")


def list_cold(rounds: int) -> list[Result]:
    """Listing 200 sessions (155 MB) without a cache takes under 0.5 s and 40 MB, until the list is printed."""
    counted = _best_cold(Corpus(), rounds, until_printed=False)
    return [
        *_results("list 200 sessions, 155 MB", _best_cold(Corpus(), rounds), bound=500, most=40),
        *_results("list 200 sessions, 155 MB, and count their branches", counted, bound=None, most=80),
    ]


def list_warm(rounds: int) -> list[Result]:
    """Listing them again takes under 0.1 s and 40 MB."""
    return [*_results("list 200 sessions again", _best_warm(Corpus(), 2 * rounds), bound=100, most=40)]


def list_10000(rounds: int) -> list[Result]:
    """Listing 10,000 sessions (2 GB) a second time: at most 1/20 of the first, under 0.5 s, both under 150 MB."""
    first, second = _best_cold(LARGE, 1), _best_warm(LARGE, rounds)
    ratio = Result(
        "list 10,000 sessions again, against the first time",
        milliseconds(second.seconds),
        milliseconds(first.seconds),
        second.seconds / first.seconds,
        bound=0.05,
    )
    return [
        *_results("list 10,000 sessions, 2 GB", first, bound=None, most=150),
        *_results("list 10,000 sessions again", second, bound=500, most=150),
        ratio,
    ]


_MANY = Corpus(sessions=20_000, size=80_000_000)
_AT_ONCE = 64


def commands_20000(rounds: int) -> list[Result]:  # noqa: ARG001 - one round takes a minute
    """Commands on 20,000 small sessions: complete or reported as incomplete, under 250 MB; searches answer alike."""
    folder = generated(_MANY)
    results: list[Result] = []

    def measure(name: str, *command: str, is_first: bool = False) -> Run:
        if is_first:
            shutil.rmtree(_cache(folder), ignore_errors=True)
        found = _run(folder, *command, codes=(0, 3, 4))
        results.extend(_results(f"{name}, 20,000 sessions", found, bound=None, most=250))
        return found

    listed = measure("list --all --json, no cache", "list", "--all", "--json", is_first=True)
    (*_, one) = json.loads(listed.output)["sessions"]
    measure("list --all --json again", "list", "--all", "--json")
    for name in ("search, no cache", "the same search again"):
        found = measure(name, "search", "stale", "nowhere", "--json", is_first=name.endswith("no cache"))
        if json.loads(found.output)["complete"] != (found.code == 0):
            raise AssertionError(f"{name}: exit code {found.code} and the answer differ")
    measure("doctor --all, no cache", "doctor", "--all", is_first=True)
    measure("info of one, no cache", "info", one["id"], is_first=True)
    measure("tree of one", "tree", one["id"])
    return [*results, _search_at_once(folder)]


def _search_at_once(folder: Path) -> Result:
    """Searches at the same time have the same answer."""
    expected = _hits(_run(folder, "search", "stale migration", "--json", "--rebuild"))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        runs = [pool.submit(_run, folder, "search", "stale migration", "--json") for _ in range(_AT_ONCE)]
        alike = sum(_hits(run.result()) == expected for run in runs)
    about = f"{len(expected)} hits each"
    return Result(f"of {_AT_ONCE} searches at once, answers alike", str(alike), about, alike / _AT_ONCE, floor=1.0)


def _hits(run: Run) -> list[tuple[str, str]]:
    return [(hit["session"]["id"], hit["entry"]) for hit in json.loads(run.output)["hits"]]


FILL = """
import sys
import msgspec
from sessiontree.library import Library
from sessiontree.library.summary_reader import SummaryRead

with Library() as library:
    known = library.sessions(include_subagents=True)
    (root,) = [root for root in library.roots if root.agents == (known[0].agent,)]
    copies = [
        msgspec.structs.replace(
            known[number % len(known)],
            ref=f"{root.folder}/{number}.jsonl",
            id=f"{number:08x}-0000-4000-8000-000000000000",
            kind="session",
            parent=None,
        )
        for number in range(int(sys.argv[1]) - len(known))
    ]
    library.cache.store([(SummaryRead(copy, None, 0), (1, 1, 1), ",".join(root.agents)) for copy in copies])
"""

_SNAPSHOT = """
import gc, time
from sessiontree.library.library import Library
gc.disable()
start = time.process_time()
with Library() as library:
    found = len(library.snapshot().sessions)
    print(time.process_time() - start, found)
"""


def snapshot(rounds: int) -> list[Result]:
    """What is known of 10,000 sessions is available in 60 ms of CPU time."""
    folder, cache = generated(Corpus()), scratch_folder() / "snapshot-cache"
    shutil.rmtree(cache, ignore_errors=True)
    around = {**environment(folder), "SESSIONTREE_CACHE": str(cache)}
    run_python(FILL, "10000", environment=around)
    runs = [run_python(_SNAPSHOT, environment=around)[0].split() for _ in range(4 * rounds)]
    seconds, found = min(float(run[0]) for run in runs), int(runs[0][1])
    about = f"{found:,} sessions, no session is opened"
    return [Result("snapshot of 10,000 sessions", milliseconds(seconds), about, 1e3 * seconds, bound=60, unit="ms")]


def stats_cold(rounds: int) -> list[Result]:
    """Statistics of 200 sessions after a listing, reading every byte; no time limit, but under 80 MB."""
    folder = generated(Corpus())
    runs = []
    for _ in range(rounds):
        shutil.rmtree(_cache(folder), ignore_errors=True)
        _run(folder, "list")
        runs.append(_run(folder, "stats"))
    best = min(runs, key=lambda run: run.seconds)
    return [*_results("stats of 200 sessions, 155 MB", best, bound=None, most=80)]


def stats_warm(rounds: int) -> list[Result]:
    """Statistics again, without reading any session: under 0.5 s and 60 MB."""
    folder = generated(Corpus())
    _run(folder, "stats")
    best = min((_run(folder, "stats") for _ in range(2 * rounds)), key=lambda run: run.seconds)
    return [*_results("stats of 200 sessions again", best, bound=500, most=60)]


def _results(name: str, run: Run, *, bound: float | None, most: float) -> Iterator[Result]:
    about = f"{run.lines - 1:,} lines, whole process"
    yield Result(name, milliseconds(run.seconds), about, 1e3 * run.seconds, bound=bound, unit="ms")
    yield Result(f"{name}, peak memory", megabytes(run.peak), about, run.peak / 1e6, bound=most, unit="MB")


def _best_cold(corpus: Corpus, rounds: int, *, until_printed: bool = True) -> Run:
    runs = []
    for _ in range(rounds):
        shutil.rmtree(_cache(generated(corpus)), ignore_errors=True)
        runs.append(_run(generated(corpus), "list", until_printed=until_printed))
    return min(runs, key=lambda run: run.seconds)


def _best_warm(corpus: Corpus, rounds: int) -> Run:
    folder = generated(corpus)
    _run(folder, "list")
    return min((_run(folder, "list") for _ in range(rounds)), key=lambda run: run.seconds)


def complete(rounds: int) -> list[Result]:
    """Completing a session takes at most 0.15 s."""
    folder = generated(Corpus())
    _run(folder, "list")
    asked = (_run(folder, "completion", "--complete", "plain", words="show\0\0") for _ in range(2 * rounds))
    best = min(asked, key=lambda run: run.seconds)
    return [*_results("complete a session among 200", best, bound=150, most=40)]


_OPEN_AS_TREE = """
import gc, sys, time
import sessiontree
from sessiontree.views.graph import build_graph
gc.disable()
print(len(build_graph(sessiontree.open(sys.argv[1])).nodes))
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
print(time.process_time(), peak)
"""


def tree(rounds: int) -> list[Result]:
    """`sessiontree tree` of a Claude Code session of 6 MB takes 0.15 s and 60 MB, including the start of Python."""
    path = str(transcript(TranscriptShape(size=6_000_000)))
    runs = [run_python(_OPEN_AS_TREE, path)[0].split() for _ in range(4 * rounds)]
    seconds, peak = min(float(run[1]) for run in runs), min(int(run[2]) for run in runs)
    drawn = min((_run(generated(Corpus()), "tree", path) for _ in range(6 * rounds)), key=lambda run: run.seconds)
    name, about = "a Claude Code session of 6 MB as a tree", f"{int(runs[0][0]):,} entries, whole process"
    return [
        Result(f"{name}, its nodes alone", milliseconds(seconds), about, 1e3 * seconds, unit="ms"),
        Result(f"{name}, peak memory", megabytes(peak), about, peak / 1e6, bound=60, unit="MB"),
        Result(name, milliseconds(drawn.seconds), about, 1e3 * drawn.seconds, bound=150, unit="ms"),
    ]


def _run(
    folder: Path, command: str, *more: str, words: str = "", until_printed: bool = False, codes: tuple[int, ...] = (0,)
) -> Run:
    own = {**environment(folder), "SESSIONTREE_CACHE": str(_cache(folder))}
    return run_command(own, command, *more, words=words, until_printed=until_printed, codes=codes)


def run_command(
    own: Mapping[str, str],
    command: str,
    *more: str,
    words: str = "",
    until_printed: bool = False,
    codes: tuple[int, ...] = (0,),
) -> Run:
    """Run a command in a new process. `own` are the environment variables that name the folders; `codes` are right."""
    around = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        **own,
        "PYTHONPYCACHEPREFIX": str(scratch_folder() / "bytecode"),
        "COLUMNS": "120",
        **({"UNTIL_PRINTED": "1"} if until_printed else {}),
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, command, *(more or ("--all",))],
        input=words,
        capture_output=True,
        text=True,
        check=False,
        env=around,
    )
    if done.returncode not in codes:
        done.check_returncode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(seconds, int(done.stderr.split()[-1]), done.stdout, done.returncode)


def _cache(folder: Path) -> Path:
    return scratch_folder() / f"{folder.name}-cache"
