"""Sessions of the OpenAI Agents SDK in one run: its SQLite sessions and ours. Exits with 1 if a bound does not hold.

    make adapters && scratch/adapters/openai_agents-0.24.0/bin/python -m benchmarks.adapters

Not part of `python -m benchmarks`, because it needs the SDK. Times are CPU time of the process, so that other programs
on the machine do not count; all sessions are in files. By default, SQLite syncs every append (`synchronous=FULL`). Ours
sync at the end of a turn and after a user message, so in a conversation with tool calls half of the appends; the column
"each synced" is with the durability of SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sessiontree.adapters.openai_agents import BranchingTreeSession, TreeSession
from sessiontree.session.entry_input import Durability

LATEST = 50
MAX_LATEST_MS = 2.0
MAX_GROWTH = 1.5
PEERS = {"TreeSession": "SQLiteSession", "BranchingTreeSession": "AdvancedSQLiteSession"}
"""Our sessions, each with the one of the SDK that it is compared with."""
_SAMPLES = 200
_MAX_BRANCHES_MS = 10_000
_ROUNDS = 10
_READ_ROUNDS = 40
_TEXT = "The quick brown fox jumps over the lazy dog. " * 12


def item(number: int) -> dict[str, Any]:
    """An item of a conversation whose turns are a question, a tool call, its result and an answer."""
    call = f"call_{number // 4}"
    match number % 4:
        case 0:
            return {"role": "user", "content": f"{number}: {_TEXT}"}
        case 1:
            return {"type": "function_call", "call_id": call, "name": "read", "arguments": '{"path": "README.md"}'}
        case 2:
            return {"type": "function_call_output", "call_id": call, "output": f"{number}: {_TEXT}"}
        case _:
            part = {"type": "output_text", "text": f"{number}: {_TEXT}", "annotations": []}
            return {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [part]}


async def fill(session: Any, count: int, known: int = 0) -> None:
    for start in range(known, count, 1000):
        await session.add_items([item(number) for number in range(start, min(start + 1000, count))])


async def append_in_turns(sessions: dict[str, Any], count: int) -> dict[str, float]:
    """Milliseconds of CPU time per append of one item: the best of ten rounds in which the sessions take turns."""
    best = dict.fromkeys(sessions, float("inf"))
    size = count // _ROUNDS
    for first in range(0, count, size):
        for name, session in sessions.items():
            start = time.process_time()
            for number in range(first, first + size):
                await session.add_items([item(number)])
            best[name] = min(best[name], (time.process_time() - start) * 1000 / size)
    return best


async def latest_in_turns(sessions: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of CPU time to read the latest items: the best of forty rounds in which the sessions take turns."""
    best = dict.fromkeys(sessions, float("inf"))
    for _ in range(_READ_ROUNDS):
        for name, session in sessions.items():
            start = time.process_time()
            for _ in range(20):
                await session.get_items(LATEST)
            best[name] = min(best[name], (time.process_time() - start) * 1000 / 20)
    return best


class Timed:
    """A session of one length, and the CPU times of its calls in milliseconds."""

    def __init__(self, session: Any, entries: int) -> None:
        self.session = session
        self._turn = (entries + 3) // 4
        self.times: dict[str, list[float]] = {"append": [], "branch": []}

    async def append(self) -> None:
        start = time.process_time()
        await self.session.add_items([item(0)])
        self._add("append", start)

    async def branch(self) -> None:
        """Start a branch before the last turn; going back to the first branch does not count."""
        start = time.process_time()
        await self.session.create_branch_from_turn(self._turn)
        self._add("branch", start)
        await self.session.switch_to_branch("main")

    def _add(self, what: str, start: float) -> None:
        self.times[what].append((time.process_time() - start) * 1000)

    @property
    def calls(self) -> Sequence[str]:
        return ("append", "branch") if hasattr(self.session, "create_branch_from_turn") else ("append",)

    @property
    def is_too_slow(self) -> bool:
        """Whether more branches would take minutes."""
        return sum(self.times["branch"]) > _MAX_BRANCHES_MS

    def median(self, what: str) -> float:
        return statistics.median(self.times[what])


async def fill_all(sessions: dict[str, Any], entries: int) -> dict[str, Timed]:
    for session in sessions.values():
        await fill(session, entries)
    return {name: Timed(session, entries) for name, session in sessions.items()}


async def time_in_turns(sessions: Sequence[Timed]) -> None:
    """Append to all sessions in turns and branch them in turns: a slow moment of the machine affects all of them.

    Each round has another order: the session after one that reads all of its rows finds the processor's caches empty.
    """
    order, chance = [*sessions], random.Random(25)
    for _ in range(_SAMPLES):
        chance.shuffle(order)
        for timed in order:
            await timed.append()
    for _ in range(_SAMPLES // 4):
        chance.shuffle(order)
        for timed in order:
            if "branch" in timed.calls and not timed.is_too_slow:
                await timed.branch()


async def growth(short: dict[str, Timed], long: dict[str, Timed], entries: int) -> list[str]:
    """Compare calls on short sessions and on long ones; returns the bounds that do not hold."""
    await time_in_turns([*short.values(), *long.values()])
    failures: list[str] = []
    print(f"{'':24}{'call':>8}{'at 10':>12}{f'at {entries:,}':>16}{'growth':>10}")
    for name, timed in short.items():
        for what in timed.calls:
            first, last = timed.median(what), long[name].median(what)
            print(f"{name:24}{what:>8}{first:9.3f} ms{last:13.3f} ms{last / first:9.2f}x")
            if name in PEERS and last > MAX_GROWTH * first:
                failures.append(f"{name}: {what} grows {last / first:.2f}x")
            if name in PEERS and last >= long[PEERS[name]].median(what):
                failures.append(f"{name} is not faster than {PEERS[name]}: {what} at {entries:,}")
    return failures


async def measure(folder: Path, appends: int, entries: int) -> list[str]:
    from agents import SQLiteSession
    from agents.extensions.memory import AdvancedSQLiteSession

    def make(part: str, durability: Durability) -> dict[str, Any]:
        place = folder / part
        place.mkdir()
        advanced = AdvancedSQLiteSession(session_id="one", db_path=place / "advanced.db", create_tables=True)
        return {
            "SQLiteSession": SQLiteSession("one", place / "plain.db"),
            "AdvancedSQLiteSession": advanced,
            "TreeSession": TreeSession("tree", place, durability=durability),
            "BranchingTreeSession": BranchingTreeSession("branching", place, durability=durability),
        }

    sessions = make("turns", "turn")
    synced = await append_in_turns(make("synced", "append"), appends)
    appended = await append_in_turns(sessions, appends)
    for session in sessions.values():
        await fill(session, 10_000, appends)
    latest = await latest_in_turns(sessions)
    print(f"{'':24}{'ms per append':>16}{'each synced':>16}{f'ms, latest {LATEST} of 10,000':>28}")
    for name in sessions:
        print(f"{name:24}{appended[name]:16.3f}{synced[name]:16.3f}{latest[name]:28.3f}")

    failures = [
        f"{ours} is not faster than {theirs}: {what}"
        for what, found in (("append", appended), ("append, each synced", synced), ("latest", latest))
        for ours, theirs in PEERS.items()
        if found[ours] >= found[theirs]
    ]
    for name in PEERS:
        failures += [f"{name}: the latest take {latest[name]:.2f} ms"] if latest[name] > MAX_LATEST_MS else []

    durabilities: tuple[Durability, ...] = ("append", "system")
    for durability in durabilities:
        print(f"\nOurs {'with each append synced' if durability == 'append' else 'without syncs'}:")
        short = await fill_all(make(f"short-{durability}", durability), 10)
        long = await fill_all(make(f"long-{durability}", durability), entries)
        failures += await growth(short, long, entries)
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--appends", type=int, default=2_000, help="items appended one by one (default: 2000)")
    parser.add_argument("--entries", type=int, default=60_000, help="length of the long session (default: 60000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sessiontree-adapters-") as folder:
        failures = asyncio.run(measure(Path(folder), options.appends, options.entries))
    for failure in failures:
        print(failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
