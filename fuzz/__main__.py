"""`python -m fuzz`: read randomly damaged sessions of any dialect. Prints progress every minute; stops at a failure."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.mutations import MUTATIONS

from fuzz.samples import load_samples

SECONDS_PER_FILE = 10.0
_HUNG = 120
"""After this many seconds, reading is interrupted: it hangs, or nearly so."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--count", type=int, help="stop after this many damaged sessions instead")
    parser.add_argument("--dialect", help="only sessions of this dialect")
    parser.add_argument("--seed", type=int, default=None, help="seed of the random numbers (default: the time)")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else int(time.time())
    rng = random.Random(seed)
    samples = load_samples()
    chosen = [sample for name, found in samples.items() if options.dialect in (None, name) for sample in found]
    if not chosen:
        parser.error(f"no samples of {options.dialect}; choose from {', '.join(sorted(samples))}")
    print(f"seed {seed}, {len(chosen)} files", file=sys.stderr)
    end = time.monotonic() + options.seconds
    printed = time.monotonic()
    count = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        while count < options.count if options.count is not None else time.monotonic() < end:
            sample = rng.choice(chosen)
            mutant = rng.choice(MUTATIONS)(sample.data, rng)
            # Processor time: other programs on the machine may take the rest.
            started = time.process_time()
            signal.alarm(_HUNG)
            try:
                sample.check(mutant, Path(folder))
                took = time.process_time() - started
                assert took < SECONDS_PER_FILE, f"took {took:.1f} s"
            except BaseException:
                saved = Path(f"fuzz-failure-{seed}-{count}-{sample.name}")
                saved.write_bytes(mutant.data)
                print(f"{sample.dialect.name}, {sample.name}, {mutant.name}: saved as {saved}", file=sys.stderr)
                raise
            finally:
                signal.alarm(0)
            count += 1
            if time.monotonic() - printed > 60:
                printed = time.monotonic()
                print(f"{count:,} damaged files read", file=sys.stderr)
    print(f"{count:,} damaged files read without an exception, a hang or a lost line")
    return 0


def _interrupt(*_: object) -> None:
    raise TimeoutError(f"reading took more than {_HUNG} s")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, _interrupt)
    sys.exit(main())
