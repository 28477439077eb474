"""Generated sessions: the real programs read as many as wanted, and each must rebuild our history.

A session is made from an integer seed, so a difference can be made again. It is reduced to the lines that it needs, and
saved.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from acceptance import contexts, edits, network, transcripts
from acceptance.cases import Case, Outcome, try_case
from acceptance.programs import Name, folder
from acceptance.progress import log, show_progress
from acceptance.sources import Source

MAX_REDUCED = 5
"""Number of differing sessions that are reduced: each takes dozens of runs."""


@dataclass(frozen=True, slots=True)
class Generator:
    """How the sessions of a program are made from a seed, and how many by default."""

    generate: Callable[[int], bytes]
    count: int
    edit: Callable[[Path, int], None] | None = None
    """Changes a generated session with our own operations. Every second session is changed."""

    def write(self, seed: int, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.generate(seed))
        if self.edit is not None and seed % 2:
            self.edit(path, seed)


GENERATORS: dict[Name, Generator] = {
    "claude": Generator(transcripts.generate, 500, edits.edit_transcript),
}


TREES_PER_PROGRAM = 1_000
"""Generated sessions of Pi and oh-my-pi: one process of the program reads hundreds of them (see `contexts`)."""


def try_generated(program: Name, scratch: Path, *, count: int | None, seed: int) -> list[Outcome]:
    """Let a program read generated sessions; the differing ones are reduced and saved."""
    default = TREES_PER_PROGRAM if program not in GENERATORS else GENERATORS[program].count
    seeds = range(seed, seed + (default if count is None else count))
    log(f"{program}: {len(seeds)} generated sessions, seeds {seeds.start} to {seeds.stop - 1}")
    if program == "pi" or program == "omp":
        tried = contexts.try_generated(program, seeds, scratch / program / "generated")
        return list(show_progress(program, tried, len(seeds)))
    generator = GENERATORS[program]
    with ThreadPoolExecutor(network.WORKERS) as pool:
        attempts = pool.map(lambda seed: _try_seed(program, generator, seed, scratch), seeds)
        outcomes = list(show_progress(program, attempts, len(seeds)))
    differing = [outcome for outcome in outcomes if outcome.status == "differs"]
    for number, outcome in enumerate(differing):
        _save(outcome, scratch / "reduced", reduced=number < MAX_REDUCED)
    return outcomes


def random_seed() -> int:
    return random.SystemRandom().randrange(1_000_000_000)


def _try_seed(program: Name, generator: Generator, seed: int, scratch: Path) -> Outcome:
    path = scratch / program / "generated" / f"seed-{seed}.jsonl"
    return _try_file(program, path, scratch / program / f"seed-{seed}", lambda: generator.write(seed, path))


def _try_file(program: Name, path: Path, run: Path, write: Callable[[], None] = lambda: None) -> Outcome:
    case = Case(Source(program, path), program)
    try:
        write()
        return try_case(case, run)
    except Exception as error:  # noqa: BLE001 - a session that breaks must not hide how the others end
        return Outcome(case, "differs", f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(run, ignore_errors=True)


def _save(outcome: Outcome, scratch: Path, *, reduced: bool) -> None:
    path, program = outcome.case.source.path, outcome.case.program
    saved = folder() / "differences" / program / path.name
    saved.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, saved)
    log(f"Saved {saved}")
    if reduced:
        copy = scratch / program / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        runs = 0

        def differs(lines: Sequence[bytes]) -> bool:
            nonlocal runs
            runs += 1
            copy.write_bytes(b"".join(lines))
            return _try_file(program, copy, copy.with_suffix(f".{runs}")).status == "differs"

        lines = _reduce(path.read_bytes().splitlines(keepends=True), differs)
        short = saved.with_suffix(".reduced.jsonl")
        short.write_bytes(b"".join(lines))
        log(f"Reduced to {len(lines)} lines: {short}")


def _reduce(lines: list[bytes], differs: Callable[[Sequence[bytes]], bool]) -> list[bytes]:
    """Leave out lines, half of them at once at first, as long as the rest still differs."""
    size = len(lines) // 2
    while size:
        at = 0
        while at < len(lines):
            shorter = lines[:at] + lines[at + size :]
            if shorter and differs(shorter):
                lines = shorter
            else:
                at += size
        size //= 2
    return lines
