"""Measure one store, in a process of its own and in the environment of its framework. Prints one line of JSON.

    python -m benchmarks.peer_packages.store_costs FRAMEWORK STORE PLACE --entries 60000 --seconds 60
    python -m benchmarks.peer_packages.store_costs FRAMEWORK STORE postgresql://... --writers 32

Times are CPU time of this process, the median of some calls; the rate of several writers is on the clock. A store that
has not written its history after `--seconds` is measured with the history that it has by then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.peer_packages.stores import DATABASE_STORES, FILE_STORES, LATEST, Store

_APPENDS = 200
_READS = 20
_BRANCHES = 60
_EACH = 40
"""Appends of each writer."""
_MAX_SECONDS = 10
"""After this time a median is that of the calls so far: a copy of a long history takes seconds."""


async def costs(store: Store, entries: int, seconds: float) -> dict[str, Any]:
    base = _memory()
    await store.append(0, 10)
    count = 10
    found: dict[str, Any] = {}
    found["append_first"], found["wall_first"], count = await _append(store, count)
    if await store.branch(2):
        found["branch_first"] = await _median(lambda: store.branch(2), _BRANCHES)
    deadline, batch = time.monotonic() + seconds, 10
    while count < entries and time.monotonic() < deadline:
        start = time.monotonic()
        last = min(count + batch, entries)
        await store.append(count, last)
        count = last
        batch = min(1000, batch * 2) if time.monotonic() - start < 1 else max(1, batch // 2)
    found["history"] = count
    found["append_last"], found["wall_last"], count = await _append(store, count)
    assert await store.latest() == LATEST
    found["latest"] = await _median(store.latest, _READS)
    found["memory"] = (_memory() - base) / 1e6  # before the branches, which may be copies of the history
    if "branch_first" in found:
        found["branch_last"] = await _median(lambda: store.branch(count // 4 - 1), _BRANCHES)
    await store.close()
    return found


async def _append(store: Store, count: int) -> tuple[float, float, int]:
    """Milliseconds of CPU time and on the clock for one append, and the new number of messages."""
    cpu, wall = [], []
    deadline = time.monotonic() + _MAX_SECONDS
    for number in range(count, count + _APPENDS):
        start, begin = time.perf_counter(), time.process_time()
        await store.append(number, number + 1)
        cpu.append(1e3 * (time.process_time() - begin))
        wall.append(1e3 * (time.perf_counter() - start))
        count += 1
        if time.monotonic() > deadline:
            break
    return statistics.median(cpu), statistics.median(wall), count


async def _median(call: Callable[[], Awaitable[object]], times: int) -> float:
    taken = []
    deadline = time.monotonic() + _MAX_SECONDS
    for _ in range(times):
        begin = time.process_time()
        await call()
        taken.append(1e3 * (time.process_time() - begin))
        if time.monotonic() > deadline:
            break
    return statistics.median(taken)


async def rate(stores: list[Store]) -> dict[str, Any]:
    """Appends a second of all stores together, each with a task of its own; the best of three rounds."""

    async def write(store: Store, first: int) -> None:
        for number in range(first, first + _EACH):
            await store.append(number, number + 1)

    best, cpu = 0.0, float("inf")
    for store in stores:
        await store.append(0, 1)
    for turn in range(3):
        start, begin = time.perf_counter(), time.process_time()
        await asyncio.gather(*(write(store, 1 + turn * _EACH) for store in stores))
        count = _EACH * len(stores)
        best = max(best, count / (time.perf_counter() - start))
        cpu = min(cpu, 1e3 * (time.process_time() - begin) / count)
    for store in stores:
        await store.close()
    return {"rate": best, "cpu": cpu}


def _memory() -> int:
    """The peak memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


async def main() -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework")
    parser.add_argument("store")
    parser.add_argument("place")
    parser.add_argument("--entries", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--writers", type=int)
    options = parser.parse_args()
    if options.writers is None:
        make = FILE_STORES[options.framework][options.store]
        return await costs(await make(options.place, "one"), options.entries, options.seconds)
    make = DATABASE_STORES[options.framework][options.store]
    names = [f"{options.writers}-{number}" for number in range(options.writers)]
    return await rate([await make(options.place, name) for name in names])


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main())))
