"""Taking times on a machine that does other things too.

Competitors take turns, so that whatever slows the machine down slows them all, and of several rounds the fastest
counts: noise only ever adds. Processor time is taken wherever the work is the processor's.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from benchmarks.generate import scratch_folder

Clock = Callable[[], float]


def best_of(rounds: int, competitors: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The fewest processor seconds of each competitor, over several rounds in which each has its turn."""
    best = dict.fromkeys(competitors, float("inf"))
    for _ in range(rounds):
        for name, work in competitors.items():
            best[name] = min(best[name], seconds(work))
    return best


def seconds(work: Callable[[], object], clock: Clock = time.process_time) -> float:
    """How long some work takes. Making its result go away again is not part of it."""
    gc.collect()
    start = clock()
    result = work()
    took = clock() - start
    del result
    return took


def _environment() -> dict[str, str]:
    """What children see: modules are compiled once and kept, as after an installation, outside the repository."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPYCACHEPREFIX": str(scratch_folder() / "bytecode")}


def run_python(code: str, *arguments: str | os.PathLike[str], options: tuple[str, ...] = ()) -> tuple[str, str]:
    """What a fresh interpreter prints: on stdout and on stderr."""
    command = [sys.executable, *options, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=_environment())
    return done.stdout, done.stderr


def wall_seconds(command: list[str]) -> float:
    """From starting a command to its end."""
    environment = _environment()
    return seconds(lambda: subprocess.run(command, capture_output=True, check=True, env=environment), time.perf_counter)


# On Linux ru_maxrss of a child begins with the peak of the process that started it; VmHWM is its own.
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
    """The most bytes a fresh interpreter had in memory while it ran some code."""
    return int(run_python(code + _PRINT_PEAK, *arguments)[0].split()[-1])
