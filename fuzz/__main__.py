"""`python -m fuzz`: read randomly damaged files of the corpus. Prints progress every minute; stops at a failure."""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from tests.mutations import MUTATIONS, check_mutant

from sessiontree.session.open import detect

CORPUS = [
    path for path in sorted((Path(__file__).parents[1] / "tests" / "corpus").rglob("*.jsonl")) if path.stat().st_size
]
SECONDS_PER_FILE = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None, help="seed of the random numbers (default: the time)")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else int(time.time())
    rng = random.Random(seed)
    end = time.monotonic() + options.seconds
    printed = time.monotonic()
    count = 0
    print(f"seed {seed}, {len(CORPUS)} files", file=sys.stderr)
    while time.monotonic() < end:
        path = rng.choice(CORPUS)
        original = path.read_bytes()
        dialect = detect(original[: 64 * 1024], str(path))
        mutant = rng.choice(MUTATIONS)(original, rng)
        started = time.monotonic()
        try:
            check_mutant(dialect, original, mutant)
            took = time.monotonic() - started
            assert took < SECONDS_PER_FILE, f"took {took:.1f} s"
        except BaseException:
            saved = Path(f"fuzz-failure-{seed}-{count}.jsonl")
            saved.write_bytes(mutant.data)
            print(f"{path.name}, {mutant.name}: saved as {saved}", file=sys.stderr)
            raise
        count += 1
        if time.monotonic() - printed > 60:
            printed = time.monotonic()
            print(f"{count:,} damaged files read", file=sys.stderr)
    print(f"{count:,} damaged files read without an exception, a hang or a lost line")
    return 0


if __name__ == "__main__":
    sys.exit(main())
