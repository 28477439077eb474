"""Progress of a run on standard error: what was done, how many differ, and how long it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acceptance.cases import Outcome

_STEP = 25


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def log_difference(outcome: Outcome) -> None:
    """Print the reason and the lines that differ."""
    log("\n".join(f"    {line}" for line in [outcome.reason, *outcome.difference] if line))


def show_progress(program: str, outcomes: Iterable[Outcome], count: int) -> Iterator[Outcome]:
    """Pass outcomes on, and print how many of them there are."""
    started = time.monotonic()
    differing = 0
    for number, outcome in enumerate(outcomes, 1):
        if outcome.status == "differs":
            differing += 1
            log(f"{program}: {outcome.case.row} differs")
            log_difference(outcome)
        if number % _STEP == 0 or number == count:
            log(f"{program}: {number} of {count}, {differing} differ, {duration(time.monotonic() - started)}")
        yield outcome


@contextmanager
def timed(part: str) -> Iterator[None]:
    """Print when a part of a run starts, and how long it took."""
    log(f"{part}: started")
    started = time.monotonic()
    yield
    log(f"{part}: took {duration(time.monotonic() - started)}")


def duration(seconds: float) -> str:
    """Minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
