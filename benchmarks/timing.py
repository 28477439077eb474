"""Timers for a busy machine.

Competitors take turns, so that a slow moment of the machine affects all of them, and the fastest of several rounds
counts: noise only adds. CPU time is used wherever the work is CPU-bound.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from benchmarks.generate import scratch_folder

Clock = Callable[[], float]


@contextlib.contextmanager
def _cache_at(folder: str) -> Iterator[None]:
    before = os.environ.get("SESSIONTREE_CACHE")
    os.environ["SESSIONTREE_CACHE"] = folder
    try:
        yield
    finally:
        del os.environ["SESSIONTREE_CACHE"]
        if before is not None:
            os.environ["SESSIONTREE_CACHE"] = before


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """No index of an earlier open is known, and the user's own cache is not used."""
    with tempfile.TemporaryDirectory() as folder, _cache_at(folder):
        yield


def best_of(
    rounds: int, competitors: Mapping[str, Callable[[], object]], *, keeps_cache: bool = False
) -> dict[str, float]:
    """The best CPU time in seconds of each competitor, over several rounds in turns.

    Each call has an empty cache, so that sessions are opened as for the first time, unless `keeps_cache`.
    """
    best = dict.fromkeys(competitors, float("inf"))
    for _ in range(rounds):
        for name, work in competitors.items():
            with contextlib.nullcontext() if keeps_cache else empty_cache():
                best[name] = min(best[name], seconds(work))
    return best


def seconds(work: Callable[[], object], clock: Clock = time.process_time) -> float:
    """How long some work takes, without the time to free its result."""
    gc.collect()
    start = clock()
    result = work()
    took = clock() - start
    del result
    return took


def _environment() -> dict[str, str]:
    """The environment of children: bytecode is cached as after an installation, outside the repository."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPYCACHEPREFIX": str(scratch_folder() / "bytecode")}


def run_python(
    code: str,
    *arguments: str | os.PathLike[str],
    options: tuple[str, ...] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, str]:
    """Run code in a new interpreter; returns its stdout and stderr."""
    command = [sys.executable, *options, "-c", code, *arguments]
    around = {**_environment(), **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=around)
    return done.stdout, done.stderr


def wall_seconds(command: list[str]) -> float:
    """Elapsed time of a command."""
    environment = _environment()
    return seconds(lambda: subprocess.run(command, capture_output=True, check=True, env=environment), time.perf_counter)


# On Linux, ru_maxrss of a child starts at the peak of its parent; VmHWM is its own.
_PRINT_PEAK = """
try:
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
except FileNotFoundError:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak)
"""


def peak_memory(code: str, *arguments: str | os.PathLike[str]) -> int:
    """The peak memory of a new interpreter that runs some code, in bytes."""
    return int(run_python(code + _PRINT_PEAK, *arguments)[0].split()[-1])
